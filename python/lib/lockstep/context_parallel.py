"""Rows whose tokens are spread over ranks (context parallel): a rank's tokens in, whole rows out, the gradient of its own tokens back.

>>> cp = ContextParallel(cu_seqlens, group)                    # offsets of the whole rows, the same on every rank
>>> logp, logp_old = cp.gather(own_logp, own_logp_old)         # [n] of this rank -> [N] of whole rows
>>> loss = lockstep.torch.loss("dapo", credit, logp=logp, logp_old=logp_old, cu_seqlens=cu_seqlens).loss

A log-probability is 4 bytes a token, so whole rows are gathered and the row's sums stay what they are: loss and gradients have the same bits at any
degree. Every rank of the group computes the same loss, and `backward` leaves on each the gradient of its own tokens, whole: nothing is to be added for it.
A framework that averages the gradients of parameters over the ranks of the group wants the loss times their number.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .columns import error
from .distributed import _agree, _engine, _tried

__all__ = ["ContextParallel", "segments"]


def segments(cu_seqlens: Any, rank: int, size: int, layout: str = "zigzag") -> list[tuple[int, int]]:
    """First token and end of each span that a rank holds, in the order in which it holds them.

    `zigzag`: a row is cut into 2·`size` chunks, of which rank r holds number r and number 2·`size` − 1 − r, so that causal attention is the same work
    for all (Megatron, Transformer Engine). `contiguous`: `size` chunks, of which rank r holds number r. A row whose length is no multiple has shorter
    chunks at its end; Megatron pads rows so that there are none.
    """
    if layout not in ("zigzag", "contiguous"):
        raise error("layout", f" is {layout!r}: expected 'zigzag' or 'contiguous'")
    if not 0 <= rank < size:
        raise error("rank", f" is {rank}: expected 0 to {size - 1}")
    offsets = [int(offset) for offset in (cu_seqlens.tolist() if hasattr(cu_seqlens, "tolist") else cu_seqlens)]
    chunks, own = (2 * size, (rank, 2 * size - 1 - rank)) if layout == "zigzag" else (size, (rank,))
    spans = []
    for index, (start, end) in enumerate(zip(offsets, offsets[1:])):
        if end < start:
            raise error("cu_seqlens", f"[{index + 1}] is {end}: expected at least {start}, what stands before it", index + 1)
        length = -(-(end - start) // chunks)
        spans += [(min(start + chunk * length, end), min(start + (chunk + 1) * length, end)) for chunk in own]
    return spans


class _Gather(torch.autograd.Function):
    """[n] of this rank to [N]; backwards its own part of [N]."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, of: ContextParallel) -> Tensor:
        ctx.of = of
        return of._whole(own)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.of.cut(gradient), None


class ContextParallel:
    """The rows of a batch over the ranks of a process group.

    Args:
        cu_seqlens: offsets of the whole rows `[S + 1]`, the same on every rank.
        group: of torch.distributed; None: all ranks.
        layout: of `segments`.
    """

    def __init__(self, cu_seqlens: Any, group: Any = None, layout: str = "zigzag") -> None:
        self._engine: Any = _engine(group)
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        whose = [_tokens(segments(cu_seqlens, rank, self.size, layout)) for rank in range(self.size)]
        self._lengths = [len(own) for own in whose]
        self._own, self._place = whose[self.rank], torch.argsort(torch.cat(whose))

    @property
    def own_tokens(self) -> int:
        """Tokens of this rank."""
        return self._lengths[self.rank]

    def gather(self, *own: Tensor) -> Any:
        """Columns of tokens of this rank `[n]` as columns of whole rows `[N]`, on every rank; one tensor for one. Gradients go back to `own`.

        Raises `Error`, on all ranks: a tensor that has not as many elements as this rank has tokens.
        """

        def check() -> None:
            for index, column in enumerate(own):
                if tuple(column.shape) != (self.own_tokens,):
                    message = f"[{index}] has shape {list(column.shape)}: expected [{self.own_tokens}], the tokens of rank {self.rank}"
                    raise error("own", message, index)

        _agree(self._engine, _tried(check)[1], [])
        whole = tuple(_Gather.apply(column, self) for column in own)
        return whole[0] if len(own) == 1 else whole

    def cut(self, whole: Tensor) -> Tensor:
        """This rank's tokens `[n]` of a column of whole rows `[N]`."""
        self._move(whole.device)
        return whole.index_select(0, self._own)

    def _move(self, device: torch.device) -> None:
        if self._own.device != device:
            self._own, self._place = self._own.to(device), self._place.to(device)

    def _whole(self, own: Tensor) -> Tensor:
        self._move(own.device)
        flags = own.dtype == torch.bool
        own = own.detach().view(torch.uint8) if flags else own.detach()
        # Ranks whose rows have no multiple of chunks have fewer tokens: all send as many as the longest.
        sent = own.new_zeros(max(self._lengths))
        sent[: len(own)] = own
        parts = [torch.empty_like(sent) for _ in self._lengths]
        dist.all_gather(parts, sent, group=self.group)
        whole = torch.cat([part[:length] for part, length in zip(parts, self._lengths)]).index_select(0, self._place)
        return whole.view(torch.bool) if flags else whole


def _tokens(spans: list[tuple[int, int]]) -> Tensor:
    return torch.cat([torch.arange(0), *(torch.arange(start, end) for start, end in spans)])
