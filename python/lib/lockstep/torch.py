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
from functools import partial
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
    "loss(str recipe, int group_size, bool per_token, bool metrics, Tensor logp, Tensor? entropy, Tensor? values, "
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
    stats: Any
    """What `metrics` reads; not for anything else."""


def _read(source: str) -> Recipe:
    return _recipe(json.loads(source) if source.startswith("{") else source)


def _stats(batch: Batch, results: Any) -> Tensor:
    if "sums" not in results:
        return results["metrics"]
    counts = results["counts"] if "counts" in results else batch.arrays["counts"]
    return torch.cat([array.view(torch.uint8) for array in (counts, results["sums"], results["maxima"])])


def _scalar(results: Any, name: str) -> Tensor:
    return results[name][0].float()


def _operator(recipe, group_size, per_token, metrics, logp, entropy, values, *rest):
    credit = Credit(rest[0], per_token, *rest[1 : len(_CREDIT)])
    columns = dict(zip(_COLUMNS, rest[len(_CREDIT) :]), logp=logp, entropy=entropy, values=values)
    batch = Batch(columns, group_size or None)
    results = _run(_read(recipe), "loss", batch, credit, metrics)
    value = _scalar(results, "value_loss") if "value_loss" in results else logp.new_zeros(())
    # Results must not share memory: the gradient keeps the workspace, what is rare is copied.
    rare = [results.get(name) for name in ("entropy_coef", "value_gradient")]
    rare = [logp.new_empty(0) if array is None else array.clone().view(logp.shape) for array in rare]
    stats = _stats(batch, results).clone() if metrics else logp.new_empty(0, dtype=torch.uint8)
    return (_scalar(results, "loss"), value, results["coef"].view(logp.shape), *rare, stats)


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("loss", _operator, _device)


@torch.library.register_fake("lockstep::loss", lib=_LIBRARY)
def _shapes(recipe, group_size, per_token, metrics, logp, *rest):
    results = {name: count for name, _, count, _ in _read(recipe).plan("loss", [1, 1, 1], metrics, False).results}
    like = [torch.empty_like(logp) if name in results else logp.new_empty(0) for name in ("coef", "entropy_coef", "value_gradient")]
    if not metrics:
        stats = logp.new_empty(0, dtype=torch.uint8)
    elif "sums" in results:
        stats = logp.new_empty(24 + 8 * results["sums"] + 4 * results["maxima"], dtype=torch.uint8)
    else:
        stats = logp.new_empty(results["metrics"], dtype=torch.float64)
    return (logp.new_empty(()), logp.new_empty(()), *like, stats)


def _gradients(ctx, of_loss, of_value=None, *_):
    coef, entropy_coef, value_gradient = ctx.saved_tensors
    _, logp, entropy, values = ctx.needs_input_grad
    entropy = entropy and entropy_coef is not None and entropy_coef.numel() > 0
    values = values and value_gradient is not None and value_gradient.numel() > 0
    return (
        None,
        of_loss * coef if logp else None,
        of_loss * entropy_coef if entropy else None,
        of_value * value_gradient if values else None,
    )


class _Differentiable(torch.autograd.Function):
    """What `compute` makes of `logp`, `entropy` and `values`: loss, value loss, constants; and the closed-form gradients that it gives besides."""

    @staticmethod
    def forward(ctx, compute, *active):
        outputs, gradients = compute(*active)
        ctx.mark_non_differentiable(*outputs[2:])
        ctx.save_for_backward(*gradients)
        return outputs

    @staticmethod
    def backward(ctx, *of):
        # A second derivative is an error. torch's decorator takes longer than the gradient: only where one could come.
        gradients = torch.autograd.function.once_differentiable(_gradients) if torch.is_grad_enabled() else _gradients
        return gradients(ctx, *of)


def _with_gradient(recipe, group_size, per_token, metrics, logp, entropy, values, *rest):
    def compute(*active):
        with torch._C._AutoDispatchBelowAutograd():
            out = torch.ops.lockstep.loss(recipe, group_size, per_token, metrics, *active, *rest)
        return out, out[2:5]

    return _Differentiable.apply(compute, logp, entropy, values)


# Not `register_autograd`: that looks at every argument of the schema in Python, which costs more than the loss.
_LIBRARY.impl("loss", _with_gradient, "Autograd")


def _directly(own: Recipe, credit: Credit, group_size: int, metrics: bool, columns: dict[str, Any]) -> Loss:
    """The same without the dispatcher: a way through it with fifty arguments takes longer than the loss."""
    logp, seen = columns["logp"], []

    def compute(*_):
        batch = Batch(columns, group_size or None)
        results = _run(own, "loss", batch, credit, metrics)
        seen.extend((batch, results))
        of_tokens = [results.get(name) for name in ("coef", "entropy_coef", "value_gradient")]
        values = ["loss", "value_loss"] if "value_loss" in results else ["loss"]
        gradients = [None if array is None else array.view(logp.shape) for array in of_tokens]
        seen.append(gradients[0])
        return tuple(_scalar(results, name) for name in values), gradients

    value, *more = _Differentiable.apply(compute, *(columns.get(name) for name in _ACTIVE))
    batch, results, coef = seen
    return Loss(value, more[0] if more else logp.new_zeros(()), coef, partial(_stats, batch, results) if metrics else None)


def loss(
    recipe: str | Mapping[str, Any] | Recipe,
    credit: Credit | Tensor,
    *,
    logp: Tensor,
    group_size: int = 0,
    metrics: bool = True,
    **columns: Tensor | None,
) -> Loss:
    """Loss of a batch, packed (`[N]` with `cu_seqlens`) or padded (`[B, T]`); `credit` is that of `lockstep.advantages`, or advantages of
    your own, `[S]` or of tokens in the shape of `logp`.

    Gradients go to `logp`, and to the columns `entropy` and `values` where the recipe has such a term; other columns are constants.
    Under autocast every column is taken in float32, and so is the loss. Denominators that are not this batch's go in as column `counts`,
    a tensor (int64, `[3]`: tokens, non-empty sequences, sequences), so that no number of a batch is compiled in. Without `metrics` the loss
    of a large batch takes a third of the time.
    """
    if isinstance(credit, Tensor):
        credit = Credit(advantage=credit, per_token=credit.shape == logp.shape and credit.dim() == 2)
    columns = {"logp": logp, **columns}
    for name, tensor in columns.items():
        if name in _ACTIVE:
            columns[name] = tensor if tensor is None or tensor.dtype == torch.float32 else tensor.float()
        elif name not in _COLUMNS:
            raise error(name, f" is no column that a loss reads: known are {', '.join((*_ACTIVE, *_COLUMNS))}")
    # Whether something looks at what is dispatched.
    if not (torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack()):
        return _directly(_recipe(recipe), credit, group_size, metrics, columns)
    if isinstance(recipe, Recipe):
        recipe = recipe.toml
    elif not isinstance(recipe, str):
        recipe = json.dumps(_nested(recipe))
    of_credit = [getattr(credit, name) for name in _CREDIT]
    given = [columns.get(name) for name in (*_ACTIVE, *_COLUMNS)]
    active, constant = given[: len(_ACTIVE)], given[len(_ACTIVE) :]
    out = torch.ops.lockstep.loss(recipe, group_size, credit.per_token, metrics, *active, *of_credit, *constant)
    return Loss(out[0], out[1], out[2], out[5])


def metrics(stats: Any) -> dict[str, float]:
    """Metrics of a loss by name, from its `stats`; waits for its device."""
    stats = stats() if isinstance(stats, partial) else stats
    if stats is None or not stats.numel():
        raise error("stats", " is empty: the loss was asked for no metrics")
    # The host's are finished; a device's are counts, sums and maxima.
    if stats.dtype == torch.float64:
        return dict(zip(_METRICS, stats.tolist()))
    bytes_ = stats.cpu()
    tokens = bytes_[:8].view(torch.int64).item()
    return _metrics(tokens, bytes_[24:-8].view(torch.float64).tolist(), bytes_[-8:].view(torch.float32).tolist())
