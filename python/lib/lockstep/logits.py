"""Log-probabilities, entropies, KL divergences and draws from rows of logits `[N, V]`.

Each takes one pass, and gradients are in closed form.

>>> import torch, lockstep.logits
>>> logits = torch.tensor([[0.0, 0.0, float("-inf"), 0.0]], requires_grad=True)
>>> out = lockstep.logits.statistics(logits, torch.tensor([3]), entropy=True)
>>> out.logp.detach(), out.entropy.detach()
(tensor([-1.0986]), tensor([1.0986]))
>>> out.logp.sum().backward()
>>> logits.grad
tensor([[-0.3333, -0.3333,  0.0000,  0.6667]])

An entry of −∞ is a token that a vocabulary mask forbids: its probability and gradient are 0. Nothing
of size `[N, V]` is kept except the logits themselves. Tensors are torch's, on a CPU, CUDA or ROCm, and the
computation runs on their device, in float32. `statistics` and its gradient read and write logits in bfloat16,
float16 or float32 as they are; `kl` and `draw` copy half precision to float32 for the duration of a call. A
gradient has the type of its logits. A call waits for its device, so that a bad value is an exception; on a GPU,
`statistics(…, wait=False)` only launches, and `Statistics.check` reports a bad row later.

`lockstep.vocab_parallel` is for a vocabulary that is spread over ranks.

A trainer that should not hold the logits of a whole batch can compute them in parts, and let the backward
pass of each part overwrite its logits with the gradient:

>>> hidden, head = torch.randn(6, 4, requires_grad=True), torch.nn.Linear(4, 11)
>>> labels, advantages = torch.arange(6), torch.linspace(-1, 1, 6)
>>> for part in torch.arange(6).split(2):
...     out = lockstep.logits.statistics(head(hidden[part]), labels[part], inplace_backward=True)
...     (-advantages[part] * out.logp).sum().backward()
>>> hidden.grad.shape, head.weight.grad.shape
(torch.Size([6, 4]), torch.Size([11, 4]))
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _native
from ._error import LockstepError
from ._operator import operator, traced
from .arrays import cast, check_constant, check_shape, check_tensor, launch
from .columns import error

__all__ = ["Statistics", "draw", "kl", "statistics"]


class Statistics(NamedTuple):
    """Statistics of the tokens, each in the shape of the labels; 0 in masked rows."""

    logp: Tensor
    """Log-probability of the token, float32."""
    entropy: Tensor | None
    """Entropy in nats, float32; None unless requested."""
    lse: Tensor
    """logsumexp of logits / T; neither it nor the following fields carry a gradient."""
    top: Tensor
    """The most probable token, int64; the first one in case of ties."""
    collision: Tensor | None
    """Σ p²; None without `entropy`."""
    score_norm: Tensor | None
    """1 − 2p + Σ p², the squared norm of ∂logp/∂(logits/T); None without `entropy`."""

    def check(self) -> None:
        """Waits for the device, and raises `lockstep.Error` for the first row that cannot be used.

        Only a call with `wait=False` leaves such a row, as NaN or −∞ in `logp`.
        """
        bad = (~self.logp.detach().reshape(-1).isfinite()).nonzero()
        if len(bad):
            index = bad[0].item()
            raise error("logits", f" row {index} is invalid: expected no NaN or +∞, and at least one allowed token", index)


def _check(name: str, logits: Tensor, like: tuple[int, ...] | None = None) -> None:
    check_tensor(name, logits)
    if not logits.dim() or not logits.is_floating_point():
        raise error(name, f" has type {logits.dtype} and shape {list(logits.shape)}: expected floats, [N, V] or [B, T, V]")
    if like is not None:
        check_shape(name, logits, *like)


def _rows(logits: Tensor, formats: Any = (torch.float32,)) -> Tensor:
    """Converts logits to the ops' layout, `[N, V]`, and to float32 unless their type is among `formats`."""
    logits = logits if logits.dtype in formats else logits.float()
    return logits.reshape(logits.shape[:-1].numel(), logits.shape[-1]).contiguous()


def _check_in_place(logits: Tensor, wanted: bool) -> None:
    if wanted and logits.dtype not in _FORMATS:
        raise error("logits", f" has type {logits.dtype}: expected float32, bfloat16 or float16 for inplace_backward")
    if wanted and not logits.is_contiguous():
        raise error("logits", " is not contiguous, as inplace_backward needs: call .contiguous()")


# How an op that takes half precision calls it.
_FORMATS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
# Bytes of logits that an in-place gradient on a CPU copies at a time.
_COPIED = 1 << 22


def _of_rows(name: str, type_: str, tensor: Tensor | None, logits: Tensor) -> Any:
    """Converts a per-row tensor to an op's own type, `[N]`."""
    if tensor is None:
        return None
    check_tensor(name, tensor)
    check_shape(name, tensor, *logits.shape[:-1])
    return cast(name, type_, tensor, logits).view(-1)


def _in_32_bits(labels: Tensor) -> Tensor:
    """Converts labels once for both passes."""
    # A large one must not wrap to a small one. A negative one is, without its sign, above every vocabulary.
    check_tensor("labels", labels)
    return labels.clamp(-(1 << 31), (1 << 31) - 1).to(torch.int32) if labels.dtype == torch.int64 else labels


def _alarm(logits: Tensor) -> Tensor:
    return logits.new_empty(logits.shape[:-1], dtype=torch.int32)


def _outputs(logits: Tensor, entropy: bool, of_top: torch.dtype = torch.int64) -> tuple[Tensor, ...]:
    shape, moments = logits.shape[:-1], logits.shape[:-1] if entropy else (0,)

    def new(shape: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        return logits.new_empty(shape, dtype=dtype)

    return (new(shape), new(moments), new(shape), new(shape, of_top), new(moments), new(moments), new((3, *shape), torch.float64))


def _logits_statistics(
    logits: Tensor, labels: Tensor, mask: Tensor | None, temperature: float, entropy: bool, inplace_backward: bool, wait: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Returns logp, entropy, lse, top, collision, score_norm, state."""
    rows = _rows(logits, _FORMATS)
    try:
        return _launch_statistics(
            logits, entropy, _native.logits_statistics, _FORMATS[rows.dtype], logits.shape[-1], temperature, wait,
            logits=rows, labels=_of_rows("labels", "u32", labels, logits), loss_mask=_of_rows("mask", "u8", mask, logits),
        )  # fmt: skip
    except LockstepError as fault:
        if fault.argument != "labels" or fault.index is None:
            raise
        # With its sign, which the op does not see.
        token = labels.reshape(-1)[fault.index].item()
        raise error("labels", f"[{fault.index}] is {token}: expected 0 to {logits.shape[-1] - 1}", fault.index) from None


def _launch_statistics(like: Tensor, entropy: bool, op: Any, *arguments: Any, **arrays: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Runs an op that writes statistics of rows of logits."""
    logp, of_entropy, lse, top, collision, score_norm, state = out = _outputs(like, entropy, torch.int32)
    moments = dict(entropy=of_entropy, collision=collision, score_norm=score_norm) if entropy else {}
    launch(op, *arguments, **arrays, logp=logp, lse=lse, top=top, **moments, state=state, alarm=_alarm(like))
    return (logp, of_entropy, lse, top.long(), *out[4:])


def _named(found: tuple[Tensor, ...], entropy: bool) -> Statistics:
    logp, of_entropy, lse, top, *moments, _ = found
    return Statistics(logp, of_entropy, lse, top, *moments) if entropy else Statistics(logp, None, lse, top, None, None)


def _logits_gradient(
    logits: Tensor, labels: Tensor, mask: Tensor | None, vocab_start: int | None, temperature: float,
    state: Tensor, coef: Tensor, coef_entropy: Tensor | None, wait: bool,
) -> Tensor:
    """Returns dL/dlogits from dL/dlogp and dL/d(entropy), of whole rows or of the shard that begins at `vocab_start`."""
    rows = _rows(logits, _FORMATS)
    gradient = torch.empty_like(rows)
    _launch_gradient(rows, gradient, labels, mask, vocab_start, temperature, state, coef, coef_entropy, wait)
    return gradient.view(logits.shape).to(logits.dtype)


def _launch_gradient(
    rows: Tensor, to: Tensor, labels: Tensor, mask: Tensor | None, vocab_start: int | None, temperature: float,
    state: Tensor, coef: Tensor, coef_entropy: Tensor | None, wait: bool,
) -> None:
    like = rows if labels.dim() == 1 else rows.view(*labels.shape, rows.shape[-1])
    launch(
        _native.logits_gradient, _FORMATS[rows.dtype], rows.shape[-1], vocab_start, temperature, wait,
        logits=rows, labels=_of_rows("labels", "u32", labels, like), loss_mask=_of_rows("mask", "u8", mask, like), state=state,
        coef=coef.contiguous(), coef_entropy=None if coef_entropy is None else coef_entropy.contiguous(),
        gradient=to, alarm=_alarm(like),
    )  # fmt: skip


_gradient = operator(_logits_gradient, lambda logits, *rest: logits.new_empty(logits.shape))


def _gradient_in_place(
    logits: Tensor, labels: Tensor, mask: Tensor | None, vocab_start: int | None, temperature: float,
    state: Tensor, coef: Tensor, coef_entropy: Tensor | None, wait: bool,
) -> Tensor:
    """Replaces the logits by their gradient."""
    rows = logits.detach().view(-1, logits.shape[-1])
    # Torch then refuses another gradient that needs the logits. It has one version for all parts of a tensor.
    if logits._base is None or logits._base.numel() == logits.numel():
        torch.autograd.graph.increment_version(logits)
    if rows.device.type != "cpu":
        _launch_gradient(rows, rows, labels, mask, vocab_start, temperature, state, coef, coef_entropy, wait)
        return logits.detach()
    for name, array in (("coef", coef), ("coef_entropy", coef_entropy)):
        bad = [] if array is None else (~array.reshape(-1).isfinite()).nonzero()
        if len(bad):
            index, value = bad[0].item(), array.reshape(-1)[bad[0]].item()
            raise error(name, f"[{index}] is {value}: expected a finite number", index)
    # A CPU reads from copies of a few rows.
    some = max(16, _COPIED // max(rows[:1].nbytes, 1))
    flat = [None if array is None else array.reshape(-1) for array in (labels, mask, coef, coef_entropy)]
    state = state.view(3, -1)
    for at in range(0, len(rows), some):
        part = slice(at, at + some)
        labels, mask, coef, coef_entropy = (None if array is None else array[part] for array in flat)
        _launch_gradient(rows[part].clone(), rows[part], labels, mask, vocab_start, temperature, state[:, part].contiguous(), coef, coef_entropy, wait)
    return logits.detach()


def _keep(ctx, inputs, output):
    logits, labels, mask, ctx.temperature, ctx.entropy, ctx.inplace, ctx.wait = inputs
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(logits, labels, mask, output[-1])


def _backward(ctx, of_logp, of_entropy, *_):
    logits, labels, mask, state = ctx.saved_tensors
    of_logp = logits.new_zeros(labels.shape, dtype=torch.float32) if of_logp is None else of_logp
    of_entropy = of_entropy if ctx.entropy else None
    gradient = _gradient_in_place if ctx.inplace and not traced() else _gradient
    return gradient(logits, labels, mask, None, ctx.temperature, state, of_logp, of_entropy, ctx.wait), *([None] * 6)


_statistics = operator(
    _logits_statistics, lambda logits, labels, mask, temperature, entropy, *_: _outputs(logits, entropy), _keep, _backward
)


def statistics(
    logits: Tensor,
    labels: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    mask: Tensor | None = None,
    inplace_backward: bool = False,
    wait: bool = True,
) -> Statistics:
    """Computes the log-probability of each row's token, log π(a) = z_a/T − ln Σ exp(z/T).

    With `entropy` it also computes −Σ π ln π. `logits` are `[N, V]` or `[B, T, V]`; `labels` `[N]` or
    `[B, T]` are the sampled tokens; `mask`, in the shape of `labels`, is 0 where a row is masked (its
    content is ignored). The gradient of the logits follows from those of `logp` and `entropy`: [c (1[v = a]
    − p_v) − h p_v (ln p_v + H)] / T.

    With `inplace_backward` the backward pass overwrites `logits` with their gradient instead of allocating
    one, as flash-attn's cross entropy does: nothing else may use them afterwards, and `backward` can run only
    once. Torch refuses a gradient that would need them, unless they are part of a larger tensor. Under
    `torch.compile`, which plans memory itself, it changes nothing.

    With `wait=False` on a GPU, this call and its backward pass only launch, on torch's current stream. A bad row
    then gives NaN or −∞ in `logp` and NaN in its gradient, instead of an exception; `Statistics.check` names
    the row. On a CPU it changes nothing.

    Raises `lockstep.Error`: wrong shapes; a token outside the vocabulary or forbidden there; a row with
    NaN, +∞ or nothing but −∞ (index into the logits); a temperature outside 1e-6 to 1e6; with
    `inplace_backward`, logits in float64 or not contiguous.
    """
    _check("logits", logits)
    _check_in_place(logits, inplace_backward)
    return _named(_statistics(logits, _in_32_bits(labels), mask, temperature, entropy, inplace_backward, wait), entropy)


def _logits_kl(
    logits: Tensor, reference: Tensor, mask: Tensor | None, coef: Tensor, over: str, temperature: float, gradient: bool
) -> tuple[Tensor, Tensor]:
    """Returns the KL of each row, and dL/dlogits from dL/dKL."""
    value = logits.new_empty(logits.shape[:-1], dtype=torch.float32)
    of_logits = logits.new_empty(logits.shape, dtype=torch.float32) if gradient else None
    launch(
        _native.logits_kl, logits.shape[-1], temperature, over, logits=_rows(logits), reference=_rows(reference),
        loss_mask=_of_rows("mask", "u8", mask, logits), coef=coef.contiguous(), value=value, gradient=of_logits, alarm=_alarm(logits),
    )  # fmt: skip
    return value, logits.new_empty(0) if of_logits is None else of_logits.to(logits.dtype)


def _shapes_kl(logits, reference, mask, coef, over, temperature, gradient):
    return logits.new_empty(logits.shape[:-1], dtype=torch.float32), logits.new_empty(logits.shape if gradient else 0)


def _keep_kl(ctx, inputs, output):
    logits, reference, mask, _, ctx.over, ctx.temperature, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(logits, reference, mask)


def _backward_kl(ctx, of_value, _):
    logits, reference, mask = ctx.saved_tensors
    with torch.no_grad():
        gradient = _kl(logits, reference, mask, of_value, ctx.over, ctx.temperature, True)[1]
    return gradient, None, None, None, None, None, None


_kl = operator(_logits_kl, _shapes_kl, _keep_kl, _backward_kl)


def kl(
    logits: Tensor, reference: Tensor, *, over: str = "policy", temperature: float = 1.0, mask: Tensor | None = None
) -> Tensor:
    """Computes the KL divergence of each pair of rows over the whole vocabulary, in nats.

    This is KL(π ‖ π_ref) with `over="policy"` and KL(π_ref ‖ π) with `over="reference"`. Both logits
    are `[N, V]` or `[B, T, V]`; `mask` and the result lack V. The gradient goes to the policy's logits only.

    Raises `lockstep.Error`: as `statistics`; where the side that is not averaged over forbids a token (the
    divergence is infinite); a reference that requires grad.
    """
    _check("logits", logits)
    _check("reference", reference, logits.shape)
    if over not in ("policy", "reference"):
        raise error("over", f" is {over!r}: expected 'policy' or 'reference'")
    check_constant("reference", reference)
    return _kl(logits, reference, mask, logits.new_zeros(logits.shape[:-1], dtype=torch.float32), over, temperature, False)[0]


@torch.no_grad()
def draw(logits: Tensor, draws: int = 1, *, seed: int, temperature: float = 1.0, mask: Tensor | None = None) -> Tensor:
    """Draws `draws` tokens from each row of `logits` `[N, V]` or `[B, T, V]` at a temperature.

    The result is int64 `[N, draws]` or `[B, T, draws]`, ascending in each row, and the same on every machine.
    Draws are stratified: the expectation is that of independent draws, and the variance is never larger. The
    draws of a row depend only on `seed` and the row's number: use a new seed for every call. A row where `mask`
    is 0 draws token 0.

    Raises `lockstep.Error`: a row with NaN, +∞ or nothing but −∞; `draws` outside 1 to 1024; a seed outside 0
    to 2^64 − 1.
    """
    _check("logits", logits)
    for name, value, least, most in (("draws", draws, 1, 1024), ("seed", seed, 0, (1 << 64) - 1)):
        if not hasattr(value, "__index__") or not least <= int(value) <= most:
            raise error(name, f" is {value!r}: expected an integer of {least} to {most}")
    tokens = logits.new_empty((*logits.shape[:-1], draws), dtype=torch.int32)
    launch(
        _native.draw_tokens, logits.shape[-1], temperature, draws, seed,
        logits=_rows(logits), loss_mask=_of_rows("mask", "u8", mask, logits), tokens=tokens, alarm=_alarm(logits),
    )  # fmt: skip
    return tokens.long()
