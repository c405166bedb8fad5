"""Loss, metrics, whitening and counts of a batch spread over ranks, with the same bits for any distribution.

>>> counts = distributed.counts(loss_mask=mask)  # of the batch, on every rank
>>> credit = distributed.whiten(lockstep.advantages(recipe, ...), loss_mask=mask)  # by the batch's moments
>>> loss = lockstep.loss(recipe, credit, counts=counts, ...)  # this rank's rows
>>> totals = distributed.reduce(loss.totals)  # `totals.loss`, `totals.metrics` of the batch

Sums over rows are integers wide enough for every number, so nothing is rounded before the end and the order
does not matter; an all-reduce of floats gives different values for different numbers of ranks. A reduction sends
8 kB over the network: one all-reduce adds integers, one takes a maximum.

`group` is a process group of torch.distributed (None: all ranks), or a communicator of mpi4py. For a group
whose backend is NCCL, the integers are on the current GPU; **that has not run on a GPU yet**, gloo and MPI
have. On Ray, tasks return `totals.to_bytes()`, and the driver merges them (`merge`).

These guarantees cover loss, metrics, whitened advantages, counts and `coef`. DDP or FSDP sums parameter
gradients, and those sums round. Every rank of the group makes the same calls in the same order. If one rank
fails in a call, all ranks raise a `RankError` that names it, and no rank hangs; a rank that dies is left to
the engine's timeout.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from . import Credit, Error, Loss, _totals
from ._native import Moments, Totals, counts as _counts
from .columns import Batch, Column, error, library

__all__ = ["Moments", "RankError", "Totals", "count", "counts", "merge", "moments", "reduce", "totals", "whiten"]

_NEVER = float("-inf")


class RankError(Error):
    """An error on one rank of a group, raised on every rank of the group."""

    rank: int
    """The failing rank: its global rank in torch.distributed, its rank in the communicator in MPI."""


class _Engine(Protocol):
    rank: int

    def all_reduce(self, buffer: bytearray, of_integers: bool) -> None:
        """Sums integers, or takes the maximum of doubles, over ranks, in place."""

    def broadcast(self, message: Any, rank: int) -> Any:
        """Returns the `message` of one rank."""


class _Torch:
    def __init__(self, group: Any) -> None:
        import torch
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_initialized():
            raise Error("torch.distributed is not initialised: call torch.distributed.init_process_group, or pass an mpi4py communicator as `group`")
        self.torch, self.dist, self.group, self.rank = torch, dist, group, dist.get_rank()
        if self.dist.get_rank(group) < 0:
            raise Error(f"`group` does not contain rank {self.rank}")
        nccl = dist.get_backend(group) == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")

    def all_reduce(self, buffer: bytearray, of_integers: bool) -> None:
        op = self.dist.ReduceOp.SUM if of_integers else self.dist.ReduceOp.MAX
        own = self.torch.frombuffer(buffer, dtype=self.torch.int64 if of_integers else self.torch.float64)
        there = own.to(self.device)
        self.dist.all_reduce(there, op=op, group=self.group)
        own.copy_(there)

    def broadcast(self, message: Any, rank: int) -> Any:
        messages = [message]
        self.dist.broadcast_object_list(messages, src=rank, group=self.group, device=self.device)
        return messages[0]


class _MPI:
    def __init__(self, communicator: Any) -> None:
        from mpi4py import MPI

        self.mpi, self.communicator, self.rank = MPI, communicator, communicator.Get_rank()

    def all_reduce(self, buffer: bytearray, of_integers: bool) -> None:
        mpi = self.mpi
        type_, op = (mpi.INT64_T, mpi.SUM) if of_integers else (mpi.DOUBLE, mpi.MAX)
        self.communicator.Allreduce(mpi.IN_PLACE, [buffer, type_], op=op)

    def broadcast(self, message: Any, rank: int) -> Any:
        return self.communicator.bcast(message, root=rank)


def _engine(group: Any) -> _Engine:
    return _MPI(group) if type(group).__module__.startswith("mpi4py") else _Torch(group)


def _agree(engine: _Engine, failure: Exception | None, numbers: list[float]) -> list[float]:
    """Returns the maxima of `numbers` over ranks; if a rank failed, raises its error on all of them."""
    buffer = bytearray(struct.pack(f"={1 + len(numbers)}d", _NEVER if failure is None else engine.rank, *numbers))
    engine.all_reduce(buffer, of_integers=False)
    failed, *maxima = struct.unpack(f"={1 + len(numbers)}d", buffer)
    if failed == _NEVER:
        return maxima
    rank = int(failed)
    what = "" if isinstance(failure, Error) else f"{type(failure).__name__}: "
    # An exception of other code may have any attributes, and no text.
    said = [getattr(failure, name, None) for name in ("argument", "index")]
    said = [value if isinstance(value, (str, int)) else None for value in said]
    message, argument, index = engine.broadcast((f"{what}{_tried(lambda: str(failure))[0]}", *said), rank)
    raised = RankError(f"rank {rank}: {message}")
    raised.rank, raised.argument, raised.index = rank, argument, index
    raise raised from failure


def _tried(make: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return make(), None
    except Exception as failure:  # noqa: BLE001 - whatever it is, the other ranks are waiting
        return None, failure


# The types that ranks can add.
_Sum = TypeVar("_Sum", Totals, Moments, "_Counts")


def reduce(totals: _Sum | Callable[[], _Sum], group: Any = None) -> _Sum:
    """Adds the `Totals` or `Moments` of all ranks, and returns the sum on every rank.

    The result equals that of `merge`, bit for bit, for up to 2^31 ranks.

    `totals`: this rank's (`Totals()` of a rank without rows), or a function without arguments that makes
    them. If the function raises, all ranks raise: with `reduce(lambda: lockstep.loss(...).totals())` no rank
    waits for one whose batch is bad.
    """
    sums: _Sum = _reduced(totals, _engine(group))
    return sums


def _reduced(totals: Any, engine: _Engine) -> Any:
    def limbs() -> tuple[Any, bytearray, list[float]]:
        own: Any = totals() if callable(totals) else totals
        if not hasattr(own, "limbs"):
            raise error("totals", f" is {type(own).__name__}: expected Totals or Moments, or a function that returns them")
        return type(own), *own.limbs()

    made, failure = _tried(limbs)
    kind, added, maxima = made or (Totals, bytearray(), [_NEVER, _NEVER])
    # The length must be the same on every rank, or the sum would hang.
    length: list[float] = [len(added), -len(added)] if made else [_NEVER, _NEVER]
    agreed = _agree(engine, failure, [*maxima, *length])
    most, least = agreed[2:]
    if most != -least:
        raise Error(f"the ranks of the group reduce different data, {-least:.0f} to {most:.0f} bytes: every rank must make the same calls in the same order")
    engine.all_reduce(added, of_integers=True)
    return kind.from_limbs(added, agreed[:2])


def merge(parts: Iterable[bytes | Totals | Moments]) -> Totals | Moments:
    """Merges parts of a batch in any order: `Totals` or `Moments`, or their `to_bytes()` from Ray tasks."""
    kinds: dict[bytes, type[Totals] | type[Moments]] = {b"LXPT": Totals, b"LXMM": Moments}
    merged: Totals | Moments | None = None
    for index, part in enumerate(parts):
        if isinstance(part, (bytes, bytearray)):
            kind = kinds.get(bytes(part[:4]))
            if kind is None:
                raise error("parts", f"[{index}] is {len(part)} bytes that begin with {bytes(part[:4])!r}: expected to_bytes() of Totals or Moments", index)
            part = kind.from_bytes(bytes(part))
        if not isinstance(part, (Totals, Moments)) or merged is not None and type(part) is not type(merged):
            expected = "Totals or Moments, or their bytes" if merged is None else type(merged).__name__
            raise error("parts", f"[{index}] is {type(part).__name__}: expected {expected}", index)
        merged = part if merged is None else merged + part
    if merged is None:
        raise error("parts", " is empty: expected at least one part")
    return merged


def totals(loss: Any) -> Totals:
    """Returns the exact totals of a loss of `lockstep.loss`, `lockstep.step` or `lockstep.torch.loss`.

    A loss of `lockstep.torch.loss` needs eager mode and `metrics=True`.
    """
    if isinstance(loss, Loss):
        return loss.totals()
    rows = getattr(getattr(loss, "stats", None), "args", None)
    if rows is None:
        raise error("loss", " has no row sums: expected a Loss with metrics that was not traced by torch.compile")
    return _totals(*rows)


class _Counts:
    """Three counts."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.numbers = tuple(numbers)

    def limbs(self) -> tuple[bytearray, tuple[float, float]]:
        return bytearray(struct.pack("=3q", *self.numbers)), (_NEVER, _NEVER)

    @classmethod
    def from_limbs(cls, limbs: bytearray, _: Any) -> _Counts:
        return cls(struct.unpack("=3q", limbs))


def _batch(columns: dict[str, Any]) -> Batch:
    if all(columns.get(name) is None for name in ("loss_mask", "cu_seqlens", "logp")):
        raise error("loss_mask", " is missing: expected `loss_mask` or another column of tokens, or `cu_seqlens`")
    return Batch(columns, None)


def count(**columns: Any) -> tuple[int, int, int]:
    """Counts live tokens, sequences with live tokens, and all sequences of this rank's rows.

    Pass `loss_mask` (padded, or packed with `cu_seqlens`), or only `cu_seqlens`.
    """
    batch = _batch(columns)
    of, arrays = batch.library, batch.arrays
    offsets, mask = (None if array is None else of.host(array) for array in (arrays["cu_seqlens"], arrays.get("loss_mask")))
    tokens, nonempty, sequences = _counts(of.place(offsets), None if mask is None else of.place(mask))
    return tokens, nonempty, sequences


def counts(group: Any = None, **columns: Any) -> Any:
    """Returns the column `counts`, `[3]`, of a batch spread over ranks.

    It is an array of the columns' library, on their device. `columns` are those of `count`.
    """
    sums = reduce(lambda: _Counts(count(**columns)), group).numbers
    of: Any = library(columns.values())
    if hasattr(of, "torch"):
        return of.torch.tensor(sums, dtype=of.torch.int64, device=of.device)
    return of.np.array(sums, dtype=of.np.uint64)


class _Values:
    """Advantages and their layout, on the host."""

    def __init__(self, credit: Any, loss_mask: Any, cu_seqlens: Any) -> None:
        self.credit = credit if isinstance(credit, Credit) else None
        values = credit.advantage if self.credit else credit
        mask = loss_mask if self.credit is None or self.credit.loss_mask is None else self.credit.loss_mask
        of: Any = library([values])
        self.of, rows = of, of
        self.array = of.cast(Column(-1, "advantage", "f32", "", ""), values)
        shape, name = of.shape(self.array), "credit.advantage" if self.credit else "credit"
        self.per_token = self.credit.per_token if self.credit else len(shape) == 2
        if len(shape) not in ((1, 2) if self.per_token else (1,)):
            raise error(name, f" has shape {list(shape)}: expected [S], or per token {'(`per_token`) ' if self.credit else ''}[B, T]")
        if len(shape) == 2 and cu_seqlens is not None:
            raise error("cu_seqlens", f" is for packed columns, but the advantages are padded, {list(shape)}")
        tokens = of.place(self.array)[1]
        if self.per_token:
            # The row of a token does not matter.
            offsets = of.offsets(tokens, 1)
            mask = None if mask is None else of.cast(Column(-1, "loss_mask", "u8", "", ""), mask)
            if mask is not None and of.shape(mask) != of.shape(self.array):
                raise error("loss_mask", f" has shape {list(of.shape(mask))}: expected {list(of.shape(self.array))}, like the advantages")
        else:
            batch = _batch(dict(loss_mask=mask, cu_seqlens=cu_seqlens))
            rows, offsets, mask = batch.library, batch.arrays["cu_seqlens"], batch.arrays.get("loss_mask")
        self.kept = [of.host(self.array), rows.host(offsets), None if mask is None else rows.host(mask)]
        offsets, mask = (None if array is None else rows.place(array) for array in self.kept[1:])
        # Addresses: `self` must outlive their use.
        self.places: tuple[Any, Any] = of.place(self.kept[0]), (self.per_token, offsets, mask)

    def moments(self, by: str) -> Moments:
        return Moments.of(*self.places, by)

    def whitened(self, by: str, moments: Moments) -> Any:
        of = self.of
        out = of.empty_like(self.kept[0])
        moments.whiten(*self.places, by, of.place(out))
        out = out.to(self.array.device) if hasattr(of, "torch") else out
        return replace(self.credit, advantage=out) if self.credit else out


def moments(credit: Any, by: str = "verl", *, loss_mask: Any = None, cu_seqlens: Any = None) -> Moments:
    """Returns the exact moments of this rank's advantages, counted as by `whiten` with the same arguments."""
    return _Values(credit, loss_mask, cu_seqlens).moments(by)


def whiten(
    credit: Any,
    by: str = "verl",
    group: Any = None,
    *,
    moments: Moments | None = None,
    loss_mask: Any = None,
    cu_seqlens: Any = None,
) -> Any:
    """Centres and scales the advantages of a `Credit` by their mean and standard deviation over all ranks.

    Moments are counted on the host. The credit comes from a recipe that does not whiten by itself: GRPO with
    `advantage.norm_by_std = false`, whitened, is REINFORCE++'s baseline.

    Args:
        credit: a `Credit`, or advantages: per sequence `[S]`, or per token `[B, T]`. Masked tokens, and
            sequences whose advantage is NaN, become 0.
        by: a value of the recipe's key `advantage.whiten`, such as `verl` (each sequence counts once for each
            live token) or `trl` (once).
        moments: the moments of all ranks if known, as on Ray: `merge` of the ranks' `moments`. Nothing is
            sent then.
        loss_mask, cu_seqlens: the rows of per-sequence advantages, padded or packed. The credit's own mask
            takes precedence.

    Raises `Error`, on all ranks: values that are not finite, lengths that disagree.
    """
    if moments is not None:
        if not isinstance(moments, Moments):
            raise error("moments", f" is {type(moments).__name__}: expected Moments")
        return _Values(credit, loss_mask, cu_seqlens).whitened(by, moments)
    values: list[_Values] = []

    def own() -> Moments:
        values.append(_Values(credit, loss_mask, cu_seqlens))
        return values[0].moments(by)

    everywhere = reduce(own, group)
    whitened, failure = _tried(lambda: values[0].whitened(by, everywhere))
    _agree(_engine(group), failure, [])
    return whitened
