"""Rows whose tokens are spread over ranks (context parallel): gathers whole rows, returns local gradients.

>>> cp = ContextParallel(cu_seqlens, group)  # offsets of the whole rows, the same on every rank
>>> logp, logp_old = cp.gather(own_logp, own_logp_old)  # [n] of this rank -> [N] of whole rows
>>> loss = lockstep.torch.loss("dapo", credit, logp=logp, logp_old=logp_old, cu_seqlens=cu_seqlens).loss

A log-probability is 4 bytes per token, so whole rows are gathered and row sums stay the same: loss and
gradients have the same bits at any degree. Every rank of the group computes the same loss, and `backward`
leaves the complete gradient of its own tokens on each rank: nothing has to be added. A framework that
averages parameter gradients over the group's ranks needs the loss multiplied by their number.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor

from ._operator import once
from .columns import error
from .distributed import _agree, _engine, _tried

__all__ = ["ContextParallel", "segments"]


def segments(cu_seqlens: Any, rank: int, size: int, layout: str = "zigzag") -> list[tuple[int, int]]:
    """Returns the spans of tokens (start, end) that a rank holds, in the order in which it holds them.

    `zigzag`: a row is cut into 2·`size` chunks, and rank r holds chunks r and 2·`size` − 1 − r, so that
    causal attention costs the same on all ranks (Megatron, Transformer Engine). `contiguous`: `size` chunks,
    and rank r holds chunk r. A row whose length is not a multiple has shorter chunks at its end; Megatron
    pads rows to avoid that.
    """
    if layout not in ("zigzag", "contiguous"):
        raise error("layout", f" is {layout!r}: expected 'zigzag' or 'contiguous'")
    if not 0 <= rank < size:
        raise error("rank", f" is {rank}: expected 0 to {size - 1}")
    offsets = [int(offset) for offset in (cu_seqlens.tolist() if hasattr(cu_seqlens, "tolist") else cu_seqlens)]
    if offsets and offsets[0]:
        raise error("cu_seqlens", f"[0] is {offsets[0]}: expected 0", 0)
    chunks, own = (2 * size, (rank, 2 * size - 1 - rank)) if layout == "zigzag" else (size, (rank,))
    spans = []
    for index, (start, end) in enumerate(zip(offsets, offsets[1:])):
        if end < start:
            raise error("cu_seqlens", f"[{index + 1}] is {end}: expected at least {start}, the entry before it", index + 1)
        length = -(-(end - start) // chunks)
        spans += [(min(start + chunk * length, end), min(start + (chunk + 1) * length, end)) for chunk in own]
    return spans


class _Gather(torch.autograd.Function):
    """Gathers [n] of this rank to [N]; backward takes this rank's part of [N]."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, of: ContextParallel) -> Tensor:
        ctx.of, ctx.inputs = of, (own,)
        return of._whole(own)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        # Differentiated again, it would lack what comes from the tokens of other ranks.
        return once(_Gather._gradient, ctx, gradient)

    @staticmethod
    def _gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.of.cut(gradient), None


class ContextParallel:
    """The rows of a batch, spread over the ranks of a process group.

    Args:
        cu_seqlens: offsets of the whole rows `[S + 1]`, the same on every rank.
        group: a torch.distributed group; None: all ranks.
        layout: as in `segments`.
    """

    def __init__(self, cu_seqlens: Any, group: Any = None, layout: str = "zigzag") -> None:
        self._engine: Any = _engine(group)
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        spans = [segments(cu_seqlens, rank, self.size, layout) for rank in range(self.size)]
        whose, self._spans = [_tokens(own) for own in spans], crc32(repr(spans).encode())
        self._lengths = [len(own) for own in whose]
        self._own, self._place = whose[self.rank], torch.argsort(torch.cat(whose))

    @property
    def own_tokens(self) -> int:
        """Number of tokens on this rank."""
        return self._lengths[self.rank]

    def gather(self, *own: Tensor) -> Any:
        """Gathers this rank's token columns `[n]` to columns of whole rows `[N]`, on every rank.

        A single tensor gives a single tensor. Gradients flow back to `own`, once: differentiating them again is an
        error.

        Raises `Error`, on all ranks: a tensor whose length is not this rank's number of tokens; offsets, a
        layout, or types of `own` that differ between ranks.
        """
        of_nccl = self._engine.device.type == "cuda"

        def check() -> None:
            for index, column in enumerate(own):
                if not isinstance(column, Tensor):
                    raise error("own", f"[{index}] is a {type(column).__name__}: expected a tensor", index)
                if column.layout != torch.strided:
                    raise error("own", f"[{index}] has layout {column.layout}: expected a dense tensor", index)
                if column.device.type != "cuda" and (of_nccl or column.device.type != "cpu"):
                    raise error("own", f"[{index}] is on {column.device}: expected {'cuda' if of_nccl else 'cpu or cuda'}", index)
                if tuple(column.shape) != (self.own_tokens,):
                    message = f"[{index}] has shape {list(column.shape)}: expected [{self.own_tokens}], the tokens of rank {self.rank}"
                    raise error("own", message, index)

        failure = _tried(check)[1]
        types = "" if failure else ", ".join(f"{column.dtype} on {column.device.type}" for column in own)
        spans, of_types = self._spans, crc32(types.encode())
        agreed = _agree(self._engine, failure, [spans, -spans, of_types, -of_types])
        if agreed[0] != -agreed[1]:
            raise error("cu_seqlens", " or `layout` differs between ranks: expected the same on all ranks of the group")
        if agreed[2] != -agreed[3]:
            raise error("own", f" differs between ranks, here it is [{types}]: expected the same types on all ranks of the group")
        whole = tuple(_Gather.apply(column, self) for column in own)
        return whole[0] if len(own) == 1 else whole

    def cut(self, whole: Tensor) -> Tensor:
        """Returns this rank's tokens `[n]` of a column of whole rows `[N]`.

        Raises `Error`: a column of another length.
        """
        if whole.shape[:1] != (sum(self._lengths),):
            raise error("whole", f" has shape {list(whole.shape)}: expected [{sum(self._lengths)}], the tokens of all ranks")
        self._move(whole.device)
        return whole.index_select(0, self._own)

    def _move(self, device: torch.device) -> None:
        if self._own.device != device:
            self._own, self._place = self._own.to(device), self._place.to(device)

    def _whole(self, own: Tensor) -> Tensor:
        self._move(own.device)
        flags = own.dtype == torch.bool
        own = own.detach().view(torch.uint8) if flags else own.detach()
        # Where row lengths are not a multiple of the chunks, ranks hold different numbers of tokens: all send
        # the maximum.
        sent = own.new_zeros(max(self._lengths))
        sent[: len(own)] = own
        parts = [torch.empty_like(sent) for _ in self._lengths]
        dist.all_gather(parts, sent, group=self.group)
        whole = torch.cat([part[:length] for part, length in zip(parts, self._lengths)]).index_select(0, self._place)
        return whole.view(torch.bool) if flags else whole


def _tokens(spans: list[tuple[int, int]]) -> Tensor:
    return torch.cat([torch.arange(0), *(torch.arange(start, end) for start, end in spans)])
