"""The operator of torch: registered rightly, traced without a break, equal bits, nothing copied."""

import gc
import re
import weakref
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import lockstep  # noqa: E402
import lockstep.routing  # noqa: E402
import lockstep.torch  # noqa: E402

OP = torch.ops.lockstep.loss.default


def batch(rows=8, width=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    old = -2 * torch.rand(rows, width, generator=generator)
    new = (old + 0.3 * torch.randn(rows, width, generator=generator)).clamp(max=0).requires_grad_()
    mask = torch.rand(rows, width, generator=generator) > 0.2
    return new, old, torch.randn(rows, generator=generator), mask, torch.tensor([rows * width, rows, rows])


def loss(new, old, advantage, mask, counts):
    return lockstep.torch.loss("dapo", advantage, logp=new, logp_old=old, loss_mask=mask, counts=counts).loss


def gradient(function, arguments):
    arguments[0].grad = None
    value = function(*arguments)
    value.backward()
    return value.detach(), arguments[0].grad.clone()


def test_the_operator_passes_torchs_own_checks():
    new, old, advantage, mask, counts = batch()
    columns = dict(logp_old=old, loss_mask=mask, counts=counts)
    constants = [columns.get(name) for name in lockstep.torch._COLUMNS]
    checks = torch.library.opcheck(OP, ("dapo", 0, False, True, new, None, None, advantage, None, None, None, *constants))
    assert set(checks.values()) == {"SUCCESS"} and len(checks) == 4


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_without_a_break_the_bits_are_eagers(backend):
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    arguments = batch()
    for got, want in zip(gradient(compiled, arguments), gradient(loss, arguments)):
        assert torch.equal(got, want)


def test_lengths_and_denominators_are_not_compiled_in():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(loss, fullgraph=True, backend=counter)
    for width in (16, 24, 32, 48):
        gradient(compiled, batch(width=width))
    assert counter.frame_count <= 2
    before = counter.frame_count
    for tokens in (100, 200, 300, 400):
        *rest, counts = batch(width=48)
        gradient(compiled, (*rest, counts + tokens))
    assert counter.frame_count == before


def test_the_gradient_is_the_numerical_one():
    new, old, advantage, mask, counts = batch(rows=2, width=4)
    _, closed = gradient(loss, (new, old, advantage, mask, counts))
    step = 1e-3
    for place in range(new.numel()):
        moved = torch.zeros(new.numel())
        moved[place] = step
        ends = [loss((new.detach() + sign * moved.view_as(new)).clamp(max=0), old, advantage, mask, counts) for sign in (1, -1)]
        # A token at a bound of the clip has no derivative.
        if not new.flatten()[place] > -step:
            assert ((ends[0] - ends[1]) / (2 * step)).item() == pytest.approx(closed.flatten()[place].item(), abs=2e-4)


def test_a_scaled_loss_has_a_gradient_scaled_exactly():
    arguments = batch()
    _, plain = gradient(loss, arguments)
    _, scaled = gradient(lambda *own: loss(*own) * 65536, arguments)
    assert torch.equal(scaled, plain * 65536)


def test_half_precision_comes_back_as_it_went_in():
    new, *rest = batch()
    half = new.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value, own = gradient(loss, (half, *rest))
    assert value.dtype == torch.float32 and own.dtype == torch.bfloat16


def test_columns_of_the_right_type_are_not_copied():
    new, old, advantage, mask, counts = batch()
    own = lockstep.columns.Batch(dict(logp=new, logp_old=old, loss_mask=mask, counts=counts), None)
    for name, tensor in dict(logp=new, logp_old=old, loss_mask=mask, counts=counts).items():
        assert own.arrays[name].data_ptr() == tensor.data_ptr(), name


def test_memory_may_start_anywhere():
    new, old, advantage, _, _ = batch()

    def moved(tensor):
        out = torch.frombuffer(bytearray(4 * tensor.numel() + 1), dtype=torch.float32, offset=1).view(tensor.shape)
        assert out.copy_(tensor).data_ptr() % 4
        return out

    reads, want = frozenset(range(64)), lockstep.loss("dapo", lockstep.Credit(advantage), logp=new, logp_old=old)
    # Their layout is unknown, then known.
    for columns in (dict(logp=moved(new), logp_old=old), dict(logp=new, logp_old=old), dict(logp=moved(new), logp_old=moved(old))):
        places = lockstep.columns.Batch(columns, None).places(reads)
        assert len(places) == 4 and not any(at % 4 for _, at, _ in places)
        credit, kept = lockstep.Credit(moved(advantage)), []
        assert not lockstep._places(credit, lockstep.columns.Batch(columns, None), kept)[0][0] % 4 and len(kept) == 1
        assert torch.equal(lockstep.loss("dapo", credit, **columns).coef, want.coef)
    with pytest.raises(lockstep.Error, match="`scores` starts at .* a multiple of 4"):
        lockstep.routing.gates(moved(old), top_k=2)


def test_log_ratios_may_be_given():
    new, old, advantage, mask, _ = batch()
    recipe, columns = {"extends": "grpo", "ratio.level": "given"}, dict(logp=new, log_ratio=(new - old).detach(), loss_mask=mask)
    want = lockstep.loss(recipe, lockstep.Credit(advantage), **columns)
    for metrics in (True, False, False):
        got = lockstep.torch.loss(recipe, advantage, metrics=metrics, **columns)
        assert got.loss == want.loss.float() and torch.equal(got.coef, want.coef)
    compiled = torch.compile(lambda recipe, **columns: lockstep.torch.loss(recipe, advantage, **columns).loss, fullgraph=True, backend="eager")
    assert compiled(lockstep.recipe(recipe).toml, **columns) == want.loss.float()


def test_every_column_that_a_loss_can_read_is_known():
    needs = (Path(__file__).resolve().parents[2] / "lockstep/src/recipe/needs.rs").read_text()
    assert set(re.findall(r"Column::(\w+)", needs.split("fn loss_needs")[1])) <= lockstep.torch._KNOWN


def test_what_is_wrong_is_named():
    new, old, advantage, mask, counts = batch()
    with pytest.raises(lockstep.Error, match=r"`logp_old` has shape \[8, 3\]: expected \[8, 16\]"):
        lockstep.torch.loss("dapo", advantage, logp=new, logp_old=old[:, :3])
    above = new.detach().clone()
    above[2, 3] = 0.5
    with pytest.raises(lockstep.Error, match=r"`logp`\[35\] is 0.5") as refused:
        lockstep.torch.loss("dapo", advantage, logp=above, logp_old=old)
    assert (refused.value.argument, refused.value.index) == ("logp", 35)
    with pytest.raises(lockstep.Error, match="missing columns: logp_ref"):
        lockstep.torch.loss("nemo_kl", advantage, logp=new, logp_old=old)
    for name, credit, logp in (("logp", advantage, old.numpy()), ("credit", advantage.tolist(), new), ("credit", None, new)):
        with pytest.raises(lockstep.Error, match=f"`{name}` is a .*: expected a"):
            lockstep.torch.loss("dapo", credit, logp=logp, logp_old=old, metrics=False)
    with pytest.raises(lockstep.Error, match="`credit` is NoneType: expected a Credit"):
        lockstep.loss("dapo", None, logp=old, logp_old=old)
    for loss_ in (lockstep.loss, lockstep.torch.loss):
        with pytest.raises(lockstep.Error, match="`credit.advantage` is None: expected one per sequence"):
            loss_("dapo", lockstep.Credit(None), logp=old, logp_old=old)
    for bad in (-1, 2**32):
        for offsets in ([0, bad, 128], [0, 64, bad]):
            with pytest.raises(lockstep.Error, match=rf"`cu_seqlens`\[{offsets.index(bad)}\] is {bad}: expected 0 to 4294967295") as refused:
                lockstep.torch.loss("dapo", advantage[:2], logp=old.view(-1), logp_old=old.view(-1), cu_seqlens=torch.tensor(offsets))
            assert (refused.value.argument, refused.value.index) == ("cu_seqlens", offsets.index(bad))
    packed = dict(logp=old.view(-1), logp_old=old.view(-1))
    # The second time, tensors of these shapes are known.
    for offsets in ([0, -1, 128], [0, 64, 128], [0, -1, 128]):
        for metrics in (False, True):
            columns = dict(packed, cu_seqlens=torch.tensor(offsets, dtype=torch.int32))
            if offsets[1] > 0:
                lockstep.torch.loss("dapo", advantage[:2], metrics=metrics, **columns)
                continue
            with pytest.raises(lockstep.Error, match=r"`cu_seqlens`\[1\] is -1: expected 0 to 4294967295"):
                lockstep.torch.loss("dapo", advantage[:2], metrics=metrics, **columns)
    with pytest.raises(lockstep.Error, match="`loss_mask` has 127 entries: expected 128"):
        lockstep.loss("dapo", lockstep.Credit(advantage[:2]), loss_mask=mask.view(-1)[:127], cu_seqlens=[0, 64, 128], **packed)
    for wrong in ([1.0] * 8, old.numpy(), old.double().numpy()):
        for name, recipe in (("entropy", {"extends": "grpo", "entropy.coef": 0.01}), ("values", "ppo_critic")):
            with pytest.raises(lockstep.Error, match=f"`{name}` is a .*: expected a tensor"):
                lockstep.torch.loss(recipe, advantage, logp=new, logp_old=old, **{name: wrong})
    for name in ("logp", "logp_old"):
        with pytest.raises(lockstep.Error, match=f"`{name}` has layout torch.sparse_coo: expected a dense tensor"):
            lockstep.torch.loss("dapo", advantage, **{"logp": old, "logp_old": old, name: old.to_sparse()})


def test_a_group_size_of_any_type_is_a_number():
    rewards, size = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor(2)
    columns = dict(rewards=rewards, logp_old=-torch.ones(4, 2))
    for groups in (2, 4):
        size.fill_(groups)
        for given in (size, np.array(groups), np.int32(groups)):
            assert torch.equal(lockstep.advantages("grpo", group_size=given, **columns).advantage, lockstep.advantages("grpo", group_size=groups, **columns).advantage)
    size.fill_(3)
    for wrong in (size, 3, 2.0):
        with pytest.raises(lockstep.Error, match="`group_size` is .*: expected a"):
            lockstep.torch.loss("dapo", rewards, logp=columns["logp_old"], logp_old=columns["logp_old"], group_size=wrong, metrics=False)


class Wrapper(torch.Tensor):
    """A tensor without memory, as DTensor is."""

    @staticmethod
    def __new__(cls, like):
        return torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype)

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        return cls(args[0]) if op in (torch.ops.aten.empty_like.default, torch.ops.aten.detach.default) else NotImplemented


def test_a_tensor_without_memory_is_refused():
    _, old, advantage, _, _ = batch()
    for _ in range(2):  # The second call is a prepared one.
        lockstep.torch.loss("dapo", advantage, logp=old, logp_old=old, metrics=False)
    for columns in (dict(logp=old, logp_old=Wrapper(old)), dict(logp=Wrapper(old), logp_old=old)):
        with pytest.raises(lockstep.Error, match="a Wrapper has no memory of its own"):
            lockstep.torch.loss("dapo", advantage, metrics=False, **columns)


def test_a_tensor_that_is_negated_lazily_is_refused():
    _, old, advantage, _, _ = batch()
    for logp in (old, torch._neg_view(-old)):
        refused = pytest.raises(lockstep.Error, match="expected a plain tensor, .resolve_neg()") if logp.is_neg() else nullcontext()
        for _ in range(2):  # The second call is a prepared one.
            with refused:
                lockstep.torch.loss("dapo", advantage, logp=old, logp_old=logp, metrics=False)


def test_the_loss_is_on_the_device_of_its_columns():
    new, old, advantage, _, _ = batch()
    with torch.device("meta"):
        for _ in range(2):
            out = lockstep.torch.loss("dapo", advantage, logp=new, logp_old=old, metrics=False)
            out.loss.backward()
    assert out.loss.device == new.device


def test_without_metrics_the_gradient_is_the_same_and_metrics_are_refused():
    new, old, advantage, mask, counts = batch()
    outs = [
        lockstep.torch.loss("dapo", advantage, metrics=wanted, logp=new, logp_old=old, loss_mask=mask, counts=counts)
        for wanted in (True, False)
    ]
    assert torch.equal(outs[0].loss, outs[1].loss) and torch.equal(outs[0].coef, outs[1].coef)
    assert lockstep.torch.metrics(outs[0].stats)["ratio_mean"] > 0
    with pytest.raises(lockstep.Error, match="without metrics"):
        lockstep.torch.metrics(outs[1].stats)


def test_nothing_is_copied_on_the_way_through_the_operator():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            self.names.append(function.name())
            return function(*arguments, **(keywords or {}))

    new, old, advantage, mask, counts = batch()
    columns = dict(logp_old=old, loss_mask=mask, counts=counts)
    with Seen() as outside:
        whole = lockstep.torch.loss("dapo", advantage, logp=new, metrics=False, **columns)
    assert outside.names == ["lockstep::loss"]
    constants = [columns.get(name) for name in lockstep.torch._COLUMNS]
    with Seen() as inside:
        out = lockstep.torch._operator("dapo", 0, False, False, new.detach(), None, None, advantage, None, None, None, *constants)
    assert torch.equal(out[2], whole.coef) and inside.names
    copies = [name for name in inside.names if any(word in name for word in ("clone", "copy", "contiguous", "cat"))]
    assert not copies, inside.names


def test_a_prepared_call_is_the_call_itself():
    """Whatever changes from one call to the next, the bits are those of a call with metrics, which is never prepared."""
    new, old, advantage, mask, counts = batch()
    given = dict(logp_old=old, loss_mask=mask, counts=counts)
    turned = new.detach().t().contiguous().t().requires_grad_()
    other = batch(rows=4, seed=1)
    calls = [
        (new, advantage, given),
        (new, advantage, {**given, "loss_mask": None}),
        (new, advantage, {**given, "loss_mask": mask.long()}),
        (new, advantage, {**given, "logp_old": old.double()}),
        (new, advantage, {**given, "logp_old": old.t().contiguous().t()}),
        (turned, advantage, given),
        (new, advantage.double(), given),
        (new, lockstep.Credit(advantage, weights=torch.full_like(old, 0.5)), given),
        (new, lockstep.Credit(advantage, loss_mask=(~mask).view(torch.uint8)), given),
        (new, advantage[:, None].expand_as(old).contiguous(), given),
        (other[0], other[2], dict(logp_old=other[1], loss_mask=other[3], counts=other[4])),
        (new, advantage, {**given, "logp_old": old.tolist()}),
        (new, lockstep.Credit(advantage.tolist()), given),
        (new.detach().flatten().requires_grad_(), advantage, dict(logp_old=old.flatten(), cu_seqlens=list(range(0, 129, 16)))),
    ]
    prepared = len(lockstep.torch._PREPARED)
    for _ in range(3):
        for logp, credit, columns in calls:
            results = [lockstep.torch.loss("dapo", credit, logp=logp, metrics=metrics, **columns) for metrics in (False, True)]
            (one,), (two,) = (torch.autograd.grad(result.loss, logp) for result in results)
            assert torch.equal(one, two) and torch.equal(results[0].loss, results[1].loss)
            assert torch.equal(results[0].coef, results[1].coef)
    assert len(lockstep.torch._PREPARED) > prepared
    above = new.detach().clone()
    above[2, 3], mask[2, 3] = 0.5, True
    with pytest.raises(lockstep.Error, match=r"`logp`\[35\] is 0.5"):
        lockstep.torch.loss("dapo", advantage, logp=above, metrics=False, **given)
    with pytest.raises(lockstep.Error, match=r"`logp_old` has shape \[8, 3\]"):
        lockstep.torch.loss("dapo", advantage, logp=new, metrics=False, **{**given, "logp_old": old[:, :3]})


def test_a_check_to_come_keeps_the_workspace_that_it_reads(monkeypatch):
    blocks = []

    class OnGPU(lockstep.columns.Torch):
        """Tensors of a CPU by the name of a GPU, whose launches are not waited for."""

        stream, threads = 0, None

        def workspace(self, size):
            block, address = super().workspace(size)
            blocks.append(weakref.ref(block))
            return block, address

    of, cpu = OnGPU(torch.device("cpu")), lockstep.Device("cpu", 1)
    of.name = "cuda:0"
    monkeypatch.setattr(lockstep.columns, "library", lambda _: of)
    monkeypatch.setattr(lockstep.columns, "_LAYOUTS", {})
    monkeypatch.setattr(lockstep.torch, "_PREPARED", {})
    for module in (lockstep, lockstep.torch):
        monkeypatch.setattr(module, "_device", lambda *_: cpu)
    new, old, advantage, _, _ = batch()

    def rescaled():
        credit = lockstep.advantages("grpo", rewards=advantage, logp_old=old, wait=False)
        credit.advantage = credit.advantage * 0.5
        return credit

    calls = [lambda metrics=metrics: lockstep.torch.loss("dapo", advantage, logp=new, logp_old=old, metrics=metrics, wait=False) for metrics in (False, True)]
    for call in (*calls, rescaled):
        made = call()
        gc.collect()
        assert made.pending is not None and blocks[-1]() is not None
        made.check()
        del made
        gc.collect()
        assert blocks[-1]() is None


@pytest.mark.filterwarnings("ignore:Accessing the data pointer")
def test_what_calls_share_is_made_for_good(monkeypatch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    def advantages(logp):
        return lockstep.advantages("grpo", rewards=torch.tensor([1.0, 0.0, 0.0, 1.0]), logp_old=logp, group_size=2).advantage

    def traced(logp):
        with pytest.raises(RuntimeError, match="data pointer"):
            advantages(logp)
        return logp.sum()

    of = lockstep.columns._torch(torch.device("cpu"))
    monkeypatch.setattr(of, "_shared", {})
    monkeypatch.setattr(lockstep.columns, "_LAYOUTS", {})
    with FakeTensorMode(), pytest.raises(lockstep.Error, match="a FakeTensor has no memory"):
        advantages(-torch.rand(4, 8))
    torch.func.grad(traced)(-torch.rand(4, 8))
    assert not of._shared
    want = advantages(-torch.rand(4, 8))
    for width in range(1, 400):
        assert torch.equal(advantages(-torch.rand(4, width)), want)
    assert 0 < len(of._shared) <= 256
    # A graph being captured writes its own offsets: nothing of it is kept, and nothing kept is in it.
    with monkeypatch.context() as patched:
        patched.setattr(lockstep.columns.Torch, "capturing", True)
        kept = dict(of._shared), dict(lockstep.columns._LAYOUTS)
        assert torch.equal(advantages(-torch.rand(4, 399)), want) and torch.equal(advantages(-torch.rand(4, 400)), want)
        own = lockstep.columns.Batch(dict(logp_old=-torch.rand(4, 399)), 2).arrays["cu_seqlens"]
        assert own.data_ptr() not in [tensor.data_ptr() for tensor in of._shared.values()]
        assert kept == (of._shared, lockstep.columns._LAYOUTS)
