"""Log-probabilities and entropies where the vocabulary is spread over ranks (tensor parallel), with the same bits at any degree.

>>> out = vocab_parallel.statistics(logits, labels, group=tp_group, entropy=True)  # [N, V / ranks] of this rank
>>> loss = lockstep.torch.loss("dapo", credit, logp=out.logp, ...).loss  # the same on every rank
>>> loss.backward()  # `logits.grad` of this rank

Every rank holds a part of the vocabulary of every row, as behind a column-parallel output layer, and gets the
results of whole rows. This takes two all-reduces, a maximum of one int64 per token and a sum of four float64
(eight with `entropy`); two more, of five numbers per rank and of one, tell every rank about an error. The terms
of the sum are rounded to multiples of 2^-58, so every order of addition gives the same bits: log-probabilities,
entropies and gradients do not depend on the number of ranks, as they would with rounded sums of exponentials.
They differ from those of `lockstep.logits` by rounding.

`group` is a process group of torch.distributed (None: all ranks). gloo has run; NCCL has run with one rank on an
H200, **not on several GPUs yet**. Every rank of the group makes the same calls in the same order, with the same
labels. If one rank fails in a call, all ranks raise a `lockstep.distributed.RankError` that names it.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from . import _native
from ._operator import once
from .arrays import launch
from .columns import error
from .distributed import _NEVER, _agree, _Torch, _tried
from .logits import (
    _FORMATS, Statistics, _alarm, _check, _check_in_place, _gradient, _gradient_in_place, _in_32_bits, _launch_statistics, _named, _of_rows,
    _rows,
)  # fmt: skip

__all__ = ["statistics"]

_LARGEST = 1 << 24


def _reduce(engine: _Torch, tensor: Tensor, op: Any) -> None:
    """All-reduces in place."""
    there = tensor.to(engine.device)
    engine.dist.all_reduce(there, op=op, group=engine.group)
    if there is not tensor:
        tensor.copy_(there)


def _start(engine: _Torch, failure: Exception | None, own: tuple[float, ...]) -> int:
    """Returns where this rank's part of the vocabulary begins; refuses, on all ranks, what differs between them.

    `own` is this rank's number of rows, entropy, temperature, width, and start or −1.
    """
    rank, size = engine.dist.get_rank(engine.group), engine.dist.get_world_size(engine.group)
    numbers = [_NEVER] * (5 * size)
    numbers[rank::size] = own
    numbers = _agree(engine, failure, numbers)
    rows, entropy, temperatures, widths, given = (numbers[at : at + size] for at in range(0, len(numbers), size))
    for name, what, each in (("logits", " rows", rows), ("entropy", "", entropy), ("temperature", "", temperatures)):
        if len({*each}) > 1:
            values = ", ".join(f"{value:.9g}" for value in each)
            raise error(name, f" differs between ranks ({values}{what}): expected the same on all ranks of the group")
    if given.count(-1) not in (0, size):
        raise error("vocab_start", " is None on some ranks of the group: expected it on all or none")
    starts = [*accumulate(widths, initial=0)][:size] if -1 in given else given
    end = 0.0
    for start, whose, width in sorted(zip(starts, range(size), widths)):
        if start != end:
            message = f" of rank {whose} in the group is {start:.0f}: expected {end:.0f}, so that the parts cover the vocabulary once"
            raise error("vocab_start", message)
        end += width
    if end > _LARGEST:
        raise error("logits", f" have {end:.0f} entries per row over all ranks: expected at most {_LARGEST}")
    return int(starts[rank])


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, mask: Tensor | None, engine: _Torch, start: int | None, temperature: float, entropy: bool, inplace: bool
    ) -> tuple[Tensor, ...]:
        op, rank = engine.dist.ReduceOp, engine.dist.get_rank(engine.group)

        # All that can fail on one rank alone is tried before ranks meet: none waits for one that raised.
        def top() -> Any:
            _check("logits", logits)
            _check_in_place(logits, inplace)
            rows, width = _rows(logits, _FORMATS), logits.shape[-1]
            if start is not None and (not hasattr(start, "__index__") or not 0 <= start < _LARGEST):
                raise error("vocab_start", f" is {start!r}: expected 0 to {_LARGEST - 1}")
            # If the other ranks' parts are as wide.
            first = min(rank * width, max(_LARGEST - width, 0)) if start is None else start
            arrays = dict(logits=rows, loss_mask=_of_rows("mask", "u8", mask, logits))
            found = logits.new_empty(logits.shape[:-1], dtype=torch.int64)
            shard = (_FORMATS[rows.dtype], width, first)
            launch(_native.vocab_parallel_top, *shard, **arrays, largest=found)
            narrow = _in_32_bits(labels)
            own = (len(rows), bool(entropy), float(temperature), width, -1 if start is None else start)
            return own, shard, arrays, narrow, _of_rows("labels", "u32", narrow, logits), found

        done, failure = _tried(top)
        begins = _start(engine, failure, done[0] if done else (_NEVER,) * 5)
        _, shard, arrays, labels, tokens, largest = done
        if begins != shard[-1]:
            shard = (*shard[:-1], begins)
            launch(_native.vocab_parallel_top, *shard, **arrays, largest=largest)
        _reduce(engine, largest, op.MAX)

        sums = logits.new_empty((8 if entropy else 4, *logits.shape[:-1]), dtype=torch.float64)
        _, failure = _tried(
            lambda: launch(
                _native.vocab_parallel_sums, *shard, temperature, **arrays, labels=tokens, largest=largest, sums=sums, alarm=_alarm(logits)
            )
        )
        _agree(engine, failure, [])
        _reduce(engine, sums, op.SUM)

        # What is reduced is the same on every rank: if one refuses it, all do.
        out = _launch_statistics(
            logits, entropy, _native.vocab_parallel_statistics, temperature, largest=largest, sums=sums, loss_mask=arrays["loss_mask"]
        )
        ctx.start, ctx.temperature, ctx.entropy, ctx.inplace = shard[-1], temperature, entropy, inplace
        ctx.save_for_backward(logits, labels, mask, out[-1])
        ctx.mark_non_differentiable(*out[2:], *(() if entropy else out[1:2]))
        return out

    @staticmethod
    def backward(ctx: Any, *of: Any) -> Any:
        return once(_Statistics._gradient, ctx, *of)

    @staticmethod
    def _gradient(ctx: Any, of_logp: Tensor | None, of_entropy: Tensor | None, *_: Any) -> tuple[Any, ...]:
        logits, labels, mask, state = ctx.saved_tensors
        gradient = _gradient_in_place if ctx.inplace else _gradient
        of_entropy = of_entropy if ctx.entropy else None
        return gradient(logits, labels, mask, ctx.start, ctx.temperature, state, of_logp, of_entropy, True), *([None] * 7)


def statistics(
    logits: Tensor,
    labels: Tensor,
    *,
    group: Any = None,
    vocab_start: int | None = None,
    temperature: float = 1.0,
    entropy: bool = False,
    mask: Tensor | None = None,
    inplace_backward: bool = False,
) -> Statistics:
    """Computes what `lockstep.logits.statistics` does, from this rank's part `[N, V]` or `[B, T, V]` of the logits.

    `labels` and `top` of the result are numbers of the whole vocabulary. This rank's part begins at entry
    `vocab_start` of it, and the parts cover it once; None: they are in the order of the ranks, as Megatron's
    output layer leaves them. V may differ between ranks. Entries that pad the vocabulary are −∞. `mask` and
    `inplace_backward` are those of `lockstep.logits.statistics`; the gradient of this rank's logits needs no
    communication.

    Raises `lockstep.Error` on every rank: a row with NaN, +∞ or nothing but −∞; a token that no rank has, or
    that its row forbids (index of the row); wrong shapes; a temperature outside 1e-6 to 1e6; more than 2^24
    entries in the vocabulary; parts that overlap or leave a gap; a number of rows, `entropy` or `temperature`
    that differs between ranks.
    """
    return _named(_Statistics.apply(logits, labels, mask, _Torch(group), vocab_start, temperature, entropy, inplace_backward), entropy)
