"""torch operators with closed-form gradients, called without the dispatcher unless something traces them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def traced() -> bool:
    """Returns whether anything observes dispatched calls."""
    return bool(torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack())


def once(backward: Callable[..., Any], ctx: Any, *of: Any) -> Any:
    """Calls the `backward` of a closed form; differentiating its result again is an error."""
    # torch's decorator takes longer than a gradient, so it is used only where a second derivative is possible.
    if not torch.is_grad_enabled():
        return backward(ctx, *of)
    # It refuses only if an input requires grad, and that of a sum's gradient does not.
    differentiable = torch.zeros((), requires_grad=True)
    return torch.autograd.function.once_differentiable(lambda ctx, *of: backward(ctx, *of[:-1]))(ctx, *of, differentiable)


def operator(
    forward: Callable[..., Any], fake: Callable[..., Any], keep: Callable[..., Any] | None = None, backward: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Returns the operator `lockstep::NAME` for a function `_NAME` on tensors.

    `keep` and `backward` are `setup_context` and `backward` of a `torch.autograd.Function`; without them the
    operator has no gradient.
    """
    op = torch.library.custom_op(f"lockstep::{forward.__name__.lstrip('_')}", forward, mutates_args=())
    op.register_fake(fake)
    direct = forward
    if keep and backward:
        op.register_autograd(backward, setup_context=keep)
        direct = _function(forward, keep, backward).apply

    def call(*inputs: Any) -> Any:
        # A trip through the dispatcher takes longer than the op on a small batch.
        return op(*inputs) if traced() else direct(*inputs)

    return call


def _function(forward: Callable[..., Any], keep: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    class Direct(torch.autograd.Function):
        @staticmethod
        def backward(ctx: Any, *of: Any) -> Any:
            return once(backward, ctx, *of)

    # Not `setup_context`, for which torch inspects the function's signature in every call.
    def both(ctx: Any, *inputs: Any) -> Any:
        output = forward(*inputs)
        keep(ctx, inputs, output)
        return output

    Direct.forward = staticmethod(both)
    return Direct
