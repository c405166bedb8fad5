"""Routing replay: our weights and gradients beside torch's of a forced router, and in models of transformers."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import lockstep  # noqa: E402
from lockstep import routing  # noqa: E402

KINDS = ["softmax_chosen", "softmax_all", "sigmoid_normalized", "sigmoid", "sqrt_softplus"]


def forced(scores, ids, kind, scale):
    """The weights of given experts, by torch alone."""
    if kind.startswith("softmax"):
        weights = torch.softmax(scores, -1).gather(1, ids)
    elif kind == "sqrt_softplus":
        weights = torch.nn.functional.softplus(scores).sqrt().gather(1, ids)
    else:
        weights = torch.sigmoid(scores).gather(1, ids)
    if kind not in ("softmax_all", "sigmoid"):
        weights = weights / weights.sum(-1, keepdim=True)
    return scale * weights


def scores_and_ids(rows=32, experts=16, top_k=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, experts, generator=generator)
    return scores, torch.rand(rows, experts, generator=generator).argsort(1)[:, :top_k]


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_gradient_are_those_of_the_forced_router(kind):
    scores, ids = scores_and_ids()
    coef = torch.randn(ids.shape, generator=torch.Generator().manual_seed(1))
    ours, theirs = scores.clone().requires_grad_(), scores.double().requires_grad_()
    weights, ran = routing.gates(ours, ids, top_k=4, kind=kind, scale=2.5)
    want = forced(theirs, ids, kind, 2.5)
    (weights * coef).sum().backward()
    (want * coef).sum().backward()
    assert torch.equal(ran, ids)
    torch.testing.assert_close(weights.double(), want, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(ours.grad.double(), theirs.grad, atol=1e-6, rtol=1e-6)


def test_without_a_record_the_router_chooses():
    scores, ids = scores_and_ids()
    top = scores.topk(4).indices
    ids[3] = -1
    _, ran = routing.gates(scores, ids, top_k=4, mask=torch.arange(32) != 5)
    for row in range(32):
        assert torch.equal(ran[row], top[row] if row in (3, 5) else ids[row]), row
    assert torch.equal(routing.gates(scores, top_k=4)[1], top)


@pytest.mark.parametrize("experts", [16, 256, 300])
def test_a_trace_goes_through_bytes_and_files(experts):
    ids = torch.stack([scores_and_ids(6, experts, 4, seed)[1] for seed in range(3)], 1).numpy()
    ids[2, 1] = -1
    recorded = routing.trace(ids, experts)
    assert (recorded.tokens, recorded.layers, recorded.top_k) == ids.shape
    assert len(recorded.entries) == ids.size * (1 if experts <= 256 else 2)
    again = routing.RoutingTrace.from_safetensors(recorded.to_safetensors())
    assert again.entries == recorded.entries and again.experts == experts
    again.stitch(recorded, 1, 3)
    again.append_absent(1)
    assert again.tokens == 9
    scores = scores_and_ids(6, experts)[0]
    ran = routing._gates(scores, routing._of_trace(recorded, "cpu"), None, None, 1, routing.Router(4))[1]
    want = torch.from_numpy(ids[:, 1].copy())
    want[2] = scores[2].topk(4).indices
    assert torch.equal(ran, want)


def test_mismatch_counts_sets():
    a = np.array([[[0, 1], [2, 3]], [[4, 5], [6, 7]]])
    b = np.array([[[1, 0], [2, 1]], [[4, 5], [7, 6]]])
    found = routing.mismatch(a, torch.from_numpy(b))
    assert (found["routers"], found["differing"], found["token_fraction"]) == (4, 1, 0.5)
    assert found["overlap"] == 7 / 8 and found["layers"] == [(2, 0), (2, 1)]


def test_statistics_of_weights():
    scores, ids = torch.tensor([[1.0, 2.0, 0.5, -1.0]]), np.array([[[0, 2]]])
    recorded = routing.trace(ids, 4)
    want = math.log((math.exp(1) + math.exp(2)) / (math.exp(1) + math.exp(0.5)))
    assert routing.replay_kl(recorded, scores, routing.Router(2))["mean"] == pytest.approx(want, abs=1e-6)
    p, q = np.array([[[0.7, 0.3]]]), np.array([[[0.6, 0.4]]])
    want = 0.7 * math.log(0.7 / 0.6) + 0.3 * math.log(0.3 / 0.4)
    assert routing.gate_kl(recorded, p, recorded, q)["mean"] == pytest.approx(want, abs=1e-6)
    assert recorded.load() == [0.5, 0, 0.5, 0] and recorded.load(sum_to_top_k=True) == [1, 0, 1, 0]


def test_the_load_balance_loss_is_torchs():
    scores, ids = scores_and_ids()
    load = torch.tensor(routing.trace(ids[:, None], 16).load())
    ours, theirs = scores.clone().requires_grad_(), scores.double().requires_grad_()
    loss = routing.balance_loss(ours, load, 0.01)
    want = 0.01 * 16 * (load.double() * torch.softmax(theirs, -1).mean(0)).sum()
    (3 * loss).backward()
    (3 * want).backward()
    assert loss.item() == pytest.approx(want.item(), abs=1e-7)
    torch.testing.assert_close(ours.grad.double(), theirs.grad, atol=1e-7, rtol=1e-6)


def test_the_operator_is_traced_without_a_break():
    scores, ids = scores_and_ids()
    own = scores.clone().requires_grad_()
    arguments = (own, ids, None, None, 0, 4, "softmax_all", 1.0, 1, 1)
    checks = torch.library.opcheck(torch.ops.lockstep.gating.default, arguments)
    assert set(checks.values()) == {"SUCCESS"}
    torch._dynamo.reset()

    def loss(scores, ids):
        return routing.gates(scores, ids, top_k=4)[0].square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    got, want = (torch.autograd.grad(function(own, ids), own)[0] for function in (compiled, loss))
    assert torch.equal(got, want)


def test_what_is_wrong_is_named():
    scores, ids = scores_and_ids()
    for bad, message in [(16, r"`trace`\[2\] is 16: expected an expert"), (int(ids[0, 1]), "as entry 1 is")]:
        wrong = ids.clone()
        wrong[0, 2] = bad
        with pytest.raises(lockstep.Error, match=message) as refused:
            routing.gates(scores, wrong, top_k=4)
        assert refused.value.argument == "trace"
    with pytest.raises(lockstep.Error, match=r"`ids` has shape \[32, 4\]: expected \[32, 3\]"):
        routing.gates(scores, ids, top_k=3)
    nan = scores.clone()
    nan[1, 2] = math.nan
    with pytest.raises(lockstep.Error, match="`scores`") as refused:
        routing.gates(nan, ids, top_k=4)
    assert (refused.value.argument, refused.value.index) == ("scores", 18)
    with pytest.raises(lockstep.Error, match="missing"):
        routing.trace(np.array([[[0, -1]]]), 4)
    with pytest.raises(lockstep.Error, match="the number of experts"):
        routing.gates(scores, top_k=17)
    with pytest.raises(ValueError, match="softmax_chosen"):
        routing.gates(scores, top_k=2, kind="relu")


# --- models -------------------------------------------------------------------------------------------------------

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
        with routing.record(own) as taken:
            stock = own(TOKENS).logits
        with routing.replay(own, taken.trace()) as ran:
            replayed = own(TOKENS).logits
    assert routing.mismatch(ran.trace(), taken.trace())["differing"] == 0
    torch.testing.assert_close(replayed, stock, atol=1e-5, rtol=1e-5)
    # Nothing of ours is left behind.
    assert torch.equal(own(TOKENS).logits, stock)


@pytest.mark.parametrize("name", MODELS)
def test_moved_weights_choose_other_experts_and_replay_none(name):
    old = model(name)
    with torch.no_grad(), routing.record(old) as rollout:
        old(TOKENS)
    new = moved(old)
    with torch.no_grad(), routing.record(new) as live:
        free = new(TOKENS).logits
    assert routing.mismatch(live.trace(), rollout.trace())["differing"] > 0
    with torch.no_grad(), routing.replay(new, rollout.trace()) as ran:
        forced_ = new(TOKENS).logits
    found = routing.mismatch(ran.trace(), rollout.trace())
    assert found["differing"] == 0 and found["routers"] == TOKENS.numel() * rollout.trace().layers
    assert not torch.allclose(free, forced_, atol=1e-4)


class Forced(torch.nn.Module):
    """Qwen3's router with given experts, by torch alone."""

    def __init__(self, router, ids):
        super().__init__()
        self.router, self.ids, self.logits = router, ids, None

    def forward(self, hidden):
        self.logits = torch.nn.functional.linear(hidden.reshape(-1, self.router.hidden_dim), self.router.weight)
        self.logits.retain_grad()
        weights = torch.softmax(self.logits, -1, dtype=torch.float).gather(1, self.ids)
        return self.logits, weights / weights.sum(-1, keepdim=True), self.ids


def test_gradients_are_autograds_of_the_forced_router():
    old = model()
    with torch.no_grad(), routing.record(old) as rollout:
        old(TOKENS)
    recorded = rollout.trace()
    ours, theirs = moved(model()), moved(model())
    seen = []
    for module in routing._routers(ours):
        module.register_forward_hook(lambda _, __, output: (output[0].retain_grad(), seen.append(output[0]))[1])
    stands_in = []
    for layer, block in enumerate(layer.mlp for layer in theirs.model.layers):
        block.gate = Forced(block.gate, rollout.ids[layer][0])
        stands_in.append(block.gate)

    def loss(own):
        return torch.nn.functional.cross_entropy(own(TOKENS[:, :-1]).logits.flatten(0, 1), TOKENS[:, 1:].flatten())

    # A prefix of the tokens: the trace of a forward with as many.
    rows = torch.arange(TOKENS.numel()).view(TOKENS.shape)[:, :-1].flatten()
    ids = torch.stack([rollout.ids[layer][0][rows] for layer in range(recorded.layers)], 1)
    for layer, own in enumerate(stands_in):
        own.ids = ids[:, layer]
    with routing.replay(ours, routing.trace(ids, recorded.experts)) as ran:
        loss(ours).backward()
    loss(theirs).backward()
    assert routing.mismatch(ran.trace(), ids)["differing"] == 0
    for mine, want in zip(seen, stands_in, strict=True):
        assert want.logits.grad.abs().max() > 1e-4
        torch.testing.assert_close(mine.grad, want.logits.grad, atol=1e-6, rtol=0)
    for mine, want in zip(ours.parameters(), (p for p in theirs.parameters()), strict=True):
        torch.testing.assert_close(mine.grad, want.grad, atol=1e-6, rtol=1e-4)


def test_checkpointed_layers_replay_too():
    old, own = model(), moved(model()).train()
    with torch.no_grad(), routing.record(old) as rollout:
        old(TOKENS)
    gradients = []
    for checkpointed in (False, True):
        own.zero_grad()
        own.gradient_checkpointing_enable({"use_reentrant": False}) if checkpointed else None
        with routing.replay(own, rollout.trace()):
            own(TOKENS).logits.square().mean().backward()
        gradients.append([parameter.grad.clone() for parameter in own.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_a_model_that_cannot_be_replayed_is_refused():
    own = model()
    with torch.no_grad(), routing.record(own) as taken:
        own(TOKENS)
    with pytest.raises(lockstep.Error, match="24 tokens: expected 10"), routing.replay(own, taken.trace()):
        own(TOKENS[:, :5])
    with pytest.raises(lockstep.Error, match="1 layers: expected 3"):
        routing.replay(own, routing.trace(taken.ids[0][0][:, None], 8))
    with pytest.raises(lockstep.Error, match="no router of a known class"):
        routing.record(torch.nn.Linear(2, 2))
    with pytest.raises(lockstep.Error, match="ran no token"), routing.record(own) as nothing:
        nothing.trace()

    class StrangeTopKRouter(torch.nn.Module):
        pass

    with pytest.raises(lockstep.Error, match="StrangeTopKRouter"):
        routing.record(torch.nn.Sequential(StrangeTopKRouter()))
