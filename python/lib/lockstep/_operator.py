"""Operators of torch with a closed-form gradient: traced by `torch.compile`, and without the dispatcher where nobody traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def operator(
    forward: Callable[..., Any], fake: Callable[..., Any], keep: Callable[..., Any] | None = None, backward: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """The operator `lockstep::NAME` of a function `_NAME` on tensors. `keep` and `backward` are `setup_context` and `backward` of a
    `torch.autograd.Function`; without them it has no gradient."""
    op = torch.library.custom_op(f"lockstep::{forward.__name__.lstrip('_')}", forward, mutates_args=())
    op.register_fake(fake)
    direct = forward
    if keep and backward:
        op.register_autograd(backward, setup_context=keep)
        direct = _function(forward, keep, backward).apply

    def call(*inputs: Any) -> Any:
        # Whether something looks at what is dispatched; a way through it takes longer than the op of a small batch.
        looked_at = torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack()
        return op(*inputs) if looked_at else direct(*inputs)

    return call


def _function(forward: Callable[..., Any], keep: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    class Direct(torch.autograd.Function):
        @staticmethod
        def backward(ctx: Any, *of: Any) -> Any:
            # A second derivative is an error, where one could come.
            once = torch.autograd.function.once_differentiable if torch.is_grad_enabled() else lambda function: function
            return once(backward)(ctx, *of)

    # Not `setup_context`, for which torch looks at the function's signature in every call.
    def both(ctx: Any, *inputs: Any) -> Any:
        output = forward(*inputs)
        keep(ctx, inputs, output)
        return output

    Direct.forward = staticmethod(both)
    return Direct
