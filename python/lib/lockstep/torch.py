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


def _computed(recipe, credit, group_size, columns, alone):
    """The six results of the operator; without memory of the workspace in two of them unless `alone`, where None stands for what is not there."""
    logp = columns["logp"]
    batch = Batch(columns, group_size or None)
    results = _run(_read(recipe), "loss", batch, credit, True)
    value = results["value_loss"][0].float() if "value_loss" in results else logp.new_zeros(())
    rare = [results.get(name) for name in ("entropy_coef", "value_gradient")]
    if "sums" in results:
        counts = results.bytes("counts") if "counts" in results else batch.arrays["counts"].view(torch.uint8)
        stats = torch.cat([counts, results.bytes("sums"), results.bytes("maxima")])
    else:
        stats = results["metrics"]
    if not alone:
        rare = [logp.new_empty(0) if array is None else array.clone().view(logp.shape) for array in rare]
        stats = stats.clone()
    return (results["loss"][0].float(), value, results["coef"].view(logp.shape), *rare, stats)


def _operator(recipe, group_size, per_token, logp, entropy, values, *rest):
    credit = Credit(rest[0], per_token, *rest[1 : len(_CREDIT)])
    columns = dict(zip(_COLUMNS, rest[len(_CREDIT) :]), logp=logp, entropy=entropy, values=values)
    return _computed(recipe, credit, group_size, columns, False)


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("loss", _operator, _device)


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


class _Differentiable(torch.autograd.Function):
    """What `compute` makes of `logp`, `entropy` and `values`, with its closed-form gradient; a second derivative is an error."""

    @staticmethod
    def forward(ctx, compute, *active):
        out = compute(*active)
        ctx.mark_non_differentiable(*(tensor for tensor in out[2:] if tensor is not None))
        ctx.save_for_backward(*out[2:5])
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, of_loss, of_value, *_):
        coef, entropy_coef, value_gradient = ctx.saved_tensors

        def gradient(wanted, of, factor):
            return of * factor if wanted and factor is not None and factor.numel() else None

        _, logp, entropy, values = ctx.needs_input_grad
        entropy, values = gradient(entropy, of_loss, entropy_coef), gradient(values, of_value, value_gradient)
        return None, gradient(logp, of_loss, coef), entropy, values


def _with_gradient(recipe, group_size, per_token, logp, entropy, values, *rest):
    def compute(*active):
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.lockstep.loss(recipe, group_size, per_token, *active, *rest)

    return _Differentiable.apply(compute, logp, entropy, values)


# Not `register_autograd`: that looks at every argument of the schema in Python, which costs more than the loss.
_LIBRARY.impl("loss", _with_gradient, "Autograd")


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
    columns = {"logp": logp, **columns}
    for name in columns:
        if name not in _COLUMNS and name not in _ACTIVE:
            raise error(name, f" is no column that a loss reads: known are {', '.join((*_ACTIVE, *_COLUMNS))}")
    active = [columns.get(name) for name in _ACTIVE]
    active = [tensor if tensor is None or tensor.dtype == torch.float32 else tensor.float() for tensor in active]
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        of_credit = [getattr(credit, name) for name in _CREDIT]
        given = [columns.get(name) for name in _COLUMNS]
        out = torch.ops.lockstep.loss(recipe, group_size, credit.per_token, *active, *of_credit, *given)
    else:
        # Nothing looks at what is dispatched, and a way through the dispatcher with fifty arguments takes longer than the loss.
        def compute(*active):
            return _computed(recipe, credit, group_size, {**columns, **dict(zip(_ACTIVE, active))}, True)

        out = _Differentiable.apply(compute, *active)
    return Loss(out[0], out[1], out[2], out[5])


def metrics(stats: Tensor) -> dict[str, float]:
    """Metrics of a loss by name; waits for its device."""
    # The host's are finished; a device's are counts, sums and maxima.
    if stats.dtype == torch.float64:
        return dict(zip(_METRICS, stats.tolist()))
    bytes_ = stats.cpu()
    tokens = bytes_[:8].view(torch.int64).item()
    return _metrics(tokens, bytes_[24:-8].view(torch.float64).tolist(), bytes_[-8:].view(torch.float32).tolist())
