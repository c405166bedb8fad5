"""Reinforcement-learning maths for LLM post-training, with the same bits on every machine.

>>> import numpy as np, lockstep
>>> logp = np.array([-0.5, -1.0, -0.2, -2.0], dtype=np.float32)
>>> batch = dict(cu_seqlens=[0, 2, 4], cu_groups=[0, 2], logp_old=logp, logp=logp)
>>> credit = lockstep.advantages("dapo", rewards=[1.0, 0.0], **batch)
>>> loss = lockstep.loss("dapo", credit, **batch)
>>> loss.coef.shape, loss.metrics["ratio_mean"]
((4,), 1.0)

Arrays are NumPy's or torch's, on a CPU or a GPU, packed (`[N]` with `cu_seqlens`) or padded (`[B, T]`);
results are of the same kind. `lockstep.torch.loss` is differentiable. `lockstep.names()` lists the recipes,
and `lockstep.explain(name)` says what one reads and does.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from math import isfinite
from typing import Any

from ._error import LockstepError
from ._native import Device, Moments, Plan, Recipe, Totals, metrics as _metrics, names, version as __version__
from .columns import COLUMNS, Batch, Column, error as _error

Error = LockstepError

__all__ = [
    "COLUMNS", "Column", "Credit", "Device", "Error", "Loss", "Moments", "Plan", "Recipe", "Totals",
    "advantages", "explain", "loss", "names", "recipe", "step",
]  # fmt: skip


@lru_cache(maxsize=256)
def _read(source: str, as_json: bool) -> Recipe:
    return Recipe.from_json(source) if as_json else Recipe(source)


def recipe(source: str | Mapping[str, Any] | Recipe) -> Recipe:
    """Returns a recipe from its name, from TOML, or from a mapping with TOML's keys.

    A mapping looks like `{"extends": "dapo", "gate.clip_ratio_c": 3.0}`.

    Raises `Error`: an unknown name, an unknown key, or choices that cannot be combined.
    """
    if isinstance(source, Recipe):
        return source
    if isinstance(source, Mapping):
        import json  # A third of the time that importing the package takes.

        return _read(json.dumps(_nested(source)), True)
    if not isinstance(source, str):
        raise _error("recipe", f" is {type(source).__name__}: expected a name, TOML, a mapping or a Recipe")
    return _read(source, False)


# Configurations that hold a recipe can be copied and sent to workers.
copyreg.pickle(Recipe, lambda own: (recipe, (own.toml,)))


def _leaves(source: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in source.items():
        if not isinstance(key, str):
            raise _error("recipe", f" has the key {key!r}: expected a string")
        here = (*path, *key.split("."))
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, here)
        else:
            yield here, value


def _nested(source: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the mapping as tables: a key `a.b` is `b` of the table `a`. Of two values of a key, the later counts."""
    out: dict[str, Any] = {}
    for path, value in _leaves(source):
        table, (*tables, last) = out, path
        for name in tables:
            table = table.setdefault(name, {}) if isinstance(table, dict) else table
        if not isinstance(table, dict) or isinstance(table.get(last), dict):
            raise _error("recipe", f" has the key {'.'.join(path)!r} as a value and as a table")
        value = value.item() if hasattr(value, "item") else value
        if value is None or isinstance(value, float) and not isfinite(value):
            raise _error("recipe", f" has {'.'.join(path)} = {value}: expected a finite number, a string or a table (TOML can say inf)")
        table[last] = value
    return out


@lru_cache(maxsize=64)
def _device(name: str, threads: int | None) -> Device:
    return Device(name, threads)


class _Planned:
    """A plan with its properties, read once."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.bytes = plan, plan.workspace_bytes
        self.results = {name: (type_, count, at) for name, type_, count, at in plan.results}
        self.run = plan.run
        self.reads = frozenset(column.number for column in COLUMNS.values() if plan.reads(column.number))


@lru_cache(maxsize=256)
def _plan(recipe: Recipe, calls: str, size: tuple[int, int, int], metrics: bool) -> _Planned:
    return _Planned(recipe.plan(calls, list(size), metrics, False))


class _Results:
    """Results of a plan by name, cut out of its workspace on access."""

    losses: tuple[float, float | None] | None = None
    """Loss and value loss as numbers, on a CPU."""
    pending: Callable[[], None] | None = None
    """Waits, and raises the error that the launches reported; None if the call has already waited."""

    def __init__(self, of: Any, planned: _Planned, block: Any) -> None:
        self.of, self.places, self.block = of, planned.results, block

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def __getitem__(self, name: str) -> Any:
        return self.of.result(self.block, *self.places[name])

    def get(self, name: str) -> Any:
        return self[name] if name in self.places else None


@dataclass
class Credit:
    """The credit of a batch of rollouts: advantages and what comes with them, for `loss`."""

    advantage: Any
    """Advantages: `[S]`, or per token (`[N]`, `[B, T]`) if `per_token`."""
    per_token: bool = False
    loss_mask: Any = None
    """The tokens that remain after filtering and rejection; None: all of them."""
    weights: Any = None
    """Weights per token; None: 1."""
    returns: Any = None
    """Regression targets of a critic, per token."""
    keep: Any = None
    """1 where the sequence remains, `[S]`; the others have advantage 0."""
    role_values: Any = None
    """SPIRAL: the roles' moving averages, `[K]`, for the next batch's column `role_values`."""
    pending: Callable[[], None] | None = field(default=None, repr=False, compare=False)
    """Called by `check`."""

    def check(self) -> None:
        """Waits for a call made with `wait=False`, and raises `Error` if it met a bad value.

        After a call that waited, it does nothing.
        """
        if self.pending is not None:
            self.pending()

    def __getstate__(self) -> dict[str, Any]:
        """Returns the arrays, checked: a copy has nothing to wait for."""
        self.check()
        return {**self.__dict__, "pending": None}


@dataclass
class Loss:
    """A loss and its gradients, in closed form."""

    loss: Any
    """Policy, KL and entropy terms, a float64 number."""
    coef: Any
    """dL/dlogp, per token."""
    entropy_coef: Any = None
    """dL/d(entropy), per token, if the recipe has an entropy term."""
    value_loss: Any = None
    value_gradient: Any = None
    """dL/d(values), per token, if the recipe has a value loss."""
    _results: tuple[Batch, _Results] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The metrics by name; empty if none were asked for. After a call with `wait=False`, it waits."""
        return {} if self._results is None else _said(*self._results)

    def check(self) -> None:
        """Waits for a call made with `wait=False`, and raises `Error` if it met a bad value.

        After a call that waited, it does nothing.
        """
        if self._results is not None and self._results[1].pending is not None:
            self._results[1].pending()

    def __getstate__(self) -> dict[str, Any]:
        """Returns the arrays and the metrics, checked. A copy has no `totals`: those are of the rows here."""
        self.check()
        return {**self.__dict__, "metrics": self.metrics, "_results": None}

    def totals(self) -> Totals:
        """Returns exact totals of the loss (without a critic's) and the metrics of these rows.

        Totals of shards add up to those of the batch, bit for bit, if each shard was given the `counts` of
        the whole batch. `lockstep.distributed` adds them over ranks.
        """
        if self._results is None:
            raise LockstepError("this loss has no totals: expected one returned by lockstep.loss or lockstep.step")
        return _totals(*self._results)


def _run(
    recipe: Recipe, calls: str, batch: Batch, credit: Credit | None, metrics: bool, coef: Any = None, wait: bool = True
) -> _Results:
    """Runs a plan for exactly this batch and returns its results by name.

    `coef` is an array for dL/dlogp instead of the workspace. On a GPU without `wait`, `check` asks for errors
    later.
    """
    of = batch.library
    planned = _plan(recipe, calls, batch.size, metrics)
    block, address = of.workspace(planned.bytes)
    kept: list[Any] = []
    results = _Results(of, planned, block)
    device, stream = _device(of.name, of.threads), of.stream
    if not wait and of.name != "cpu":
        results.pending = partial(_alarms, planned.plan, device, stream, (address, planned.bytes), block)
    try:
        results.losses = planned.run(
            device,
            stream,
            batch.places(planned.reads),
            _places(credit, batch, kept) if calls == "loss" else None,
            (address, planned.bytes),
            None if coef is None else of.place(coef),
            wait,
        )
    except LockstepError as fault:
        batch.check_signs(fault.argument)
        raise
    return results


def _alarms(plan: Plan, device: Device, stream: int, at: tuple[int, int], _block: Any) -> None:
    """Waits, and raises the error that a run reported in its workspace; `_block` keeps that memory until then."""
    plan.alarms(device, stream, at)


_CREDIT = {
    name: Column(-1, f"credit.{name}", type_, "", "")
    for name, type_ in (("advantage", "f32"), ("loss_mask", "u8"), ("weights", "f32"), ("returns", "f32"))
}


def _places(credit: Any, batch: Batch, kept: list[Any]) -> tuple[Any, ...]:
    """Returns the addresses of a credit's arrays, and keeps converted copies alive in `kept`."""
    if not isinstance(credit, Credit):
        raise _error("credit", f" is {type(credit).__name__}: expected a Credit")
    of = batch.library

    def place(name: str) -> tuple[int, int] | None:
        array = getattr(credit, name)
        if array is None:
            if name == "advantage":
                raise _error("credit.advantage", " is None: expected one per sequence, or per token with `per_token`")
            return None
        column = _CREDIT[name]
        if not of.fits(array, column.type):
            array = of.cast(column, array)
            kept.append(array)
        batch.check_shape(column.name, array, name != "advantage" or credit.per_token)
        return of.place(array)

    return place("advantage"), credit.per_token, place("loss_mask"), place("weights"), place("returns")


def _credit(recipe: Recipe, batch: Batch, results: _Results) -> Credit:
    def of_tokens(name: str) -> Any:
        return batch.by_tokens(results[name]) if name in results else None

    advantage, keep = results["advantage"], results.get("keep")
    if keep is not None and not recipe.per_token:
        batch.library.clear(advantage, keep)
    roles = None
    if "role_values" in results:
        known = batch.arrays.get("role_values")
        count = 1 + max(batch.library.numbers(batch.arrays["roles"])) if known is None else len(known)
        roles = results["role_values"][:count]
    return Credit(
        advantage=batch.by_tokens(advantage) if recipe.per_token else advantage,
        per_token=recipe.per_token,
        loss_mask=of_tokens("loss_mask"),
        weights=of_tokens("weights"),
        returns=of_tokens("returns"),
        keep=keep,
        role_values=roles,
        pending=results.pending,
    )


def _said(batch: Batch, results: _Results) -> dict[str, float]:
    numbers = batch.library.numbers
    if "sums" in results:
        tokens = numbers(results["counts"])[0] if "counts" in results else numbers(batch.arrays["counts"])[0]
        return _metrics(tokens, numbers(results["sums"]), numbers(results["maxima"]))
    if "metrics" in results:
        return dict(zip(_metrics(0, [], [0.0, 0.0]), numbers(results["metrics"])))
    return {}


def _loss(batch: Batch, results: _Results) -> Loss:
    of_tokens = {
        name: batch.by_tokens(results[name]) for name in ("coef", "entropy_coef", "value_gradient") if name in results
    }
    value_loss = _first(results.get("value_loss"))
    made = Loss(loss=results["loss"][0], value_loss=value_loss, **of_tokens, _results=(batch, results))
    if results.pending is None:
        _ = made.metrics  # Reading them costs no wait now.
    return made


def _totals(batch: Batch, results: _Results) -> Totals:
    of = batch.library
    rows = [None if name not in results else of.host(results[name]) for name in ("row_loss", "row_sums", "row_maxima")]
    row_loss, *metrics = (None if array is None else of.place(array) for array in rows)
    return Totals.of_rows(of.numbers(results["counts"]), row_loss, None if metrics[0] is None else tuple(metrics))


def _first(array: Any) -> Any:
    return None if array is None else array[0]


def advantages(
    recipe_: str | Mapping[str, Any] | Recipe, *, group_size: int | None = None, wait: bool = True, **columns: Any
) -> Credit:
    """Computes the advantages of a batch and what comes with them; call it once per batch.

    `columns` are those that the recipe reads (`explain` lists them; docs/columns.md defines each), packed
    with `cu_seqlens` or padded. Responses to one prompt are adjacent: `cu_groups` holds the group boundaries,
    or `group_size` the size of every group; without either, the batch is one group.

    With `wait=False`, a call on a GPU only launches on torch's current stream: the offsets you pass are
    trusted, and `Credit.check` reports later whether a value was bad, among them a NaN that the recipe's
    `correction.nan_rollout = "one"` would replace. A recipe with a rule that runs on the host waits anyway;
    `lockstep explain` on the command line names it.

    Raises `Error`: missing columns, each with the stage that needs it; a wrong length or value (`argument`,
    `index`).
    """
    own, batch = recipe(recipe_), Batch(columns, group_size)
    return _credit(own, batch, _run(own, "advantages", batch, None, False, wait=wait))


def loss(
    recipe_: str | Mapping[str, Any] | Recipe,
    credit: Credit,
    *,
    metrics: bool = True,
    group_size: int | None = None,
    wait: bool = True,
    **columns: Any,
) -> Loss:
    """Computes loss, dL/dlogp and metrics of a batch or minibatch with its `Credit`; call it once per update.

    `wait` is that of `advantages`; `Loss.check` reports later, and `Loss.metrics` waits.

    Raises `Error`, as `advantages` does.
    """
    own, batch = recipe(recipe_), Batch(columns, group_size)
    return _loss(batch, _run(own, "loss", batch, credit, metrics, wait=wait))


def step(
    recipe_: str | Mapping[str, Any] | Recipe,
    *,
    metrics: bool = True,
    group_size: int | None = None,
    wait: bool = True,
    **columns: Any,
) -> tuple[Credit, Loss]:
    """Runs both calls at once, for training loops with one update per batch. `wait` is that of `loss`."""
    own, batch = recipe(recipe_), Batch(columns, group_size)
    results = _run(own, "both", batch, None, metrics, wait=wait)
    return _credit(own, batch, results), _loss(batch, results)


def explain(recipe_: str | Mapping[str, Any] | Recipe) -> str:
    """Describes what a recipe reads, what it asks of the training loop, and its choices as TOML."""
    own = recipe(recipe_)
    lines = [f"recipe {own.name}", "", "reads:"]
    for column, stage, call, required, other in own.needs():
        what = f"{column}{f' or {other}' if other else ''}"
        lines.append(f"  {what:<28} {call}, {stage}{'' if required else ', if there'}: {COLUMNS[column].meaning}")
    lines += ["", "asks of the training loop:"] if own.duties() else []
    lines += [f"  {name}: {meaning}" for name, meaning in own.duties()]
    return "\n".join([*lines, "", own.toml])
