"""Routing replay of mixture-of-experts models: reruns the experts of the rollout (R3) or old policy (R2).

>>> import torch, lockstep.routing
>>> scores = torch.tensor([[1.0, 2.0, 0.5, -1.0]], requires_grad=True)
>>> weights, ids = lockstep.routing.gates(scores, torch.tensor([[0, 2]]), top_k=2)
>>> weights.detach(), ids
(tensor([[0.6225, 0.3775]]), tensor([[0, 2]]))
>>> weights[0, 0].backward()
>>> scores.grad
tensor([[ 0.2350,  0.0000, -0.2350,  0.0000]])

`lockstep.moe` applies it to a transformers model. Only the selection is replayed: weights come from the live
scores, so their gradient reaches the router. Tensors are torch's, on a CPU, CUDA or ROCm, and the computation
runs on their device. docs/routing.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _native
from ._error import LockstepError
from ._native import RoutingTrace
from ._operator import operator
from .arrays import cast, check_constant, check_shape, check_tensor, launch
from .columns import error, on_host, positive

__all__ = ["Router", "RoutingTrace", "balance_loss", "gate_kl", "gates", "mismatch", "replay_kl", "trace"]


class Router(NamedTuple):
    """The rule that turns scores into weights."""

    top_k: int
    """Experts that run per token, at most 32 (of at most 512)."""
    kind: str = "softmax_chosen"
    """One of `softmax_chosen` (Qwen3 with `norm_topk_prob`, Mixtral), `softmax_all` (without it),
    `sigmoid_normalized` (DeepSeek-V3), `sigmoid` (Llama 4; DeepSeek-V3 without `norm_topk_prob`) and
    `sqrt_softplus` (DeepSeek-V4).
    """
    scale: float = 1.0
    """Factor of all weights, `routed_scaling_factor`."""
    groups: int = 1
    """Number of groups of experts, `n_group`."""
    top_groups: int = 1
    """Number of groups that experts are chosen from, `topk_group`."""


_KINDS = ("softmax_chosen", "softmax_all", "sigmoid_normalized", "sigmoid", "sqrt_softplus")


# Typed: 2.0 is not the 2 of an earlier call.
@lru_cache(maxsize=64, typed=True)
def native_router(experts: int, top_k: int, kind: str, scale: float, groups: int, top_groups: int) -> _native.Router:
    if kind not in _KINDS:
        raise error("kind", f" is {kind!r}: expected one of {', '.join(_KINDS)}")
    top_k, groups, top_groups = positive("top_k", top_k), positive("groups", groups), positive("top_groups", top_groups)
    return _native.Router(kind, experts, top_k, scale, groups, top_groups)


def _array(values: Any) -> Any:
    """Converts integers or floats to a NumPy array on the host."""
    return on_host(values, torch)


def _place(values: Any, type_: str) -> tuple[Any, tuple[int, int]]:
    """Returns an array on the host in a given type, with its address and length."""
    import numpy

    array = numpy.require(_array(values), type_, ["C_CONTIGUOUS", "ALIGNED"])
    return array, (array.__array_interface__["data"][0], array.size)


def check_trace(name: str, value: Any) -> None:
    """Refuses anything but a trace."""
    if not isinstance(value, RoutingTrace):
        raise error(name, f" is a {type(value).__name__}: expected a RoutingTrace")


def _check_routers(name: str, array: Any, of: RoutingTrace, width: int) -> None:
    """Refuses any shape but `[tokens, layers, width]`, of one layer also `[tokens, width]`."""
    layers = () if of.layers == 1 and array.ndim == 2 else (of.layers,)
    check_shape(name, array, of.tokens, *layers, width)


def _ids(name: str, values: Any) -> Any:
    array = _array(values)
    if array.dtype.kind not in "iu":
        raise error(name, f" has type {array.dtype}: expected integers")
    check_shape(name, array, None, None, None)
    return array


def trace(ids: Any, experts: int) -> RoutingTrace:
    """Makes a trace of a rollout engine's `ids`, integers `[tokens, layers, top_k]` of NumPy or torch.

    −1 marks a missing record. The ids are copied, to a byte each for up to 256 experts. If an engine returns
    one token less, append an absent one: `append_absent(1)`.

    Raises `lockstep.Error`: an id that is not an expert (index), an expert twice in a record, a partly
    missing record (token, layer, entry).
    """
    array = _ids("ids", ids)
    kept, place = _place(array, "i8")
    return RoutingTrace.from_ids(place, kept.shape[0], experts, *kept.shape[1:])


def _entries(ids: Tensor, experts: int) -> Tensor:
    """Converts ids to 16 bits, −1 = missing; invalid ids become `experts`, which the op refuses."""
    ids = ids.long()
    return torch.where((ids < -1) | (ids >= experts), experts, ids).to(torch.int16)


def entries(recorded: RoutingTrace, device: Any) -> Tensor:
    """Returns the entries of a trace `[tokens, layers, top_k]` as a tensor, uint8 or the bits of uint16."""
    shape = (recorded.tokens, recorded.layers, recorded.top_k)
    type_ = torch.uint8 if recorded.experts <= 256 - (recorded.top_k == 1) else torch.int16
    if not recorded.tokens:
        return torch.empty(shape, dtype=type_, device=device)
    return torch.frombuffer(bytearray(recorded.entries), dtype=type_).view(shape).to(device)


# One signature for both: `ids` are integers [T, K], or entries of a trace [T, layers, K], of which `layer` is
# used.
def _gating(
    scores: Tensor, ids: Tensor | None, mask: Tensor | None, bias: Tensor | None,
    layer: int, top_k: int, kind: str, scale: float, groups: int, top_groups: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Returns weights, experts, and whether each row was replayed."""
    rows, experts = scores.shape
    new, router = scores.new_empty, native_router(experts, top_k, kind, scale, groups, top_groups)
    weights, alarm, replayed = new(rows, top_k), new(rows, dtype=torch.int32), new(rows, dtype=torch.int32)
    chosen = new(rows, top_k, dtype=torch.uint8 if experts <= 256 else torch.int16)
    of_groups = new(rows, groups) if groups > 1 else None
    live = cast("mask", "u8", mask, scores)
    if ids is not None and ids.dim() == 2 and live is not None and live.numel() == rows:
        ids = torch.where(live.view(-1, 1) != 0, ids.long(), -1)  # An error is about a row that counts.
    given = _entries(ids, experts)[:, None].contiguous() if ids is not None and ids.dim() == 2 else ids
    try:
        launch(
            _native.gating_forward, router, 1 if given is None else given.shape[1], layer,
            scores=scores, trace=given, mask=live, bias=cast("bias", "f32", bias, scores),
            chosen=chosen, gates=weights, group_scores=of_groups, replayed=replayed, alarm=alarm,
        )  # fmt: skip
    except LockstepError:
        if ids is not None and ids is not given:
            trace(ids[:, None], experts)  # says what stands there
        raise
    return weights, chosen.long(), replayed.bool()


def _shapes(scores, ids, mask, bias, layer, top_k, *router):
    rows, new = scores.shape[0], scores.new_empty
    return new(rows, top_k), new(rows, top_k, dtype=torch.int64), new(rows, dtype=torch.bool)


def _gating_gradient(
    scores: Tensor, chosen: Tensor, weights: Tensor, coef: Tensor, top_k: int, kind: str, scale: float, groups: int, top_groups: int
) -> Tensor:
    """Returns dL/dscores from dL/dweights."""
    gradient, alarm = torch.empty_like(scores), scores.new_empty(scores.shape[0], dtype=torch.int32)
    launch(
        _native.gating_backward, native_router(scores.shape[1], top_k, kind, scale, groups, top_groups),
        scores=scores, chosen=chosen.to(torch.uint8 if scores.shape[1] <= 256 else torch.int16),
        gates=weights, coef=coef.contiguous(), gradient=gradient, alarm=alarm,
    )  # fmt: skip
    return gradient


_gradient = operator(_gating_gradient, lambda scores, *rest: torch.empty_like(scores))


def _keep(ctx, inputs, output):
    ctx.router = inputs[5:]
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(inputs[0], output[1], output[0])


def _backward(ctx, of_weights, *_):
    return (_gradient(*ctx.saved_tensors, of_weights, *ctx.router), *[None] * 9)


_replayed = operator(_gating, _shapes, _keep, _backward)


def gates(
    scores: Tensor,
    ids: Tensor | None = None,
    *,
    top_k: int,
    kind: str = "softmax_chosen",
    scale: float = 1.0,
    groups: int = 1,
    top_groups: int = 1,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes weights `[T, top_k]` (float32) and experts `[T, top_k]` (int64) from router scores `[T, E]`.

    `ids`, integers `[T, top_k]`, are the experts to run, with weights from the live scores. The router
    chooses in rows of −1, in rows with 0 in `mask` `[T]`, and everywhere without `ids`. `bias` `[E]`
    affects only the choice. The other arguments are as in `Router`. The gradient of the weights goes to the
    scores, in closed form; the choice has none.

    Raises `lockstep.Error`: wrong shapes; a score that is not finite (index); an id that is not an expert, or
    occurs twice in a row; a bias that requires grad.
    """
    check_tensor("scores", scores)
    check_shape("scores", scores, None, None)
    if ids is not None:
        check_tensor("ids", ids)
        check_shape("ids", ids, scores.shape[0], top_k)
        if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
            raise error("ids", f" has type {ids.dtype}: expected integers")
    check_constant("bias", bias)
    return gates_of_trace(scores, ids, 0, Router(top_k, kind, scale, groups, top_groups), bias, mask)


def gates_of_trace(
    scores: Tensor, recorded: Tensor | None, layer: int, router: Router, bias: Tensor | None = None, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Like `gates`, for the `entries` of a trace with several layers, using layer `layer`."""
    return _replayed(scores.float().contiguous(), recorded, mask, bias, layer, *router)[:2]


def _balance_loss(scores: Tensor, load: Tensor, coef: float) -> tuple[Tensor, Tensor]:
    new, gradient = scores.new_empty, torch.empty_like(scores)
    total, alarm = new(1, dtype=torch.float64), new(scores.shape[0], dtype=torch.int32)
    row_loss, load = new(scores.shape[0], dtype=torch.float64), cast("load", "f32", load, scores)
    if not scores.shape[0]:
        return new(()).zero_(), gradient
    launch(_native.balance_loss, coef, scores=scores, load=load, gradient=gradient, row_loss=row_loss, total=total, alarm=alarm)
    return total[0].float(), gradient


def _keep_balance(ctx, inputs, output):
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])
    ctx.inputs = inputs[:1]


_balance = operator(
    _balance_loss,
    lambda scores, load, coef: (scores.new_empty(()), torch.empty_like(scores)),
    _keep_balance,
    lambda ctx, of_loss, _: (of_loss * ctx.saved_tensors[0], None, None),
)


def balance_loss(scores: Tensor, load: Tensor | Sequence[float], coef: float) -> Tensor:
    """Computes the load-balance loss coef · E Σ f P of scores `[T, E]`.

    P is the mean of the scores' softmax, and `load` holds f `[E]`, the loads of a trace
    (`RoutingTrace.load`).
    """
    check_tensor("scores", scores)
    check_shape("scores", scores, None, None)
    if not isinstance(load, Tensor):
        try:
            load = torch.tensor(load, dtype=torch.float32, device=scores.device)
        except (TypeError, ValueError, RuntimeError) as failure:
            raise error("load", f" is a {type(load).__name__}: expected a tensor or floats, [{scores.shape[1]}]") from failure
    check_shape("load", load, scores.shape[1])
    check_constant("load", load)
    return _balance(scores.float().contiguous(), load, coef)[0]


def mismatch(a: Any, b: Any) -> dict[str, Any]:
    """Measures how far two routings of the same tokens differ, as sets.

    `a` and `b` are traces, or ids `[tokens, layers, top_k]`.
    The result has the fractions that differ, `router_fraction` and `token_fraction`; `layers_per_token` that
    differ; `overlap` of the experts (mean |A ∩ B| / K); and the counts `routers`, `differing`, `tokens`,
    `tokens_differing` and `layers` (compared and differing, per layer). Entries without a record in either
    routing are left out.

    >>> import numpy as np, lockstep.routing
    >>> lockstep.routing.mismatch(np.array([[[0, 1], [2, 3]]]), np.array([[[1, 0], [2, 1]]]))["router_fraction"]
    0.5
    """

    def traced(name: str, of: Any) -> RoutingTrace:
        if isinstance(of, RoutingTrace):
            return of
        # Ids do not state the number of experts: use as many as they name, and at least as many as a record has.
        ids = _ids(name, of)
        return trace(ids, max(int(ids.max(initial=0)) + 1, ids.shape[-1]))

    return traced("a", a).mismatch(traced("b", b))


def gate_kl(a: RoutingTrace, a_weights: Any, b: RoutingTrace, b_weights: Any) -> dict[str, Any]:
    """Computes KL(a ‖ b) of weights `[tokens, layers, top_k]`, in nats.

    It covers the routers that ran the same experts. The result has `mean`, `routers`, `left_out` and
    `layer_means`. It is computed on the host: weights on a GPU are copied there.
    """
    check_trace("a", a)
    check_trace("b", b)
    kept = [_place(weights, "f4") for weights in (a_weights, b_weights)]
    _check_routers("a_weights", kept[0][0], a, a.top_k)
    _check_routers("b_weights", kept[1][0], b, b.top_k)
    return a.gate_kl(kept[0][1], b, kept[1][1])


def replay_kl(recorded: RoutingTrace, scores: Any, router: Router, bias: Any = None) -> dict[str, Any]:
    """Measures what a replay gives up against live scores `[tokens, layers, E]`, in nats.

    The measure is ln of the mass of the live choice over that of the record. It is computed on the host:
    scores on a GPU are copied there.
    """
    check_trace("recorded", recorded)
    kept, of_bias = _place(scores, "f4"), None if bias is None else _place(bias, "f4")
    _check_routers("scores", kept[0], recorded, recorded.experts)
    return recorded.replay_kl(native_router(recorded.experts, *router), kept[1], None if of_bias is None else of_bias[1])
