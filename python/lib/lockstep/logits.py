"""Rows of logits `[N, V]` in one pass, with gradients in closed form: log-probabilities and entropies of tokens, KL divergences, draws.

>>> import torch, lockstep.logits
>>> logits = torch.tensor([[0.0, 0.0, float("-inf"), 0.0]], requires_grad=True)
>>> out = lockstep.logits.statistics(logits, torch.tensor([3]), entropy=True)
>>> out.logp.detach(), out.entropy.detach()
(tensor([-1.0986]), tensor([1.0986]))
>>> out.logp.sum().backward()
>>> logits.grad
tensor([[-0.3333, -0.3333,  0.0000,  0.6667]])

An entry of −∞ is a token that a vocabulary mask forbids: probability and gradient are 0. Nothing of size `[N, V]` is kept but the logits themselves.
Tensors of torch, on a CPU, CUDA or ROCm: they are computed on where they are. Half-precision logits are copied to float32 first, and the gradient
comes back in their type. A call waits for its device, so that a bad value is an exception.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _native
from .arrays import check_shape, launch
from .columns import Column, error, library

__all__ = ["Statistics", "draw", "kl", "statistics"]


class Statistics(NamedTuple):
    """What logits say of their tokens, each `[N]`; 0 in masked rows."""

    logp: Tensor
    """Log-probability of the token, float32."""
    entropy: Tensor | None
    """Entropy in nats, float32; None if it was not asked for."""
    lse: Tensor
    """logsumexp of logits / T; no gradient goes through it, nor through what follows."""
    top: Tensor
    """The most probable token, int64; the first where several are."""
    collision: Tensor | None
    """Σ p²; with the entropy."""
    score_norm: Tensor | None
    """1 − 2p + Σ p², the squared norm of ∂logp/∂(logits/T); with the entropy."""


def _rows(logits: Tensor, name: str = "logits") -> Tensor:
    check_shape(name, logits, None, None)
    if not logits.is_floating_point():
        raise error(name, f" has type {logits.dtype}: expected a float")
    return logits.float().contiguous()


def _cast(name: str, type_: str, tensor: Tensor | None, like: Tensor) -> Any:
    """A tensor of rows in an op's own type."""
    if tensor is None:
        return None
    check_shape(name, tensor, like.shape[0])
    return library([like]).cast(Column(-1, name, type_, "", ""), tensor)


def _labels(labels: Tensor, logits: Tensor) -> Tensor:
    if labels.dtype == torch.int64:
        # A negative one must not become another token; -1 stays above every vocabulary.
        labels = labels.clamp(-1, 1 << 30).to(torch.int32)
    return _cast("labels", "u32", labels, logits)


@torch.library.custom_op("lockstep::logits_statistics", mutates_args=())
def _statistics(
    logits: Tensor, labels: Tensor, mask: Tensor | None, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """logp, entropy, lse, top, collision, score_norm, state."""
    n, vocab = logits.shape
    of_rows = [logits.new_empty(n) for _ in range(2)]
    moments = [logits.new_empty(n if entropy else 0) for _ in range(3)]
    top, alarm = (torch.empty(n, dtype=torch.int32, device=logits.device) for _ in range(2))
    state = logits.new_empty(3, n, dtype=torch.float64)
    names = dict(zip(("entropy", "collision", "score_norm"), moments)) if entropy else {}
    launch(
        _native.logits_statistics, vocab, temperature,
        logits=logits, labels=_labels(labels, logits), loss_mask=_cast("mask", "u8", mask, logits),
        logp=of_rows[0], lse=of_rows[1], top=top, **names, state=state, alarm=alarm,
    )  # fmt: skip
    return (of_rows[0], moments[0], of_rows[1], top.long(), *moments[1:], state)


@_statistics.register_fake
def _(logits, labels, mask, temperature, entropy):
    n = logits.shape[0]
    moments = [logits.new_empty(n if entropy else 0) for _ in range(3)]
    top, state = logits.new_empty(n, dtype=torch.int64), logits.new_empty(3, n, dtype=torch.float64)
    return (logits.new_empty(n), moments[0], logits.new_empty(n), top, *moments[1:], state)


@torch.library.custom_op("lockstep::logits_gradient", mutates_args=())
def _gradient(
    logits: Tensor, labels: Tensor, mask: Tensor | None, temperature: float, state: Tensor, coef: Tensor, coef_entropy: Tensor | None
) -> Tensor:
    """dL/dlogits from dL/dlogp and dL/d(entropy)."""
    gradient, alarm = torch.empty_like(logits), torch.empty(logits.shape[0], dtype=torch.int32, device=logits.device)
    launch(
        _native.logits_gradient, logits.shape[1], temperature,
        logits=logits, labels=_labels(labels, logits), loss_mask=_cast("mask", "u8", mask, logits), state=state,
        coef=coef.contiguous(), coef_entropy=None if coef_entropy is None else coef_entropy.contiguous(),
        gradient=gradient, alarm=alarm,
    )  # fmt: skip
    return gradient


@_gradient.register_fake
def _(logits, *rest):
    return torch.empty_like(logits)


def _keep(ctx, inputs, output):
    logits, labels, mask, ctx.temperature, ctx.entropy = inputs
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(logits, labels, mask, output[-1])


def _backward(ctx, of_logp, of_entropy, *_):
    logits, labels, mask, state = ctx.saved_tensors
    of_logp = torch.zeros_like(logits[:, 0]) if of_logp is None else of_logp
    of_entropy = of_entropy if ctx.entropy else None
    return _gradient(logits, labels, mask, ctx.temperature, state, of_logp, of_entropy), None, None, None, None


_statistics.register_autograd(_backward, setup_context=_keep)


def statistics(
    logits: Tensor, labels: Tensor, *, temperature: float = 1.0, entropy: bool = False, mask: Tensor | None = None
) -> Statistics:
    """Log-probability of each row's token, log π(a) = z_a/T − ln Σ exp(z/T), and with `entropy` −Σ π ln π.

    `logits` `[N, V]`; `labels` `[N]`, the sampled tokens; `mask` `[N]`, 0 where a row takes no part (what stands there is not looked at).
    The gradient of the logits comes from those of `logp` and `entropy`: [c (1[v = a] − p_v) − h p_v (ln p_v + H)] / T.

    Raises `lockstep.Error`: shapes; a token outside of the vocabulary or forbidden there; a row with NaN, +∞ or nothing but −∞ (index into the
    logits); a temperature outside 1e-6 to 1e6.
    """
    found = _statistics(_rows(logits), labels, mask, temperature, entropy)
    logp, of_entropy, lse, top, *moments, _ = found
    return Statistics(logp, of_entropy, lse, top, *moments) if entropy else Statistics(logp, None, lse, top, None, None)


@torch.library.custom_op("lockstep::logits_kl", mutates_args=())
def _kl(
    logits: Tensor, reference: Tensor, mask: Tensor | None, coef: Tensor, over: str, temperature: float, gradient: bool
) -> tuple[Tensor, Tensor]:
    """KL of each row, and dL/dlogits from dL/dKL."""
    n, vocab = logits.shape
    value, alarm = logits.new_empty(n), torch.empty(n, dtype=torch.int32, device=logits.device)
    of_logits = torch.empty_like(logits) if gradient else None
    launch(
        _native.logits_kl, vocab, temperature, over, logits=logits, reference=reference,
        loss_mask=_cast("mask", "u8", mask, logits), coef=coef.contiguous(), value=value, gradient=of_logits, alarm=alarm,
    )  # fmt: skip
    return value, logits.new_empty(0) if of_logits is None else of_logits


@_kl.register_fake
def _(logits, reference, mask, coef, over, temperature, gradient):
    return logits.new_empty(logits.shape[0]), torch.empty_like(logits) if gradient else logits.new_empty(0)


def _keep_kl(ctx, inputs, output):
    logits, reference, mask, _, ctx.over, ctx.temperature, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(logits, reference, mask)


def _backward_kl(ctx, of_value, _):
    logits, reference, mask = ctx.saved_tensors
    with torch.no_grad():
        gradient = _kl(logits, reference, mask, of_value, ctx.over, ctx.temperature, True)[1]
    return gradient, None, None, None, None, None, None


_kl.register_autograd(_backward_kl, setup_context=_keep_kl)


def kl(
    logits: Tensor, reference: Tensor, *, over: str = "policy", temperature: float = 1.0, mask: Tensor | None = None
) -> Tensor:
    """KL divergence of each pair of rows over the whole vocabulary, `[N]`: KL(π ‖ π_ref) over the `policy`, KL(π_ref ‖ π) over the `reference`.

    Both logits `[N, V]`; the gradient goes to those of the policy alone.

    Raises `lockstep.Error`, as `statistics` does, and where the side that is not averaged over forbids a token: the divergence is infinite.
    """
    rows = _rows(logits)
    check_shape("reference", reference, *rows.shape)
    return _kl(rows, _rows(reference, "reference").detach(), mask, rows.new_zeros(rows.shape[0]), over, temperature, False)[0]


@torch.no_grad()
def draw(logits: Tensor, draws: int = 1, *, seed: int, temperature: float = 1.0, mask: Tensor | None = None) -> Tensor:
    """`draws` tokens of each row of `logits` `[N, V]` at a temperature: int64 `[N, draws]`, ascending in each row, the same on every machine.

    Stratified: the expectation is that of independent draws, the variance never larger. The draws of a row hang on `seed` and the row's number alone:
    another seed for every call.

    Raises `lockstep.Error`: a row with NaN, +∞ or nothing but −∞; `draws` outside of 1 to 1024.
    """
    rows = _rows(logits)
    tokens = torch.empty(rows.shape[0], max(draws, 0), dtype=torch.int32, device=rows.device)
    alarm = torch.empty(rows.shape[0], dtype=torch.int32, device=rows.device)
    of_rows = _cast("mask", "u8", mask, rows)
    launch(
        _native.draw_tokens, rows.shape[1], temperature, draws, seed,
        logits=rows, loss_mask=of_rows, tokens=tokens, alarm=alarm,
    )  # fmt: skip
    return tokens.long()
