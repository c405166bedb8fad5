"""Routing replay in models of transformers with random weights: routers that differ, outputs, gradients."""

import importlib
import pathlib
import types

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import lockstep  # noqa: E402
from lockstep import moe, routing  # noqa: E402

SIZES = dict(
    vocab_size=64, hidden_size=32, intermediate_size=32, moe_intermediate_size=16, num_hidden_layers=3, num_attention_heads=2,
    num_key_value_heads=2, num_experts_per_tok=2, max_position_embeddings=64, pad_token_id=0,
)  # fmt: skip
SIGMOID = dict(
    n_routed_experts=8, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=2.5, first_k_dense_replace=1,
    q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16,
)  # fmt: skip
MODELS = {
    "Qwen3Moe": dict(num_experts=8, norm_topk_prob=True, head_dim=16),
    "Olmoe": dict(num_experts=8, norm_topk_prob=False),
    "Mixtral": dict(num_local_experts=8),
    "DeepseekV3": SIGMOID,
    "Glm4Moe": dict({name: value for name, value in SIGMOID.items() if not name.endswith(("rank", "head_dim"))}, head_dim=16),
}


def model(name="Qwen3Moe", seed=0):
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**SIZES, **MODELS[name])
    own = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for key, parameter in own.named_parameters():
            # Far enough apart that experts matter, and that a small step changes some of them.
            parameter.normal_(std=0.5 if ".gate." in key else 0.2) if parameter.dim() > 1 else None
        for key, buffer in own.named_buffers():
            buffer.normal_(std=0.1) if key.endswith("e_score_correction_bias") else None
    return own


TOKENS = torch.randint(1, 64, (2, 12), generator=torch.Generator().manual_seed(3))


def class_of(name):
    """A class of transformers by its name; its module has the longest name that the class begins with."""
    plain = name.replace("_", "").lower()
    modules = pathlib.Path(transformers.__file__).parent.glob("models/*/modeling_*.py")
    found = max((path for path in modules if plain.startswith(path.parent.name.replace("_", ""))), key=lambda path: len(path.parent.name))
    return getattr(importlib.import_module(f"transformers.models.{found.parent.name}.{found.stem}"), name)


@pytest.mark.parametrize("name", sorted(moe._SOFTMAX | moe._SIGMOID))
def test_every_class_of_the_table_is_the_router_that_it_says(name):
    """Its own experts, replayed, get its own weights, whatever `norm_topk_prob` is."""
    for normalised in (True, False):
        torch.manual_seed(0)
        config = types.SimpleNamespace(
            num_experts_per_tok=3, num_experts=16, num_local_experts=16, hidden_size=8, norm_topk_prob=normalised, n_routed_experts=16,
            n_group=4, topk_group=2, routed_scaling_factor=1.5, n_shared_experts=1, moe_intermediate_size=4, intermediate_size=4,
            hidden_act="silu", pretraining_tp=1, _experts_implementation="eager",
        )  # fmt: skip
        own = class_of(name)(config)
        for tensor in (*own.parameters(), *own.buffers()):
            tensor.data.normal_()
        given = torch.randn(20, 16 if name in moe._SIGMOID else 8)

        def call():
            out = (own.route_tokens_to_experts if name in moe._SIGMOID else own)(given)
            ids, weights = out if name in moe._SIGMOID else (out[2], out[1])
            return ids, weights

        with torch.no_grad():
            with moe.record(torch.nn.Sequential(own)) as taken:
                stock_ids, stock = call()
            with moe.replay(torch.nn.Sequential(own), taken.trace()):
                ids, weights = call()
        assert torch.equal(ids, stock_ids) and weights.dtype == stock.dtype
        torch.testing.assert_close(weights, stock, atol=1e-6, rtol=1e-6)


def recording(own):
    """The logits of the tokens, and what the routers chose for them."""
    with torch.no_grad(), moe.record(own) as routers:
        logits = own(TOKENS).logits
    return logits, routers


def moved(own, by=0.05):
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(by * torch.randn_like(parameter) * parameter.std())
    return own


@pytest.mark.parametrize("name", MODELS)
def test_replaying_a_models_own_choice_changes_nothing(name):
    own = model(name)
    with torch.no_grad():
        with moe.record(own) as taken:
            stock = own(TOKENS).logits
        with moe.replay(own, taken.trace()) as ran:
            replayed = own(TOKENS).logits
    assert routing.mismatch(ran.trace(), taken.trace())["differing"] == 0
    torch.testing.assert_close(replayed, stock, atol=1e-5, rtol=1e-5)
    # Nothing of ours is left behind.
    assert torch.equal(own(TOKENS).logits, stock)


@pytest.mark.parametrize("name", MODELS)
def test_moved_weights_choose_other_experts_and_replay_none(name):
    old = model(name)
    _, rollout = recording(old)
    new = moved(old)
    free, live = recording(new)
    assert routing.mismatch(live.trace(), rollout.trace())["differing"] > 0
    with torch.no_grad(), moe.replay(new, rollout.trace()) as ran:
        forced_ = new(TOKENS).logits
    found = routing.mismatch(ran.trace(), rollout.trace())
    assert found["differing"] == 0 and found["routers"] == TOKENS.numel() * rollout.trace().layers
    assert not torch.allclose(free, forced_, atol=1e-4)


class Forced(torch.nn.Module):
    """Qwen3's router with given experts, by torch alone."""

    def __init__(self, router):
        super().__init__()
        self.router, self.ids, self.logits = router, None, None

    def forward(self, hidden):
        self.logits = torch.nn.functional.linear(hidden.reshape(-1, self.router.hidden_dim), self.router.weight)
        self.logits.retain_grad()
        weights = torch.softmax(self.logits, -1, dtype=torch.float).gather(1, self.ids)
        return self.logits, weights / weights.sum(-1, keepdim=True), self.ids


def test_gradients_are_autograds_of_the_forced_router():
    old = model()
    _, rollout = recording(old)
    recorded = rollout.trace()
    ours, theirs = moved(model()), moved(model())
    seen = []
    for module in moe._routers(ours):
        module.register_forward_hook(lambda _, __, output: (output[0].retain_grad(), seen.append(output[0]))[1])
    stands_in = []
    for layer in theirs.model.layers:
        layer.mlp.gate = Forced(layer.mlp.gate)
        stands_in.append(layer.mlp.gate)

    def loss(own):
        return torch.nn.functional.cross_entropy(own(TOKENS[:, :-1]).logits.flatten(0, 1), TOKENS[:, 1:].flatten())

    # A prefix of the tokens: the trace of a forward with as many.
    rows = torch.arange(TOKENS.numel()).view(TOKENS.shape)[:, :-1].flatten()
    ids = torch.stack([rollout.ids[layer][0][rows].long() for layer in range(recorded.layers)], 1)
    for layer, own in enumerate(stands_in):
        own.ids = ids[:, layer]
    with moe.replay(ours, routing.trace(ids, recorded.experts)) as ran:
        loss(ours).backward()
    loss(theirs).backward()
    assert routing.mismatch(ran.trace(), ids)["differing"] == 0
    for mine, want in zip(seen, stands_in, strict=True):
        assert want.logits.grad.abs().max() > 1e-4
        torch.testing.assert_close(mine.grad, want.logits.grad, atol=1e-6, rtol=0)
    for mine, want in zip(ours.parameters(), (p for p in theirs.parameters()), strict=True):
        torch.testing.assert_close(mine.grad, want.grad, atol=1e-6, rtol=0)


def test_in_half_precision_the_experts_are_the_traces_and_weights_the_models_type():
    old = model()
    _, rollout = recording(old)
    own = model().bfloat16()
    seen = []
    _, live = recording(own)
    assert routing.mismatch(live.trace(), rollout.trace())["differing"] > 0
    handle = own.model.layers[0].mlp.experts.register_forward_pre_hook(lambda _, arguments: seen.extend(arguments[1:3]))
    with torch.no_grad(), moe.replay(own, rollout.trace()) as ran:
        assert own(TOKENS).logits.dtype == torch.bfloat16
    handle.remove()
    assert routing.mismatch(ran.trace(), rollout.trace())["differing"] == 0
    assert seen[0].tolist() == rollout.ids[0][0].tolist() and seen[1].dtype == torch.bfloat16


def test_tokens_outside_of_the_mask_choose_for_themselves():
    old = model()
    _, rollout = recording(old)
    own, mask = moved(model()), torch.zeros(TOKENS.shape, dtype=torch.bool)
    free, live = recording(own)
    with torch.no_grad(), moe.replay(own, rollout.trace(), mask=mask) as ran:
        masked = own(TOKENS).logits
    assert routing.mismatch(ran.trace(), live.trace())["differing"] == 0
    torch.testing.assert_close(masked, free, atol=1e-5, rtol=1e-5)
    mask[0] = True
    with torch.no_grad(), moe.replay(own, rollout.trace(), mask=mask) as ran:
        own(TOKENS)
    # The first layer's scores do not hang on what was replayed before it.
    first = ran.ids[0][0].view(2, -1, 2)
    assert torch.equal(first[0], rollout.ids[0][0].view(2, -1, 2)[0]) and torch.equal(first[1], live.ids[0][0].view(2, -1, 2)[1])


def test_checkpointed_layers_replay_too():
    old, own = model(), moved(model()).train()
    _, rollout = recording(old)
    gradients = []
    for checkpointed in (False, True):
        own.zero_grad()
        own.gradient_checkpointing_enable({"use_reentrant": False}) if checkpointed else None
        with moe.replay(own, rollout.trace()):
            own(TOKENS).logits.square().mean().backward()
        gradients.append([parameter.grad.clone() for parameter in own.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("name", ["Qwen3Moe", "DeepseekV3"])
def test_a_block_within_a_block_leaves_it_as_it_was(name):
    old, own = model(name), moved(model(name))
    _, rollout = recording(old)
    with torch.no_grad(), moe.replay(own, rollout.trace()):
        want = own(TOKENS).logits
        with moe.record(own) as inner:
            own(TOKENS)
        assert torch.equal(own(TOKENS).logits, want)
    assert inner.trace() == rollout.trace()
    with torch.no_grad():
        assert not torch.equal(own(TOKENS).logits, want)


@pytest.mark.parametrize("name", ["Qwen3Moe", "DeepseekV3"])
def test_a_model_compiled_within_the_block_is_replayed(name):
    old, own = model(name), moved(model(name))
    _, rollout = recording(old)
    with torch.no_grad(), moe.replay(own, rollout.trace()):
        want = own(TOKENS).logits
        torch.testing.assert_close(torch.compile(own, backend="eager")(TOKENS).logits, want)


def test_a_model_that_cannot_be_replayed_is_refused():
    own = model()
    _, taken = recording(own)
    with pytest.raises(lockstep.Error, match="24 tokens: expected 10"), moe.replay(own, taken.trace()):
        own(TOKENS[:, :5])
    with pytest.raises(lockstep.Error, match="1 layers: expected 3"):
        moe.replay(own, routing.trace(taken.ids[0][0][:, None], 8))
    for recorded, mask, message in ((taken.ids, None, "`recorded` is a list: expected a RoutingTrace"), (taken.trace(), [1] * 24, "`mask` is a list")):
        with pytest.raises(lockstep.Error, match=message):
            moe.replay(own, recorded, mask=mask)
    with pytest.raises(lockstep.Error, match="no router of a supported class"):
        moe.record(torch.nn.Linear(2, 2))
    with pytest.raises(lockstep.Error, match="ran no token"), moe.record(own) as nothing:
        nothing.trace()

    class StrangeTopKRouter(torch.nn.Module):
        pass

    with pytest.raises(lockstep.Error, match="StrangeTopKRouter"):
        moe.record(torch.nn.Sequential(StrangeTopKRouter()))

    # What transformers has had before and after 5.10.
    class DeepseekV3MoE(torch.nn.Module):
        pass

    with pytest.raises(lockstep.Error, match="DeepseekV3MoE without `route_tokens_to_experts`"):
        moe.record(torch.nn.Sequential(DeepseekV3MoE()))
    own.model.layers[0].mlp.gate.register_forward_hook(lambda module, _, out: (out[0].softmax(-1), *out[1:]))
    with pytest.raises(lockstep.Error, match="return probabilities in place of logits"), moe.replay(own, taken.trace()):
        own(TOKENS)
