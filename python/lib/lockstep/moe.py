"""Routing replay in models of the transformers library.

    # R2; for R3, use lockstep.routing.trace(ids, experts) of the rollout engine's ids instead.
    with torch.no_grad(), lockstep.moe.record(model) as taken:
        model(tokens)
    with lockstep.moe.replay(model, taken.trace()):
        loss(model(tokens).logits).backward()

The model keeps its routers; only the weights that they return are replaced, by `lockstep.routing.gates` of
their own live logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from .arrays import check_tensor
from .columns import error
from .routing import Router, RoutingTrace, check_trace, entries, gates_of_trace, trace

__all__ = ["Routers", "record", "replay"]

# Routers that return (logits, weights, ids), by class name; they have `top_k` and `weight`.
_SOFTMAX = {
    "FlexOlmoTopKRouter", "GptOssTopKRouter", "MellumTopKRouter", "MiniMaxTopKRouter", "MixtralTopKRouter", "OlmoeTopKRouter", "Qwen2MoeTopKRouter",
    "Qwen3MoeTopKRouter", "Qwen3NextTopKRouter", "Qwen3OmniMoeTalkerTextTopKRouter", "Qwen3OmniMoeTextTopKRouter",
    "Qwen3OmniMoeThinkerTextTopKRouter", "Qwen3VLMoeTextTopKRouter", "Qwen3_5MoeTopKRouter",
}  # fmt: skip
# Blocks whose `route_tokens_to_experts(logits)` returns (ids, weights); their `gate` has the bias.
_SIGMOID = {"DeepseekV3MoE", "Dots1MoE", "Glm4MoeLiteMoE", "Glm4MoeMoE"}


def _softmax_router(module: Any) -> Router:
    return Router(module.top_k, "softmax_chosen" if getattr(module, "norm_topk_prob", True) else "softmax_all")


def _sigmoid_router(module: Any) -> Router:
    kind = "sigmoid_normalized" if module.norm_topk_prob else "sigmoid"
    return Router(module.top_k, kind, float(module.routed_scaling_factor), module.n_group, module.topk_group)


def _routers(model: Any) -> list[Any]:
    """Returns the routers of a model in the order of its layers."""
    found, unknown = [], set()
    for module in model.modules():
        name = type(module).__name__
        if name in _SIGMOID and not hasattr(module, "route_tokens_to_experts"):
            raise error("model", f" has a {name} without `route_tokens_to_experts`: expected that of transformers 5.10")
        if name in _SOFTMAX or name in _SIGMOID:
            found.append(module)
        elif name.lower().endswith("topkrouter") and not any(getattr(block, "gate", None) is module for block in found):
            unknown.add(name)
    if unknown or not found:
        what = f"has routers of unsupported classes {', '.join(sorted(unknown))}" if unknown else "has no router of a supported class"
        raise error("model", f" {what}: expected one of {', '.join(sorted(_SOFTMAX | _SIGMOID))}; use `lockstep.routing.gates` for others")
    return found


class Routers:
    """The choices of a model's routers within `record` or `replay`."""

    def __init__(self, modules: list[Any]) -> None:
        self.modules = modules
        self.ids: list[list[Tensor]] = [[] for _ in modules]

    def trace(self) -> RoutingTrace:
        """Returns the experts that ran, in the order in which the routers saw the tokens.

        Batches `[B, T]` are in row order, one forward pass after the other.

        Raises `lockstep.Error`: nothing ran, or layers ran different tokens.
        """
        if not all(self.ids):
            raise error("model", " ran no token through its routers: call it within the block")
        layers = [torch.cat(ids) for ids in self.ids]
        if len({len(layer) for layer in layers}) > 1:
            raise error("model", f" ran {[len(layer) for layer in layers]} tokens through the routers of its layers: expected the same number through each")
        experts = {_experts(module) for module in self.modules}
        return trace(torch.stack(layers, 1), max(experts))


def _experts(module: Any) -> int:
    return (module.gate if type(module).__name__ in _SIGMOID else module).weight.shape[0]


@contextmanager
def _within(modules: list[Any], choose: Any) -> Iterator[Routers]:
    """Calls `choose(layer, logits, router, bias)` in each router; None keeps the model's own choice."""
    found = Routers(modules)
    handles: list[Any] = []
    wrapped: list[tuple[Any, Any]] = []

    def softmax(layer: int) -> Any:
        def hook(module: Any, _: Any, output: Any) -> Any:
            logits, weights, ids = output
            own = choose(layer, logits, _softmax_router(module), None)
            if own is not None:
                weights, ids = own[0].to(weights.dtype), own[1]
            found.ids[layer].append(ids.to(torch.int16))
            return logits, weights, ids

        return hook

    def sigmoid(layer: int, block: Any) -> Any:
        own_way = block.route_tokens_to_experts

        def route(logits: Tensor) -> tuple[Tensor, Tensor]:
            own = choose(layer, logits, _sigmoid_router(block), block.gate.e_score_correction_bias)
            ids, weights = own_way(logits) if own is None else (own[1], own[0].to(logits.dtype))
            found.ids[layer].append(ids.to(torch.int16))
            return ids, weights

        return route

    try:
        for layer, module in enumerate(found.modules):
            if type(module).__name__ in _SIGMOID:
                wrapped.append((module, vars(module).get("route_tokens_to_experts")))
                module.route_tokens_to_experts = sigmoid(layer, module)
            else:
                handles.append(module.register_forward_hook(softmax(layer)))
        yield found
    finally:
        for handle in handles:
            handle.remove()
        for module, before in wrapped:
            del module.route_tokens_to_experts
            if before is not None:  # That of a block around this one.
                module.route_tokens_to_experts = before


@torch.no_grad()
def _probabilities(logits: Tensor) -> bool:
    """Returns whether these are softmaxes of logits, as early routers of transformers 5 return."""
    # Of one expert, or of no token, nothing says so.
    return logits.numel() > len(logits) and bool(((logits >= 0).all() & ((logits.sum(-1) - 1).abs() < 1e-3).all()))


def record(model: Any) -> AbstractContextManager[Routers]:
    """Records which experts the routers of a transformers model choose within the block.

    Use it as `with record(model) as taken: …; taken.trace()`. Nothing else changes. Consecutive forward
    passes follow each other in the trace; a layer that gradient checkpointing reruns would be recorded twice.

    Raises `lockstep.Error`: a model without routers, or with routers of an unknown class.
    """
    return _within(_routers(model), lambda *_: None)


def replay(model: Any, recorded: RoutingTrace, *, mask: Tensor | None = None) -> AbstractContextManager[Routers]:
    """Makes the routers of a transformers model run the experts of a trace within the block.

    Weights come from the routers' own live logits. The tokens of `recorded` are those of a forward pass, `[B, T]`
    in row order, padding included: add it with `RoutingTrace.append_padding`, or with `append_absent`, where
    the router chooses for itself as it does for tokens whose `mask` `[B·T]` is 0. The model's load-balance
    losses see its logits as before. Gradient checkpointing may rerun layers. A `torch.compile`d model
    must be compiled within the block.

    Raises `lockstep.Error`: as `record`; a trace whose layers, experts or tokens do not match; routers that return
    probabilities in place of logits, as those of transformers 5.0 to 5.3 do.
    """
    modules = _routers(model)
    check_trace("recorded", recorded)
    if mask is not None:
        check_tensor("mask", mask)
    if recorded.layers != len(modules):
        raise error("recorded", f" has {recorded.layers} layers: expected {len(modules)}, the routers of the model")
    for module in modules:
        if recorded.experts != _experts(module):
            raise error("recorded", f" has {recorded.experts} experts: expected {_experts(module)}, like {type(module).__name__}")
    on_host = entries(recorded, "cpu")  # Here, because torch.compile cannot trace the copy from bytes.
    of_device: dict[Any, Tensor] = {}

    def choose(layer: int, logits: Tensor, router: Router, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        if len(logits) != recorded.tokens:
            raise error("recorded", f" has {recorded.tokens} tokens: expected {len(logits)}, the number the routers see in a forward pass")
        if logits.device not in of_device:
            if bias is None and not torch.compiler.is_compiling() and _probabilities(logits):
                raise error("model", " has routers that return probabilities in place of logits: expected those of transformers 5.10")
            of_device[logits.device] = on_host.to(logits.device)
        of_tokens = None if mask is None else mask.reshape(-1).to(logits.device)
        return gates_of_trace(logits, of_device[logits.device], layer, router, bias, of_tokens)

    return _within(modules, choose)
