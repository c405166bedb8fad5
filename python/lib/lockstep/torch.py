"""The loss as a torch operator on CPU, CUDA or ROCm: differentiable, no graph breaks under `torch.compile`.

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

from . import _CREDIT, Credit, Recipe, _device, _metrics, _nested, _plan, _run, names, recipe as _recipe
from ._error import LockstepError
from ._native import Prepared
from ._operator import once
from .arrays import check_tensor
from .columns import COLUMNS, NUMBERS, Batch, error, positive
from .faults import bounded, of_values, refused

__all__ = ["Loss", "loss", "metrics"]

_METRICS = tuple(_metrics(0, [], [0.0, 0.0]))
# Columns that receive a gradient; the other columns that some recipe's loss reads are constants.
_ACTIVE = ("logp", "entropy", "values")
# No recipe with a name takes ratios as they are given.
_RECIPES: tuple[str | Mapping[str, Any], ...] = (*names(), {"extends": "grpo", "ratio.level": "given"})
_READ = {column for source in _RECIPES for column, _, call, *_ in _recipe(source).needs() if call == "loss"}
_COLUMNS = tuple(name for name in COLUMNS if name in _READ and name not in _ACTIVE)
_KNOWN = frozenset((*_ACTIVE, *_COLUMNS))
# One argument per column: torch unpacks lists of tensors in Python, which costs more than the loss.
_LIBRARY = torch.library.Library("lockstep", "DEF")
_LIBRARY.define(
    "loss(str recipe, int group_size, bool per_token, bool metrics, Tensor logp, Tensor? entropy, Tensor? values, "
    + ", ".join(f"Tensor? {name}" for name in (*(f"credit_{name}" for name in _CREDIT), *_COLUMNS))
    + ") -> (Tensor loss, Tensor value_loss, Tensor coef, Tensor entropy_coef, Tensor value_gradient, Tensor stats)"
)


class _Fields(NamedTuple):
    loss: Tensor
    value: Tensor | None
    coef: Tensor
    stats: Any
    pending: Any


class Loss(_Fields):
    """A differentiable loss.

    `loss`: policy, KL and entropy terms, float32; its gradient goes to `logp` and, if the recipe has an
    entropy term, to `entropy`. `coef`: dL/dlogp, per token; no gradient goes through it. `stats`: opaque
    input for `metrics`.
    """

    __slots__ = ()

    @property
    def value_loss(self) -> Tensor:
        """The critic's loss, 0 without one; its gradient goes to `values`."""
        return self.loss.new_zeros(()) if self.value is None else self.value

    def check(self) -> None:
        """Waits for a loss made with `wait=False`, and raises `lockstep.Error` if it met a bad value.

        After a call that waited, it does nothing.
        """
        if self.pending is not None:
            self.pending()


def _read(source: str) -> Recipe:
    return _recipe(json.loads(source) if source.startswith("{") else source)


def _stats(batch: Batch, results: Any) -> Tensor:
    if "sums" not in results:
        return results["metrics"]
    counts = results["counts"] if "counts" in results else batch.arrays["counts"]
    return torch.cat([array.view(torch.uint8) for array in (counts, results["sums"], results["maxima"])])


def _scalar(value: float) -> Tensor:
    # Torch's default device may be another.
    return torch.scalar_tensor(value, dtype=torch.float32, device="cpu")


def _losses(results: Any) -> list[Tensor]:
    """Returns the loss and, if there is one, the value loss; they share memory with nothing."""
    if results.losses is not None:
        return [_scalar(loss) for loss in results.losses if loss is not None]
    return [results[name][0].float() for name in ("loss", "value_loss") if name in results]


def _operator(recipe, group_size, per_token, metrics, logp, entropy, values, *rest):
    credit = Credit(rest[0], per_token, *rest[1 : len(_CREDIT)])
    columns = dict(zip(_COLUMNS, rest[len(_CREDIT) :]), logp=logp, entropy=entropy, values=values)
    batch = Batch(columns, group_size or None)
    results = _run(_read(recipe), "loss", batch, credit, metrics)
    policy, *value = _losses(results)
    # Results must not share memory: the gradient keeps the workspace, and rare results are copied.
    rare = [results.get(name) for name in ("entropy_coef", "value_gradient")]
    rare = [logp.new_empty(0) if array is None else array.clone().view(logp.shape) for array in rare]
    stats = _stats(batch, results).clone() if metrics else logp.new_empty(0, dtype=torch.uint8)
    return (policy, value[0] if value else logp.new_zeros(()), results["coef"].view(logp.shape), *rare, stats)


for _key in ("CPU", "CUDA"):
    _LIBRARY.impl("loss", _operator, _key)


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


class _Differentiable(torch.autograd.Function):
    """Applies `compute` to `logp`, or to `logp`, `entropy` and `values`, and supplies closed-form gradients.

    `compute` returns the outputs (loss, value loss, constants) and a gradient for each input.
    """

    @staticmethod
    def forward(ctx, compute, *active):
        outputs, gradients = compute(*active)
        if len(outputs) > 2:
            ctx.mark_non_differentiable(*outputs[2:])
        ctx.save_for_backward(*gradients)
        ctx.inputs = active
        return outputs

    @staticmethod
    def backward(ctx, of_loss, of_value=None, *_):
        if torch.is_grad_enabled():
            return once(_Differentiable.backward, ctx, of_loss, of_value)
        saved = ctx.saved_tensors
        if len(saved) == 1:
            return None, of_loss * saved[0]
        gradients = [None]
        for needed, of, gradient in zip(ctx.needs_input_grad[1:], (of_loss, of_loss, of_value), saved):
            gradients.append(of * gradient if needed and gradient is not None and gradient.numel() else None)
        return tuple(gradients)


def _with_gradient(recipe, group_size, per_token, metrics, logp, entropy, values, *rest):
    def compute(*active):
        with torch._C._AutoDispatchBelowAutograd():
            out = torch.ops.lockstep.loss(recipe, group_size, per_token, metrics, *active, *rest)
        return out, out[2:5]

    return _Differentiable.apply(compute, logp, entropy, values)


# Not `register_autograd`: it inspects every argument of the schema in Python, which costs more than the loss.
_LIBRARY.impl("loss", _with_gradient, "Autograd")


# Losses on a CPU whose tensors match an earlier call's, with a gradient for `logp` only: Rust does what
# repeats.
_PREPARED: dict[Any, Prepared] = {}


def _prepare(own: Recipe, credit: Credit, batch: Batch, columns: dict[str, Any], key: Any) -> None:
    of, given = batch.library, {name: getattr(credit, name) for name in _CREDIT}
    as_it_is = all(isinstance(tensor, Tensor) and batch.arrays[name].data_ptr() == tensor.data_ptr() for name, tensor in columns.items())
    if not as_it_is or not all(tensor is None or of.fits(tensor, _CREDIT[name].type) for name, tensor in given.items()):
        return
    planned = _plan(own, "loss", batch.size, False)
    numbered = [(NUMBERS[name] if NUMBERS[name] in planned.reads else None, name, tensor) for name, tensor in columns.items()]
    added = {name: array for name, array in batch.arrays.items() if name not in columns}
    places = [(NUMBERS[name], *of.place(array)) for name, array in added.items()]
    if len(_PREPARED) >= 1024:
        _PREPARED.clear()
    _PREPARED[key] = Prepared(planned.plan, _device(of.name, of.threads), numbered, (places, added), [*given.values()], credit.per_token)


def _directly(own: Recipe, credit: Credit, group_size: int, metrics: bool, columns: dict[str, Any], wait: bool = True) -> Loss:
    """Computes the loss without the dispatcher, where a call with fifty arguments takes longer than the loss.
    """
    logp, batch, results = columns["logp"], None, None
    alone = "entropy" not in columns and "values" not in columns
    active = (logp,) if alone else [columns.get(name) for name in _ACTIVE]
    # A separate array: views of a block cost as much as the rest of the call.
    coef = torch.empty_like(logp, memory_format=torch.contiguous_format)
    few = alone and not metrics and logp.is_cpu
    key = few and (own, logp.shape, tuple(columns), group_size, credit.per_token, torch.get_num_threads())

    def compute(*_):
        nonlocal batch, results
        prepared = _PREPARED.get(key)
        if prepared is not None:
            of_credit = (credit.advantage, credit.loss_mask, credit.weights, credit.returns)
            try:
                value = prepared.run(columns, of_credit, coef.data_ptr())
            except LockstepError:
                # A bad value: the usual way says more of it.
                value = None
            if value is not None:
                return (_scalar(value),), (coef,)
        batch = Batch(columns, group_size or None)
        results = _run(own, "loss", batch, credit, metrics, coef, wait)
        if few:
            _prepare(own, credit, batch, columns, key)
        gradients = [coef]
        if not alone:
            gradients += [results[name].view(logp.shape) if name in results else None for name in ("entropy_coef", "value_gradient")]
        return tuple(_losses(results)), gradients

    policy, *value = _Differentiable.apply(compute, *active)
    stats = partial(_stats, batch, results) if metrics else None
    pending = None if results is None else results.pending
    return Loss(policy, value[0] if value else None, coef, stats, pending)


def _or_nan(on_error: str, own: Recipe, credit: Credit, group_size: int, metrics: bool, columns: dict[str, Any]) -> Loss:
    """Computes the loss, NaN if a value is refused."""
    if on_error != "nan":
        raise error("on_error", f" is {on_error!r}: expected 'raise' or 'nan'")
    try:
        return _directly(own, credit, group_size, metrics, columns)
    except LockstepError as fault:
        if not of_values(fault):
            raise
        logp, entropy, values = (columns.get(name) for name in _ACTIVE)
        nothing = torch.full((len(_METRICS),), float("nan"), dtype=torch.float64) if metrics else None
        value_loss = None if values is None else refused(fault, [values])
        return Loss(refused(fault, [logp, entropy]), value_loss, torch.full_like(logp, float("nan"), requires_grad=False), nothing, None)


def loss(
    recipe: str | Mapping[str, Any] | Recipe,
    credit: Credit | Tensor,
    *,
    logp: Tensor,
    group_size: int = 0,
    metrics: bool = True,
    wait: bool = True,
    on_error: str = "raise",
    positive_logp: str = "error",
    **columns: Tensor | None,
) -> Loss:
    """Computes the loss of a batch, packed (`[N]` with `cu_seqlens`) or padded (`[B, T]`).

    `credit` is that of `lockstep.advantages`, or your own advantages, `[S]` or per token `[B, T]`; packed
    ones per token are `Credit(advantages, per_token=True)`. Gradients go to `logp`, and to the columns
    `entropy` and `values` if the recipe has such a term; other columns are constants. Under autocast, every
    column is converted to float32, and the loss is float32. Pass denominators other than this batch's as
    the column `counts`, a tensor (int64, `[3]`: tokens, non-empty sequences, sequences), so that a compiled
    graph holds no number of one batch. Without `metrics`, the loss of a large batch takes a third of the
    time.

    With `wait=False`, a call on a GPU only launches on torch's current stream, and `Loss.check` reports later
    whether a value was bad; `metrics` waits. A recipe with a rule that runs on the host waits anyway, as do
    `on_error="nan"` and the loss in a graph of `torch.compile`.

    With `on_error="nan"`, if a value of the batch is refused, then loss, gradients and metrics are NaN, and a
    warning gives the reason, once per process: other ranks in a collective do not hang on one that raised.
    The trainer decides what to do with a NaN gradient (verl skips the step). Not available in a graph of
    `torch.compile`, which cannot catch exceptions. With `positive_logp="clamp"`, log-probabilities above 0,
    which are otherwise refused, become 0 and receive no gradient.

    In a graph of `torch.compile`, `recipe` is a name, TOML or a `Recipe`; make one of a mapping outside.

    Raises `lockstep.Error`: a column that is missing or has the wrong shape or type; a live value outside
    its domain (`argument`, `index`).
    """
    if not isinstance(logp, Tensor) or logp.is_sparse:
        check_tensor("logp", logp)
    if isinstance(credit, Tensor):
        credit = Credit(advantage=credit, per_token=credit.shape == logp.shape and credit.dim() == 2)
    elif not isinstance(credit, Credit):
        raise error("credit", f" is a {type(credit).__name__}: expected a Credit or a tensor")
    columns = {"logp": logp, **{name: tensor for name, tensor in columns.items() if tensor is not None}}
    if positive_logp != "error":
        columns = bounded(columns, positive_logp)
    if not columns.keys() <= _KNOWN:
        unknown = min(columns.keys() - _KNOWN)
        raise error(unknown, f" is not a column that a loss reads: expected one of {', '.join((*_ACTIVE, *_COLUMNS))}")
    for name in _ACTIVE:
        if name in columns and getattr(columns[name], "dtype", None) != torch.float32:
            check_tensor(name, columns[name])
            columns[name] = columns[name].float()
    if type(group_size) is not int:
        # A tensor would be a key of a cache by its identity.
        group_size = 0 if group_size is None else positive("group_size", group_size)
    # Whether anything observes dispatched calls.
    if not (torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack()):
        own = _recipe(recipe)
        if on_error == "raise":
            return _directly(own, credit, group_size, metrics, columns, wait)
        return _or_nan(on_error, own, credit, group_size, metrics, columns)
    if on_error != "raise":
        raise error("on_error", f" is {on_error!r}: expected 'raise' in a graph, which cannot catch exceptions")
    if isinstance(recipe, Recipe):
        recipe = recipe.toml
    elif not isinstance(recipe, str):
        recipe = json.dumps(_nested(recipe))
    of_credit = [getattr(credit, name) for name in _CREDIT]
    given = [columns.get(name) for name in (*_ACTIVE, *_COLUMNS)]
    active, constant = given[: len(_ACTIVE)], given[len(_ACTIVE) :]
    out = torch.ops.lockstep.loss(recipe, group_size, credit.per_token, metrics, *active, *of_credit, *constant)
    return Loss(out[0], out[1], out[2], out[5], None)


def metrics(stats: Any) -> dict[str, float]:
    """Returns the metrics of a loss by name, from its `stats`; waits for its device."""
    stats = stats() if isinstance(stats, partial) else stats
    if stats is None or not stats.numel():
        raise error("stats", " is empty: the loss was computed without metrics")
    # On the host they are final; from a device they are counts, sums and maxima.
    if stats.dtype == torch.float64:
        return dict(zip(_METRICS, stats.tolist()))
    bytes_ = stats.cpu()
    tokens = bytes_[:8].view(torch.int64).item()
    return _metrics(tokens, bytes_[24:-8].view(torch.float64).tolist(), bytes_[-8:].view(torch.float32).tolist())
