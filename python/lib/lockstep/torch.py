"""The loss as an operator of torch: differentiable, traced by `torch.compile` without a break, on a CPU, CUDA or ROCm.

>>> import torch, lockstep.torch
>>> logp = torch.tensor([[-0.5, -1.0], [-0.2, -2.0]], requires_grad=True)
>>> out = lockstep.torch.loss("dapo", torch.tensor([0.5, -0.5]), logp=logp, logp_old=logp.detach())
>>> out.loss.backward()
>>> logp.grad
tensor([[-0.1250, -0.1250],
        [ 0.1250,  0.1250]])
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import Credit, Recipe, _metrics, _nested, _run, names, recipe as _recipe
from .columns import COLUMNS, Batch, error

__all__ = ["Loss", "loss", "metrics"]

_METRICS = tuple(_metrics(0, [], [0.0, 0.0]))
_CREDIT = ("advantage", "loss_mask", "weights", "returns")
# What a gradient goes to; the other columns that the loss of some recipe reads are constants.
_ACTIVE = ("logp", "entropy", "values")
_READ = {column for name in names() for column, _, call, *_ in _recipe(name).needs() if call == "loss"}
_COLUMNS = tuple(name for name in COLUMNS if name in _READ and name not in _ACTIVE)
# One argument a column: torch takes lists of tensors apart in Python, which costs more than the loss.
_LIBRARY = torch.library.Library("lockstep", "DEF")
_LIBRARY.define(
    "loss(str recipe, int group_size, bool per_token, Tensor logp, Tensor? entropy, Tensor? values, "
    + ", ".join(f"Tensor? {name}" for name in (*(f"credit_{name}" for name in _CREDIT), *_COLUMNS))
    + ") -> (Tensor loss, Tensor value_loss, Tensor coef, Tensor entropy_coef, Tensor value_gradient, Tensor stats)"
)


class Loss(NamedTuple):
    """A loss that `backward` goes through."""

    loss: Tensor
    """Policy, KL and entropy terms, float32; its gradient goes to `logp` and, where the recipe has an entropy term, to `entropy`."""
    value_loss: Tensor
    """The critic's loss, 0 without one; its gradient goes to `values`."""
    coef: Tensor
    """dL/dlogp, of tokens; no gradient goes through it."""
    stats: Tensor
    """What `metrics` reads, on the device of the loss."""


def _read(source: str) -> Recipe:
    return _recipe(json.loads(source) if source.startswith("{") else source)


def _computed(recipe, group_size, per_token, logp, entropy, values, *rest):
    own = _read(recipe)
    credit = Credit(rest[0], per_token, *rest[1 : len(_CREDIT)])
    given = dict(zip(_COLUMNS, rest[len(_CREDIT) :]), logp=logp, entropy=entropy, values=values)
    batch = Batch(given, group_size or None)
    results = _run(own, "loss", batch, credit, True)
    value = results["value_loss"][0].float() if "value_loss" in results else logp.new_zeros(())
    # Results must not share memory: the gradient keeps the workspace, what is rare is copied.
    rare = [results.get(name) for name in ("entropy_coef", "value_gradient")]
    rare = [logp.new_empty(0) if array is None else array.clone().view(logp.shape) for array in rare]
    if "sums" in results:
        counts = results.bytes("counts") if "counts" in results else batch.arrays["counts"].view(torch.uint8)
        stats = torch.cat([counts, results.bytes("sums"), results.bytes("maxima")])
    else:
        stats = results["metrics"].clone()
    return (results["loss"][0].float(), value, results["coef"].view(logp.shape), *rare, stats)


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("loss", _computed, _device)


@torch.library.register_fake("lockstep::loss", lib=_LIBRARY)
def _shapes(recipe, group_size, per_token, logp, *rest):
    own = _read(recipe)
    results = {name: count for name, _, count, _ in own.plan("loss", [1, 1, 1], True, False).results}
    like = [torch.empty_like(logp) if name in results else logp.new_empty(0) for name in ("coef", "entropy_coef", "value_gradient")]
    if "sums" in results:
        stats = logp.new_empty(24 + 8 * results["sums"] + 4 * results["maxima"], dtype=torch.uint8)
    else:
        stats = logp.new_empty(results["metrics"], dtype=torch.float64)
    return (logp.new_empty(()), logp.new_empty(()), *like, stats)


def _plain() -> bool:
    """Whether nothing looks at what is dispatched: no fake tensors, no tracing. Each way through the dispatcher takes longer than the loss."""
    return not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() == 0


class _Differentiable(torch.autograd.Function):
    """The operator with its closed-form gradient; a second derivative is an error."""

    @staticmethod
    def forward(ctx, *arguments):
        if _plain():
            out = _computed(*arguments)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                out = torch.ops.lockstep.loss(*arguments)
        _, _, coef, entropy_coef, value_gradient, stats = out
        ctx.mark_non_differentiable(coef, entropy_coef, value_gradient, stats)
        ctx.save_for_backward(coef, entropy_coef, value_gradient)
        ctx.wants = [tensor is not None for tensor in arguments[3:6]]
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, of_loss, of_value, *_):
        coef, entropy_coef, value_gradient = ctx.saved_tensors
        entropy = of_loss * entropy_coef if ctx.wants[1] and entropy_coef.numel() else None
        values = of_value * value_gradient if ctx.wants[2] and value_gradient.numel() else None
        return None, None, None, of_loss * coef, entropy, values, *([None] * (len(_CREDIT) + len(_COLUMNS)))


# Not `register_autograd`: that looks at every argument of the schema in Python, which costs more than the loss.
_LIBRARY.impl("loss", _Differentiable.apply, "Autograd")


def loss(
    recipe: str | Mapping[str, Any] | Recipe,
    credit: Credit | Tensor,
    *,
    logp: Tensor,
    group_size: int = 0,
    **columns: Tensor | None,
) -> Loss:
    """Loss of a batch, packed (`[N]` with `cu_seqlens`) or padded (`[B, T]`); `credit` is that of `lockstep.advantages`, or advantages of
    your own, `[S]` or of tokens in the shape of `logp`.

    Gradients go to `logp`, and to the columns `entropy` and `values` where the recipe has such a term; other columns are constants.
    Under autocast every column is taken in float32, and so is the loss. Denominators that are not this batch's go in as column `counts`,
    a tensor (int64, `[3]`: tokens, non-empty sequences, sequences), so that no number of a batch is compiled in.
    """
    if isinstance(recipe, Recipe):
        recipe = recipe.toml
    elif not isinstance(recipe, str):
        recipe = json.dumps(_nested(recipe))
    if isinstance(credit, Tensor):
        credit = Credit(advantage=credit, per_token=credit.shape == logp.shape and credit.dim() == 2)
    unknown = [name for name in columns if name not in _COLUMNS and name not in _ACTIVE]
    if unknown:
        raise error(unknown[0], f" is no column that a loss reads: known are {', '.join((*_ACTIVE, *_COLUMNS))}")
    active = [columns.get(name) for name in _ACTIVE[1:]]
    active = [None if tensor is None else tensor.float() for tensor in (logp, *active)]
    of_credit = [getattr(credit, name) for name in _CREDIT]
    given = [columns.get(name) for name in _COLUMNS]
    apply = _Differentiable.apply if _plain() else torch.ops.lockstep.loss
    out = apply(recipe, group_size, credit.per_token, *active, *of_credit, *given)
    return Loss(out[0], out[1], out[2], out[5])


def metrics(stats: Tensor) -> dict[str, float]:
    """Metrics of a loss by name; waits for its device."""
    # The host's are finished; a device's are counts, sums and maxima.
    if stats.dtype == torch.float64:
        return dict(zip(_METRICS, stats.tolist()))
    bytes_ = stats.cpu()
    tokens = bytes_[:8].view(torch.int64).item()
    return _metrics(tokens, bytes_[24:-8].view(torch.float64).tolist(), bytes_[-8:].view(torch.float32).tolist())
