"""Routing replay: our weights and gradients beside torch's of a forced router; traces."""

import math
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

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
    assert again == recorded == pickle.loads(pickle.dumps(recorded)) and again.entries == recorded.entries
    assert repr(again) == f"RoutingTrace(6 tokens, 3 layers, 4 of {experts} experts)"
    again.stitch(recorded, 1, 3)
    again.append_absent(1)
    assert again.tokens == 9 and again != recorded
    scores = scores_and_ids(6, experts)[0]
    ran = routing.gates_of_trace(scores, routing.entries(recorded, "cpu"), 1, routing.Router(4))[1]
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
    whole = bytearray(b"." + p.tobytes())
    moved = [routing._place(np.frombuffer(whole, "f8", offset=1).reshape(p.shape), type_) for type_ in ("f4", "f8")]
    assert all(array.flags.aligned and array.tolist() == p.astype(array.dtype).tolist() for array, _ in moved)
    assert recorded.load() == [0.5, 0, 0.5, 0] and recorded.load(sum_to_top_k=True) == [1, 0, 1, 0]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_ids_are_integers_of_any_type(dtype):
    scores, ids = scores_and_ids()
    weights, experts = routing.gates(scores, ids.to(dtype), top_k=4)
    assert torch.equal(weights, routing.gates(scores, ids, top_k=4)[0]) and torch.equal(experts, ids)
    largest = torch.tensor([[[0, torch.iinfo(dtype).max]]], dtype=dtype)
    if dtype in (torch.uint8, torch.int8):
        assert routing.mismatch(largest, largest)["differing"] == 0


def test_shapes_are_those_of_the_trace():
    scores, ids = scores_and_ids()
    trace, router = routing.trace(ids.view(16, 2, 4), 16), routing.Router(4)
    scores = scores.view(16, 2, 16)
    assert routing.replay_kl(trace, scores.bfloat16(), router) == routing.replay_kl(trace, scores.bfloat16().float(), router)
    with pytest.raises(lockstep.Error, match=r"`scores` has shape \[2, 16, 16\]: expected \[16, 2, 16\]"):
        routing.replay_kl(trace, scores.transpose(0, 1), router)
    weights = torch.rand(16, 2, 4)
    with pytest.raises(lockstep.Error, match="`b_weights` has shape"):
        routing.gate_kl(trace, weights, trace, weights.transpose(0, 1))
    for append in (trace.append_absent, trace.append_padding):
        with pytest.raises(lockstep.Error, match="`tokens`"):
            append(2**62)


def test_the_load_balance_loss_is_torchs():
    scores, ids = scores_and_ids()
    load = torch.tensor(routing.trace(ids[:, None], 16).load())
    ours, theirs = scores.clone().requires_grad_(), scores.double().requires_grad_()
    loss = routing.balance_loss(ours, load, 0.01)
    want = 0.01 * 16 * (load.double() * torch.softmax(theirs, -1).mean(0)).sum()
    (3 * loss).backward()
    (3 * want).backward()
    assert routing.balance_loss(scores, load.tolist(), 0.01) == loss
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


def test_the_load_balance_loss_of_no_row_is_0():
    scores = torch.ones(0, 4, requires_grad=True)
    loss = routing.balance_loss(scores, [0.25] * 4, 0.1)
    loss.backward()
    assert loss.item() == 0 and scores.grad.shape == (0, 4)


def test_what_is_wrong_is_named():
    scores, ids = scores_and_ids()
    recorded = routing.trace(ids.view(16, 2, 4), 16)
    for call, message in [
        (lambda: routing.mismatch(5, recorded), r"`a` has shape \[\]: expected"),
        (lambda: routing.mismatch(recorded, ids.float()), "`b` has type float32: expected integers"),
        (lambda: routing.gate_kl(recorded, [1.0], ids, [1.0]), "`b` is a Tensor: expected a RoutingTrace"),
        (lambda: routing.replay_kl(ids, scores, routing.Router(4)), "`recorded` is a Tensor: expected a RoutingTrace"),
        (lambda: routing.balance_loss(scores, None, 0.1), r"`load` is a NoneType: expected a tensor or floats, \[16\]"),
        (lambda: routing.gates(scores.to_sparse(), top_k=4), "`scores` has layout torch.sparse_coo: expected a dense tensor"),
    ]:
        with pytest.raises(lockstep.Error, match=message):
            call()
    for bad, message in [(16, r"`trace`\[2\] is 16: expected an expert"), (int(ids[0, 1]), "the same as entry 1")]:
        wrong = ids.clone()
        wrong[0, 2] = bad
        with pytest.raises(lockstep.Error, match=message) as refused:
            routing.gates(scores, wrong, top_k=4)
        assert refused.value.argument == "trace"
    with pytest.raises(lockstep.Error, match=r"`ids` has shape \[32, 4\]: expected \[32, 3\]"):
        routing.gates(scores, ids, top_k=3)
    for wrong in (ids.float(), ids.bool()):
        with pytest.raises(lockstep.Error, match="`ids` has type"):
            routing.gates(scores, wrong, top_k=4)
    nan = scores.clone()
    nan[1, 2] = math.nan
    with pytest.raises(lockstep.Error, match="`scores`") as refused:
        routing.gates(nan, ids, top_k=4)
    assert (refused.value.argument, refused.value.index) == ("scores", 18)
    with pytest.raises(lockstep.Error, match="missing"):
        routing.trace(np.array([[[0, -1]]]), 4)
    with pytest.raises(lockstep.Error, match="the number of experts"):
        routing.gates(scores, top_k=17)
    with pytest.raises(lockstep.Error, match="`bias` requires grad"):
        routing.gates(scores, top_k=4, bias=torch.zeros(16, requires_grad=True))
    with pytest.raises(lockstep.Error, match="`load` requires grad"):
        routing.balance_loss(scores, torch.ones(16, requires_grad=True), 0.1)
    with pytest.raises(lockstep.Error, match="`kind` is 'relu': expected one of softmax_chosen"):
        routing.gates(scores, top_k=2, kind="relu")
    routing.gates(scores, top_k=4)
    for top_k in (0, -1, 1.5, 4.0):
        with pytest.raises(lockstep.Error, match=f"`top_k` is {top_k}"):
            routing.gates(scores, top_k=top_k)
    for wrong in (dict(scores=scores.numpy()), dict(ids=ids.tolist())):
        with pytest.raises(lockstep.Error, match=f"`{min(wrong)}` is a .*: expected a tensor"):
            routing.gates(**{"scores": scores, "top_k": 4, **wrong})
    # Not the row that is masked.
    padded, mask = ids.clone(), torch.ones(len(ids))
    padded[0], mask[0] = -100, 0
    with pytest.raises(lockstep.Error, match=r"`scores`\[18\] is NaN"):
        routing.gates(nan, padded, top_k=4, mask=mask.bool())
