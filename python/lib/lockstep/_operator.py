"""torch operators with closed-form gradients, called without the dispatcher unless something traces them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch


def traced() -> bool:
    """Returns whether anything observes dispatched calls."""
    return bool(torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack())


class _Closed(torch.autograd.Function):
    """Returns the first `count` tensors, as functions of all of them that have no derivative.

    torch's `once_differentiable` is not connected to what was differentiated: a Hessian would be zeros.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Any) -> tuple[Any, ...]:
        return tuple(None if tensor is None else tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *of: Any) -> Any:
        raise RuntimeError("lockstep's gradients are closed forms, which cannot be differentiated again: expected first derivatives alone")


def once(backward: Callable[..., Any], ctx: Any, *of: Any) -> Any:
    """Calls the `backward` of a closed form; differentiating its result again is an error.

    What it is a function of: `of`, the saved tensors, and `ctx.inputs`, for inputs that are not saved.
    """
    if not torch.is_grad_enabled():
        return backward(ctx, *of)
    # Before `inplace_backward` overwrites one of them.
    arguments = (*of, *ctx.saved_tensors, *getattr(ctx, "inputs", ()))
    with torch.no_grad():
        gradients = backward(ctx, *of)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    return _Closed.apply(len(gradients), *gradients, *arguments)


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
        op.register_autograd(partial(once, backward), setup_context=keep)
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
