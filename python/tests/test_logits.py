"""Log-probabilities, entropies, divergences and draws of logits beside torch in float64."""

import math

import pytest

torch = pytest.importorskip("torch")

import lockstep  # noqa: E402
from lockstep import logits  # noqa: E402
from lockstep.arrays import launch  # noqa: E402


def rows(n=24, vocab=501, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    values = 3 * torch.randn(n, vocab, generator=generator)
    return values.to(dtype), torch.randint(0, vocab, (n,), generator=generator)


def by_torch(values, labels, temperature):
    logp = torch.log_softmax(values / temperature, -1)
    return logp.gather(1, labels[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values_and_gradients_are_torchs(dtype, temperature):
    values, labels = rows(dtype=dtype)
    ours, theirs = values.clone().requires_grad_(), values.double().requires_grad_()
    coef = torch.randn(2, len(labels), generator=torch.Generator().manual_seed(1))
    out = logits.statistics(ours, labels, temperature=temperature, entropy=True)
    want = by_torch(theirs, labels, temperature)
    torch.testing.assert_close(out.logp.double(), want[0], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(out.entropy.double(), want[1], atol=1e-6, rtol=1e-6)
    (coef[0] * out.logp + coef[1] * out.entropy).sum().backward()
    (coef[0] * want[0] + coef[1] * want[1]).sum().backward()
    assert ours.grad.dtype == dtype
    # In half precision the gradient is rounded once more.
    tolerance = 1e-6 if dtype == torch.float32 else torch.finfo(dtype).eps
    torch.testing.assert_close(ours.grad.double(), theirs.grad, atol=1e-6, rtol=tolerance)
    assert out.top.tolist() == values.argmax(-1).tolist()
    p = torch.softmax(theirs.detach() / temperature, -1)
    torch.testing.assert_close(out.collision.double(), p.square().sum(-1), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(out.lse.double(), torch.logsumexp(theirs.detach() / temperature, -1), atol=2e-6, rtol=1e-6)


def test_the_gradient_is_the_numerical_one():
    values, labels = rows(n=1, vocab=6, seed=4)
    own = values.clone().requires_grad_()
    out = logits.statistics(own, labels, entropy=True)
    (out.logp + 2 * out.entropy).sum().backward()
    step = 1e-2
    for place in range(6):
        ends = []
        for sign in (1, -1):
            shifted = values.double()
            shifted[0, place] += sign * step
            ends.append(sum(by_torch(shifted, labels, 1.0)[i] * (1, 2)[i] for i in (0, 1)).item())
        assert own.grad[0, place].item() == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=2e-4)


def test_rows_of_sequences_are_rows():
    values, labels = rows(dtype=torch.bfloat16)
    own = values.view(4, 6, -1).clone().requires_grad_()
    # What is not in one piece, too.
    wide = torch.cat([own, own], 2)[..., : own.shape[2]]
    shaped = logits.statistics(wide, labels.view(4, 6), entropy=True)
    (shaped.logp + shaped.entropy).sum().backward()
    flat = values.clone().requires_grad_()
    out = logits.statistics(flat, labels, entropy=True)
    (out.logp + out.entropy).sum().backward()
    for mine, want in zip(shaped, out, strict=True):
        assert torch.equal(mine, want.view(4, 6))
    assert torch.equal(own.grad.view_as(flat), flat.grad)
    assert logits.draw(wide, 3, seed=1).shape == (4, 6, 3) and logits.kl(wide, own.detach()).eq(0).all()


def test_either_gradient_alone_and_masked_rows():
    values, labels = rows()
    mask = torch.arange(len(labels)) % 3 != 0
    broken = values.clone()
    broken[0] = math.nan
    for name in ("logp", "entropy"):
        own = broken.clone().requires_grad_()
        out = logits.statistics(own, labels, entropy=True, mask=mask)
        getattr(out, name).sum().backward()
        theirs = values.double().requires_grad_()
        (by_torch(theirs, labels, 1.0)[name == "entropy"] * mask).sum().backward()
        torch.testing.assert_close(own.grad.double(), theirs.grad, atol=1e-6, rtol=1e-6)
        assert getattr(out, name)[~mask].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_float32_rounded_once_and_makes_no_copy(dtype, monkeypatch):
    values, labels = rows(dtype=dtype)
    mask = labels % 5 != 0
    taken = []
    monkeypatch.setattr(logits, "launch", lambda *arguments, **arrays: (taken.append(arrays), launch(*arguments, **arrays)))
    found = []
    for own in (values.clone().requires_grad_(), values.float().requires_grad_()):
        out = logits.statistics(own, labels, temperature=0.7, entropy=True, mask=mask)
        (out.logp - 0.1 * out.entropy).sum().backward()
        found.append((*out, own.grad.to(dtype)))
        assert [arrays["logits"].data_ptr() for arrays in taken] == 2 * [own.data_ptr()]
        taken.clear()
    for half, full in zip(*found, strict=True):
        assert torch.equal(half, full)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(24,), (4, 6)])
def test_the_backward_pass_can_work_in_place(dtype, shape, monkeypatch):
    # Sixteen rows at a time: two parts on a CPU.
    monkeypatch.setattr(logits, "_COPIED", 1)
    values, labels = rows(dtype=dtype)
    values, labels = values.view(*shape, -1), labels.view(shape)
    mask = labels % 5 != 0
    grads = []
    for inplace in (False, True):
        leaf = values.clone().requires_grad_()
        own = leaf * 1  # A leaf that requires a gradient would lose its value.
        out = logits.statistics(own, labels, entropy=True, mask=mask, inplace_backward=inplace)
        (out.logp * torch.linspace(-1, 2, labels.numel()).view(shape) - 0.1 * out.entropy).sum().backward()
        grads.append(leaf.grad)
        assert torch.equal(own.detach(), leaf.grad if inplace else values)
    assert torch.equal(*grads) and grads[0].any()
    with pytest.raises(lockstep.Error, match=r"`coef`\[20\] is inf"):
        out = logits.statistics((values * 1).requires_grad_(), labels, inplace_backward=True)
        coef = torch.zeros(labels.numel())
        coef[20] = math.inf
        out.logp.backward(coef.view(shape))
    with pytest.raises(lockstep.Error, match="float64"):
        logits.statistics(values.double(), labels, inplace_backward=True)
    with pytest.raises(lockstep.Error, match="not contiguous"):
        logits.statistics(values.flip(-1)[..., ::2], labels // 2, inplace_backward=True)


def test_logits_that_were_overwritten_give_no_other_gradient():
    values, labels = rows()
    leaf = values.requires_grad_()
    out = logits.statistics(leaf * 1, labels, inplace_backward=True)
    out.logp.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.logp.sum().backward()
    # The gradient of tanh needs its result.
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        logits.statistics(leaf.tanh(), labels, inplace_backward=True).logp.sum().backward()


def test_parts_of_logits_can_each_be_overwritten():
    values, labels = rows()
    grads = []
    for inplace in (False, True):
        leaf = values.clone().requires_grad_()
        parts = zip((leaf * 1).split(10), labels.split(10))
        sum(logits.statistics(*part, inplace_backward=inplace).logp.sum() for part in parts).backward()
        grads.append(leaf.grad)
    assert torch.equal(*grads)


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64])
def test_torchs_default_type_is_not_that_of_the_computation(default):
    values, labels = rows()
    reference, found = values.roll(1, 0), []
    for dtype in (torch.float32, default):
        torch.set_default_dtype(dtype)
        try:
            own = values.clone().requires_grad_()
            divergence, entropy = logits.kl(own, reference), logits.statistics(own, labels, entropy=True).entropy
            (divergence.sum() + entropy.sum()).backward()
        finally:
            torch.set_default_dtype(torch.float32)
        found.append((divergence, entropy, own.grad))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_forbidden_tokens_have_no_gradient():
    values, labels = rows(vocab=8)
    forbidden = torch.zeros_like(values, dtype=torch.bool)
    forbidden[torch.arange(len(labels)), (labels + 1) % 8] = True
    own = values.masked_fill(forbidden, -math.inf).requires_grad_()
    logits.statistics(own, labels, entropy=True).entropy.sum().backward()
    assert own.grad[forbidden].eq(0).all() and own.grad.isfinite().all()


@pytest.mark.parametrize("over", ["policy", "reference"])
def test_the_divergence_is_torchs(over):
    values, reference = rows()[0], rows(seed=5)[0]
    ours, theirs = values.clone().requires_grad_(), values.double().requires_grad_()
    found = logits.kl(ours, reference, over=over, temperature=0.9)
    p, q = (torch.log_softmax(side / 0.9, -1) for side in (theirs, reference.double()))
    want = (p.exp() * (p - q)).sum(-1) if over == "policy" else (q.exp() * (q - p)).sum(-1)
    coef = torch.linspace(-1, 2, len(values))
    (found * coef).sum().backward()
    (want * coef).sum().backward()
    torch.testing.assert_close(found.double(), want, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(ours.grad.double(), theirs.grad, atol=1e-6, rtol=1e-6)


def test_draws_are_the_distributions_and_the_same_again():
    values = rows(n=2, vocab=5)[0]
    tokens = logits.draw(values, 1000, seed=3)
    p = torch.softmax(values.double(), -1)
    for row in range(2):
        share = torch.bincount(tokens[row], minlength=5) / 1000
        # Stratified: a token's share is its probability but for one draw at each end.
        assert (share.double() - p[row]).abs().max() <= 2 / 1000
    assert torch.equal(tokens, logits.draw(values, 1000, seed=3))
    assert not torch.equal(tokens, logits.draw(values, 1000, seed=4))


def test_the_operators_are_traced_without_a_break():
    values, labels = rows(n=4, vocab=16)
    own = values.clone().requires_grad_()
    for arguments in [(own, labels, None, 1.0, True, False, True), (own, labels, labels > 3, 0.5, False, True, False)]:
        checks = torch.library.opcheck(torch.ops.lockstep.logits_statistics.default, arguments)
        assert set(checks.values()) == {"SUCCESS"}
    arguments = (own, values.flip(0), None, torch.zeros(4), "policy", 1.0, False)
    assert set(torch.library.opcheck(torch.ops.lockstep.logits_kl.default, arguments).values()) == {"SUCCESS"}
    torch._dynamo.reset()

    def loss(own, labels):
        out = logits.statistics(own, labels, entropy=True)
        return (out.logp - 0.1 * out.entropy).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    got, want = (torch.autograd.grad(function(own, labels), own)[0] for function in (compiled, loss))
    assert torch.equal(got, want)


def test_a_bad_row_of_a_call_that_did_not_wait_is_named_later():
    values, labels = rows(n=4, vocab=16)
    out = logits.statistics(values, labels, wait=False)
    assert torch.equal(out.logp, logits.statistics(values, labels).logp)
    out.check()
    for bad in (float("nan"), -float("inf")):
        late = out._replace(logp=out.logp.index_fill(0, torch.tensor([2, 3]), bad))
        with pytest.raises(lockstep.Error, match="row 2 is invalid") as refused:
            late.check()
        assert (refused.value.argument, refused.value.index) == ("logits", 2)
    # A CPU has computed everything when the call returns.
    values[1, 3] = float("nan")
    with pytest.raises(lockstep.Error):
        logits.statistics(values, labels, wait=False)


@pytest.mark.parametrize("shape", [(0,), (0, 3)])
@pytest.mark.parametrize("inplace_backward", [False, True])
def test_there_may_be_no_rows(shape, inplace_backward):
    leaf, labels = torch.randn(*shape, 4, requires_grad=True), torch.zeros(shape, dtype=torch.int64)
    out = logits.statistics(1 * leaf, labels, entropy=True, inplace_backward=inplace_backward)
    (out.logp.sum() + out.entropy.sum()).backward()
    assert leaf.grad.shape == (*shape, 4)


def test_what_is_wrong_is_named():
    values, labels = rows(n=4, vocab=16)
    bad = labels.clone()
    for token in (16, -1, -100):
        bad[2] = token
        with pytest.raises(lockstep.Error, match=rf"`labels`\[2\] is {token}: expected 0 to 15") as refused:
            logits.statistics(values, bad)
        assert (refused.value.argument, refused.value.index) == ("labels", 2)
    nan = values.clone()
    nan[1, 3] = math.nan
    with pytest.raises(lockstep.Error, match=r"`logits`\[19\]") as refused:
        logits.statistics(nan, labels)
    assert refused.value.index == 19
    with pytest.raises(lockstep.Error, match="temperature"):
        logits.statistics(values, labels, temperature=0.0)
    with pytest.raises(lockstep.Error, match=r"`labels` has shape \[3\]: expected \[4\]"):
        logits.statistics(values, labels[:3])
    with pytest.raises(lockstep.Error, match="float"):
        logits.statistics(values.long(), labels)
    for wrong in (dict(draws=2000, seed=0), dict(draws=-1, seed=0), dict(draws=1.5, seed=0), dict(seed=-1), dict(seed=1 << 64)):
        with pytest.raises(lockstep.Error, match=f"`{min(wrong) if wrong['seed'] == 0 else 'seed'}` is"):
            logits.draw(values, **wrong)
    with pytest.raises(lockstep.Error, match="`over` is 'both'"):
        logits.kl(values, values, over="both")
    for name, wrong in (("logits", dict(logits=values.numpy())), ("labels", dict(labels=[0] * 4)), ("mask", dict(mask=[1] * 4))):
        with pytest.raises(lockstep.Error, match=f"`{name}` is a .*: expected a tensor"):
            logits.statistics(**{"logits": values, "labels": labels, **wrong})
    with pytest.raises(lockstep.Error, match="tensors are on meta"):
        logits.statistics(values.to("meta"), labels.to("meta"))
    with pytest.raises(lockstep.Error, match="infinite|finite"):
        logits.kl(values, values.masked_fill(torch.eye(4, 16, dtype=torch.bool), -math.inf))
    own = values.clone().requires_grad_()
    with pytest.raises(lockstep.Error, match="`reference` requires grad"):
        logits.kl(values, own)
    with pytest.raises(lockstep.Error, match=r"`coef`\[1\]"):
        logits.statistics(own, labels).logp.backward(torch.tensor([1.0, math.inf, 0, 0]))
