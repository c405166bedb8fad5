"""Shared code of the trainer adapters.

It provides recipes by name, errors in the trainer's own terms, and losses with the trainer's denominators.

An adapter states its trainer's name, the columns that it passes, and the trainer's own features for our
stages. The adapter translates the trainer's keys to a recipe; a recipe given by name, or by the file in
`LOCKSTEP_RECIPE`, is used unchanged except for `[aggregation]`: the trainer divides the loss, so that shards
and micro-batches add up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from . import Credit, Error, Recipe, advantages, names, recipe
from .columns import error, library
from .faults import bounded, of_values
from .torch import Loss, loss, metrics

__all__ = [
    "Host", "by_name", "by_rewards_alone", "clip_low", "corrected", "file", "items", "mean", "metrics", "needed",
    "of_sequences", "options", "replace", "sums",
]  # fmt: skip


@cache
def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise Error(f"lockstep:file: LOCKSTEP_RECIPE is {path!r}: {error.strerror}") from None


def file() -> str:
    """Returns the TOML of the file named by the environment variable `LOCKSTEP_RECIPE`."""
    path = os.environ.get("LOCKSTEP_RECIPE")
    if not path:
        raise Error("lockstep:file: LOCKSTEP_RECIPE is not set: expected the path of a TOML recipe, also in Ray's workers")
    return _text(path)


class Host:
    """A trainer.

    Args:
        name: the trainer's name in messages.
        own: by (call, stage), the trainer's key or words for a stage that it handles itself, for messages.
        passed: by call, the columns that the trainer passes.
    """

    def __init__(self, name: str, own: Mapping[tuple[str, str], str], passed: Mapping[str, frozenset[str]]) -> None:
        self.name, self.own, self.passed = name, own, passed

    @cache
    def recipe(self, name: str, source: Any, call: str = "loss") -> Recipe:
        """Returns the recipe called `name`, if `call` reads only columns that are passed.

        `source` is as for `lockstep.recipe`, with a mapping as its `items`.
        """
        own, passed = recipe(_mapping(source)), self.passed[call]
        refused: dict[str, str] = {}
        for column, stage, of, required, other in own.needs():
            # Without the correction that belongs to it, a loss would be a different loss.
            if not required or (of != call and stage != "correction"):
                continue
            has = self.own.get((of, stage))
            if not {column, other} & passed:
                refused[stage] = f"{stage} reads {column}, which {self.name} does not pass" + (f": it has {has}" if has else "")
            elif stage == "correction" and call == "loss":
                refused[stage] = f"{stage} runs before the loss, in {self.name} itself: it has {has}"
        if refused:
            raise Error(f"lockstep:{name}: {'; '.join(refused.values())}")
        return own

    def loss(self, name: str, aggregation: str, keys: Callable[[], Mapping[str, Any]]) -> Recipe:
        """Returns the recipe of a loss whose sum the trainer divides; from `keys` if `name` is empty."""
        source: Any = keys() if not name else file() if name == "file" else name
        key = source if isinstance(source, str) else items(source)
        return self._summed(name or str(source["extends"]), key, aggregation)

    @cache
    def _summed(self, name: str, source: Any, aggregation: str) -> Recipe:
        summed = {"aggregation.mode": aggregation, "aggregation.horizon": "none"}
        source = _mapping(source)
        if isinstance(source, str):
            if name != "file" and source not in names():
                raise _unknown(name)
            source = _toml(source) if name == "file" else {"extends": source}
        return self.recipe(name, items({**source, **summed}))


def items(source: Mapping[str, Any]) -> Any:
    """Converts a mapping to a value that can be a cache key."""

    def frozen(value: Any) -> Any:
        if isinstance(value, Mapping):
            return ("table", tuple((key, frozen(item)) for key, item in value.items()))
        return ("list", tuple(frozen(item) for item in value)) if isinstance(value, (list, tuple)) else value

    return frozen(source)


def _mapping(source: Any) -> Any:
    if not isinstance(source, tuple):
        return source
    kind, items = source
    return {key: _mapping(item) for key, item in items} if kind == "table" else [_mapping(item) for item in items]


def _toml(text: str) -> dict[str, Any]:
    try:
        import tomllib
    except ImportError:
        raise Error("lockstep:file: a recipe from a file needs Python 3.11 or later (tomllib)") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Error(f"lockstep:file: {error}") from None


def options(on_error: str | None = None, positive_logp: str | None = None) -> dict[str, Any]:
    """Returns the given options of `lockstep.torch.loss`.

    For None, the environment variables `LOCKSTEP_ON_ERROR` and `LOCKSTEP_POSITIVE_LOGP` apply.
    """
    found = {
        "on_error": on_error or os.environ.get("LOCKSTEP_ON_ERROR"),
        "positive_logp": positive_logp or os.environ.get("LOCKSTEP_POSITIVE_LOGP"),
    }
    return {name: value for name, value in found.items() if value}


def of_sequences(advantages: Tensor, mask: Tensor) -> Tensor:
    """Returns the advantage of each sequence, `[B]`, from those of its tokens, `[B, T]`, which must be equal."""
    endless = torch.full_like(advantages, torch.inf)
    most, least = torch.where(mask, advantages, -endless).amax(1), torch.where(mask, advantages, endless).amin(1)
    if bool((most > least).any()):
        row = (most > least).nonzero()[0].item()
        raise error("advantages", f"[{row}] has several values: expected one per sequence, by whose sign the off-policy mask decides", row)
    return torch.where(mask.any(1), most, 0.0)


def sums(own: Recipe, credit: Credit, *, logp: Tensor, **columns: Any) -> Loss:
    """Computes a loss with all counts 1: a sum over tokens or sequence means, which the trainer divides."""
    of: Any = library([logp])
    ones = of.shared("ones", lambda: torch.ones(3, dtype=torch.int64, device=logp.device))
    return loss(own, credit, logp=logp, counts=ones, **options(), **columns)


def corrected(extends: str, correction: Mapping[str, Any], logp_old: Tensor, logp_rollout: Tensor, **batch: Any) -> Credit:
    """Computes the weights of a rollout correction, and what its rejections leave of `loss_mask`.

    Either is None if the correction has no such part.
    """
    own = {"extends": extends, "advantage.estimator": "reward", "advantage.whiten": "none", "correction": correction}
    offsets = batch.get("cu_seqlens")
    rows = len(logp_old) if offsets is None else len(offsets) - 1
    columns = dict(logp_old=logp_old.detach().float(), logp_rollout=logp_rollout.detach().float(), **batch)
    said = options()
    columns = bounded(columns, said.get("positive_logp", "error"))
    try:
        return advantages(own, rewards=torch.zeros(rows, device=logp_old.device), **columns)
    except Error as error:
        if said.get("on_error") != "nan" or not of_values(error):
            raise
        # The loss refuses these weights and reports it.
        return Credit(advantage=None, weights=torch.full_like(logp_old, float("nan")))


@cache
def by_rewards_alone(own: Recipe) -> bool:
    """Returns whether advantages are independent of the lengths of the responses.

    It tries groups of mixed, of right and of mostly wrong responses, of a token each and of up to two million.
    """
    rewards = torch.tensor([1, 0, 0.5, 2, 1, 0, 0, 1, *[1] * 8, *[0] * 7, 1])
    one, grows = torch.arange(25), torch.tensor([0, *[1, 30, 5_000, 2, 2**21, 700, 9, 60_000] * 3]).cumsum(0)
    made = [advantages(own, rewards=rewards, cu_seqlens=lengths, group_size=8) for lengths in (one, grows)]
    return not own.per_token and made[0].loss_mask is None and torch.equal(made[0].advantage, made[1].advantage)


def clip_low(below: float) -> float:
    """Returns `clip_ratio_low` for a trainer's lower bound 1 - `below`: at or below 0 it never applies."""
    return min(below, 1.0)


def mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the tokens in `mask`, in float64; 0 if there are none. Masked entries may hold anything."""
    sum_ = torch.where(mask, values.detach().double(), 0.0).sum()
    return sum_ / mask.sum().clamp(min=1)


def _unknown(name: str) -> Error:
    return Error(f"no recipe {name!r}: expected one of lockstep.names(), or `file` for LOCKSTEP_RECIPE")


def by_name(**functions: Callable[..., Any]) -> Callable[[str], Any]:
    """Returns a module's `__getattr__` for function paths: `f:name` is `f` with the recipe of that name."""

    def get(attribute: str) -> Any:
        function, colon, name = attribute.partition(":")
        if not colon or function not in functions:
            raise AttributeError(attribute)
        if name != "file" and name not in names():
            raise Error(f"{attribute}: {_unknown(name)}")
        return partial(functions[function], name=name)

    return get


def needed(module: Any, name: str) -> Any:
    """Returns the attribute `name` of a trainer's module; raises if the module lacks it."""
    if not hasattr(module, name):
        raise Error(f"{module.__name__} has no {name}: Lockstep does not support this version")
    return getattr(module, name)


def replace(module: Any, name: str, by: Any) -> None:
    """Replaces the attribute `name` of a module with `by`."""
    needed(module, name)
    setattr(module, name, by)
