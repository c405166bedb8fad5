"""Every recipe on a GPU's memory gives the CPU's bytes: on the drivers that `cargo xtask emulate` lays, or on those of a machine with a GPU.

`LOCKSTEP_REQUIRE` names the backend, cuda or rocm, as for the Rust tests.
"""

import ctypes
import os
from typing import NamedTuple

import numpy as np
import pytest
from test_recipes import BINARY, as_torch, made

import lockstep
from lockstep import _native, columns

BACKEND = os.environ.get("LOCKSTEP_REQUIRE")
pytestmark = pytest.mark.skipif(not (BACKEND and BINARY), reason="LOCKSTEP_REQUIRE and LOCKSTEP_BIN name no backend and no binary")


class Driver:
    """Memory of a device by the vendor's own calls."""

    def __init__(self, backend):
        self.cuda = backend == "cuda"
        self.library = ctypes.CDLL("libcuda.so.1" if self.cuda else "libamdhip64.so")
        if self.cuda:
            context = ctypes.c_void_p()
            self.call("cuInit", 0)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
            self.call("cuCtxPushCurrent_v2", context)

    def call(self, name, *arguments):
        assert getattr(self.library, name)(*arguments) == 0, name

    def allocate(self, size):
        address = ctypes.c_void_p()
        self.call("cuMemAlloc_v2" if self.cuda else "hipMalloc", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address):
        self.call("cuMemFree_v2" if self.cuda else "hipFree", ctypes.c_void_p(address))

    def upload(self, address, array):
        self._copy("cuMemcpyHtoDAsync_v2", 1, address, array.ctypes.data, array.nbytes)

    def download(self, array, address):
        self._copy("cuMemcpyDtoHAsync_v2", 2, array.ctypes.data, address, array.nbytes)

    def _copy(self, name, kind, to, source, size):
        if size == 0:
            return
        to, source, size, stream = ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), ctypes.c_void_p()
        if self.cuda:
            self.call(name, to, source, size, stream)
            self.call("cuStreamSynchronize", stream)
        else:
            self.call("hipMemcpyAsync", to, source, size, kind, stream)
            self.call("hipStreamSynchronize", stream)


class Uploaded(NamedTuple):
    array: np.ndarray
    address: int


class OnDevice(columns.NumPy):
    """Arrays of NumPy, copied to a device and back."""

    def __init__(self, backend):
        super().__init__()
        self.name, self.driver, self.held = f"{backend}:0", Driver(backend), []

    def upload(self, array):
        address = self.driver.allocate(array.nbytes)
        self.held.append(address)
        self.driver.upload(address, array)
        return Uploaded(array, address)

    def release(self):
        while self.held:
            self.driver.free(self.held.pop())

    def cast(self, column, value):
        return self.upload(super().cast(column, value))

    def shape(self, array):
        return array.array.shape

    def place(self, array):
        return array.address, array.array.size

    def offsets(self, step, rows):
        return self.upload(super().offsets(step, rows))

    def workspace(self, size):
        block = self.upload(np.zeros(size, "u1"))
        return block, block.address

    def result(self, block, type_, count, at):
        own = super().result(block.array, type_, count, at)
        self.driver.download(own, block.address + at)
        return own

    def numbers(self, array):
        return getattr(array, "array", array).tolist()


@pytest.fixture(scope="module")
def device():
    return OnDevice(BACKEND)


def same_bytes(name, given, device, monkeypatch):
    want = lockstep.step(name, **given)
    monkeypatch.setattr(columns, "library", lambda _: device)
    try:
        got = lockstep.step(name, **given)
    finally:
        device.release()
    for mine, theirs in zip(got, want):
        for key, array in vars(theirs).items():
            if isinstance(array, np.ndarray):
                assert getattr(mine, key).tobytes() == array.tobytes(), key
    assert got[1].metrics == want[1].metrics


@pytest.mark.parametrize("name", lockstep.names())
def test_a_device_gives_the_cpus_bytes(name, device, tmp_path, monkeypatch):
    same_bytes(name, made(tmp_path, name)[0], device, monkeypatch)


@pytest.mark.parametrize("name", ["trl_vllm", "trl_vespo"])
def test_on_a_device_too_the_ratio_to_no_sampler_is_one(name, device, tmp_path, monkeypatch):
    given, _ = made(tmp_path, name)
    given["logp_rollout"][::3] = np.nan
    same_bytes(name, given, device, monkeypatch)


def test_how_sequences_end_is_checked_on_a_device(device, tmp_path, monkeypatch):
    given, _ = made(tmp_path, "vtrace")
    none = np.zeros(len(given["cu_seqlens"]) - 1, "u1")
    ends = dict(terminated=none, truncated=none + 1, bootstrap=none.astype("f4"))
    same_bytes("vtrace", {**given, **ends}, device, monkeypatch)
    try:
        with pytest.raises(lockstep.Error, match="because the sequence is not terminated"):
            lockstep.advantages("vtrace", **given, **{**ends, "truncated": none})
    finally:
        device.release()


def halves(format, numbers):
    """The numbers in half precision, as bits; bfloat16 by cutting them off."""
    return numbers.astype("f2").view("u2") if format == "f16" else (numbers.view("u4") >> 16).astype("u2")


def single_ops():
    """`(op, arguments, arrays that are read, arrays that are written)` of each op over memory of the caller's."""
    random, rows, experts, vocab = np.random.default_rng(0), 33, 32, 301
    floats = lambda *shape: random.standard_normal(shape).astype("f4")  # noqa: E731
    scores, bias = floats(rows, experts), floats(experts)
    chosen = np.stack([random.permutation(experts)[:4] for _ in range(3 * rows)]).astype("u1").reshape(rows, 3, 4)
    chosen[5] = 255
    mask = (random.random(rows) > 0.2).astype("u1")
    router = _native.Router("sigmoid_normalized", experts, 4, 2.5, 4, 2)
    gates = dict(chosen=np.empty((rows, 4), "u1"), gates=floats(rows, 4), group_scores=floats(rows, 4), replayed=np.empty(rows, "u4"))
    alarm = dict(alarm=np.empty(rows, "u4"))
    given = dict(scores=scores, bias=bias, trace=chosen, mask=mask)
    yield _native.gating_forward, (router, 3, 1), given, {**gates, **alarm}
    router = _native.Router("softmax_all", experts, 4)
    own = np.ascontiguousarray(np.argsort(scores)[:, :4].astype("u1"))
    given = dict(scores=scores, chosen=own, gates=np.abs(floats(rows, 4)), coef=floats(rows, 4))
    yield _native.gating_backward, (router,), given, dict(gradient=floats(rows, experts), **alarm)
    written = dict(gradient=floats(rows, experts), row_loss=np.empty(rows), total=np.empty(1), **alarm)
    yield _native.balance_loss, (0.01,), dict(scores=scores, load=np.abs(bias)), written
    logits, labels = dict(logits=floats(rows, vocab), loss_mask=mask), dict(labels=random.integers(0, vocab, rows).astype("u4"))
    moments = {name: floats(rows) for name in ("logp", "lse", "entropy", "collision", "score_norm")}
    written = dict(**moments, top=np.empty(rows, "u4"), state=np.empty((3, rows)), **alarm)
    yield _native.logits_statistics, ("f32", vocab, 0.9, True), {**logits, **labels}, written
    state = np.stack([logits["logits"].max(1).astype("f8"), 2 + random.random(rows), random.random(rows)])
    given = dict(**logits, **labels, state=state, coef=floats(rows), coef_entropy=floats(rows))
    yield _native.logits_gradient, ("f32", vocab, None, 0.9, True), given, dict(gradient=floats(rows, vocab), **alarm)
    for format in ("bf16", "f16"):
        half = dict(logits=halves(format, logits["logits"]), loss_mask=mask)
        yield _native.logits_statistics, (format, vocab, 0.9, True), {**half, **labels}, written
        given = dict(**half, **labels, state=state, coef=floats(rows), coef_entropy=floats(rows))
        yield _native.logits_gradient, (format, vocab, None, 0.9, True), given, dict(gradient=np.empty((rows, vocab), "u2"), **alarm)
    given = dict(**logits, reference=floats(rows, vocab), coef=floats(rows))
    yield _native.logits_kl, (vocab, 0.9, "policy"), given, dict(value=floats(rows), gradient=floats(rows, vocab), **alarm)
    yield _native.draw_tokens, (vocab, 0.9, 7, 3), logits, dict(tokens=np.empty((rows, 7), "u4"), **alarm)


def name(case):
    op, arguments, _, _ = case
    return "-".join([op.__name__, *(word for word in arguments if isinstance(word, str))])


@pytest.mark.parametrize("case", list(single_ops()), ids=name)
def test_an_op_on_a_device_gives_the_cpus_bytes(case, device):
    op, arguments, read, written = case
    want = {name: np.zeros_like(array) for name, array in written.items()}
    arrays = {**read, **want}

    def run(where, addresses):
        op((lockstep.Device(where), 0), *arguments, {name: (addresses[name], array.size, array.itemsize) for name, array in arrays.items()})

    try:
        there = {name: device.upload(array).address for name, array in arrays.items()}
        run("cpu", {name: array.ctypes.data for name, array in arrays.items()})
        run(device.name, there)
        assert any(array.any() for array in want.values())
        for name, array in want.items():
            got = np.empty_like(array)
            device.driver.download(got, there[name])
            assert got.tobytes() == array.tobytes(), name
        # A bad value on the device is found and named, where no mask hides it.
        first = "scores" if "scores" in read else "logits"
        bad = read[first].copy()
        # A NaN of either half precision, as bits.
        bad.flat[-1] = np.nan if bad.dtype.kind == "f" else 0x7FFF
        device.driver.upload(there[first], bad)
        for name in {"mask", "loss_mask"} & set(read):
            device.driver.upload(there[name], np.ones_like(read[name]))
        with pytest.raises(lockstep.Error) as refused:
            run(device.name, there)
        assert (refused.value.argument, refused.value.index) == (first, bad.size - 1)
    finally:
        device.release()


@pytest.mark.parametrize("case", [case for case in single_ops() if case[0] is _native.logits_gradient], ids=name)
def test_a_gradient_on_a_device_can_replace_its_logits(case, device):
    op, arguments, read, written = case
    size = lambda array: (array.size, array.itemsize)  # noqa: E731

    def run(where, at, into):
        places = {name: (at[name], *size(array)) for name, array in {**read, "alarm": written["alarm"]}.items()}
        op((lockstep.Device(where), 0), *arguments, {**places, "gradient": (into, *size(written["gradient"]))})

    try:
        want = np.zeros_like(written["gradient"])
        here = {name: array.ctypes.data for name, array in {**read, **written}.items()}
        run("cpu", here, want.ctypes.data)
        there = {name: device.upload(array).address for name, array in {**read, **written}.items()}
        run(device.name, there, there["logits"])
        got = np.empty_like(want)
        device.driver.download(got, there["logits"])
        assert want.any() and got.tobytes() == want.tobytes()
        with pytest.raises(lockstep.Error, match="memory separate from `logits` on a CPU"):
            run("cpu", here, here["logits"])
        coef = read["coef"].copy()
        coef[7] = np.inf
        device.driver.upload(there["coef"], coef)
        device.driver.upload(there["loss_mask"], np.ones_like(read["loss_mask"]))
        with pytest.raises(lockstep.Error) as refused:
            run(device.name, there, there["logits"])
        assert (refused.value.argument, refused.value.index) == ("coef", 7)
    finally:
        device.release()


@pytest.mark.parametrize("format", ["f32", "bf16", "f16"])
def test_a_vocabulary_in_shards_on_a_device_gives_the_cpus_bytes(format, device):
    random, rows, cut = np.random.default_rng(0), 33, 150
    values = random.standard_normal((rows, 301)).astype("f4")
    values = values if format == "f32" else halves(format, values)
    labels, mask = random.integers(0, 301, rows).astype("u4"), (random.random(rows) > 0.2).astype("u1")
    whole = dict(labels=labels, loss_mask=mask)
    new = lambda dtype="f4", *shape: np.zeros((*shape, rows), dtype)  # noqa: E731

    def both(op, arguments, read, written):
        """Runs an op on the CPU, and on the device, which must give the same bytes."""
        arrays = {**read, **written}
        place = lambda at: {name: (at[name], array.size, array.itemsize) for name, array in arrays.items()}  # noqa: E731
        there = {name: device.upload(array).address for name, array in arrays.items()}
        op((lockstep.Device("cpu"), 0), *arguments, place({name: array.ctypes.data for name, array in arrays.items()}))
        op((lockstep.Device(device.name), 0), *arguments, place(there))
        for name, array in written.items():
            got = np.empty_like(array)
            device.driver.download(got, there[name])
            assert (name == "alarm" or array.any()) and got.tobytes() == array.tobytes(), name
        return written

    try:
        parts = [np.ascontiguousarray(part) for part in np.split(values, [cut], 1)]
        shards = [(dict(whole, logits=part), (format, part.shape[1]), start) for part, start in zip(parts, (0, cut))]
        tops = [both(_native.vocab_parallel_top, (*shape, at), given, dict(largest=new("i8"))) for given, shape, at in shards]
        largest = dict(largest=np.maximum(*(top["largest"] for top in tops)))
        written = lambda: dict(sums=new("f8", 8), alarm=new("u4"))  # noqa: E731
        sums = [both(_native.vocab_parallel_sums, (*shape, at, 0.9), {**given, **largest}, written()) for given, shape, at in shards]
        reduced = dict(largest, sums=sums[0]["sums"] + sums[1]["sums"], loss_mask=mask)
        moments = {name: new() for name in ("logp", "lse", "entropy", "collision", "score_norm")}
        out = both(_native.vocab_parallel_statistics, (0.9,), reduced, dict(**moments, top=new("u4"), state=new("f8", 3), alarm=new("u4")))
        coefs = dict(state=out["state"], coef=random.standard_normal(rows).astype("f4"), coef_entropy=random.standard_normal(rows).astype("f4"))
        for given, (_, width), at in shards:
            gradient = dict(gradient=np.zeros((rows, width), values.dtype), alarm=new("u4"))
            both(_native.logits_gradient, (format, width, at, 0.9, True), {**given, **coefs}, gradient)
    finally:
        device.release()


def counter(device):
    """Returns a function that counts the calls of an emulated driver that wait or allocate, and whether there is one."""
    library = device.driver.library
    waits = ("cuStreamSynchronize", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemAlloc_v2") if device.driver.cuda else (
        "hipStreamSynchronize", "hipMemcpyAsync", "hipMalloc")  # fmt: skip
    counted = hasattr(library, "lockstep_emulator_calls")
    return lambda: [library.lockstep_emulator_calls(name.encode()) for name in waits] if counted else [], counted


@pytest.mark.parametrize("case", [case for case in single_ops() if case[0] in (_native.logits_statistics, _native.logits_gradient)], ids=name)
def test_logits_that_are_not_waited_for_are_a_launch_alone(case, device):
    op, (*arguments, _), read, written = case
    calls, _ = counter(device)
    arrays = {**read, **written}
    place = lambda at: {name: (at[name], array.size, array.itemsize) for name, array in arrays.items()}  # noqa: E731

    def run():
        before = calls()
        op((lockstep.Device(device.name), 0), *arguments, False, place(there))
        assert calls() == before

    try:
        want = {name: np.zeros_like(array) for name, array in written.items()}
        arrays.update(want)
        op((lockstep.Device("cpu"), 0), *arguments, True, place({name: array.ctypes.data for name, array in arrays.items()}))
        there = {name: device.upload(array).address for name, array in arrays.items()}
        # The first launch of an entry point loads it.
        op((lockstep.Device(device.name), 0), *arguments, True, place(there))
        run()
        for name, array in want.items():
            got = np.empty_like(array)
            device.driver.download(got, there[name])
            assert got.tobytes() == array.tobytes(), name
        bad = read["logits"].copy()
        bad[np.flatnonzero(read["loss_mask"])[0]] = np.nan if bad.dtype.kind == "f" else 0x7FFF
        device.driver.upload(there["logits"], bad)
        run()
    finally:
        device.release()


def test_a_call_that_does_not_wait_is_launches_alone(device, monkeypatch):
    old = np.array([-0.5, -1.0, -0.2, -2.0], "f4")
    given = dict(cu_seqlens=[0, 2, 4], cu_groups=[0, 2], rewards=[1.0, 0.0], logp_old=old, logp=old * np.float32(0.9))
    bad = dict(given, logp=np.array([-0.5, np.nan, -0.2, -2.0], "f4"))
    want_credit, want = lockstep.step("dapo", **given)
    monkeypatch.setattr(columns, "library", lambda _: device)
    calls, counted = counter(device)
    recipe, on = lockstep.recipe("dapo"), lockstep.Device(device.name)
    try:
        for columns_, fine in ((given, True), (bad, False)):
            batch = columns.Batch(columns_, None)
            planned = lockstep._plan(recipe, "both", batch.size, False)
            block, address = device.workspace(planned.bytes)
            places, before = batch.places(planned.reads), calls()
            assert planned.run(on, 0, places, None, (address, planned.bytes), None, False) is None
            assert calls() == before
            if fine:
                planned.plan.alarms(on, 0, (address, planned.bytes))
                results = lockstep._Results(device, planned, block)
                assert results["coef"].tobytes() == want.coef.tobytes()
                assert results["advantage"].tobytes() == want_credit.advantage.tobytes()
            else:
                with pytest.raises(lockstep.Error, match="stage gate met a bad value in row 0"):
                    planned.plan.alarms(on, 0, (address, planned.bytes))
        # With `wait` the counters do move, and the public call asks later.
        before = calls()
        credit = lockstep.advantages("dapo", wait=False, **given)
        credit.check()
        assert not counted or calls() != before
        for got in (lockstep.loss("dapo", credit, wait=False, **given), lockstep.step("dapo", wait=False, **given)[1]):
            got.check()
            assert got.coef.tobytes() == want.coef.tobytes() and got.metrics == want.metrics
        with pytest.raises(lockstep.Error, match="stage gate met a bad value in row 0"):
            lockstep.loss("dapo", credit, wait=False, **bad).check()
        few = dict(given, cu_groups=[0, 1, 2])
        with pytest.raises(lockstep.Error, match="stage advantage met a bad value in row 0"):
            lockstep.advantages("grpo", wait=False, **few).check()
    finally:
        device.release()


try:
    import torch
except ImportError:
    torch = None
if torch is not None and torch.cuda.is_available():

    def same(got, want):
        assert got.device.type == "cuda" and got.dtype == want.dtype
        assert torch.equal(got.detach().cpu().view(-1).view(torch.uint8), want.detach().view(-1).view(torch.uint8))

    @pytest.mark.parametrize("name", lockstep.names())
    def test_tensors_on_a_gpu_give_the_cpus_bytes(name, tmp_path):
        given = as_torch(made(tmp_path, name)[0])
        want = lockstep.step(name, **given)
        got = lockstep.step(name, **{name: tensor.cuda() for name, tensor in given.items()})
        for mine, theirs in zip(got, want):
            for key, tensor in vars(theirs).items():
                if isinstance(tensor, torch.Tensor):
                    same(getattr(mine, key), tensor)
        assert got[1].metrics == want[1].metrics

    @pytest.mark.parametrize("inplace", [False, True])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_logits_on_a_gpu_give_the_cpus_bytes(dtype, inplace):
        from lockstep.logits import statistics

        torch.manual_seed(0)
        # Of a graph, not a leaf, so that they may be overwritten.
        logits, labels, weight = torch.randn(133, 50_001).to(dtype), torch.randint(50_001, (133,)), torch.randn(2, 133)

        def run(device):
            own = logits.to(device).requires_grad_()
            out = statistics(own * 1, labels.to(device), temperature=0.9, entropy=True, inplace_backward=inplace)
            (weight.to(device) * torch.stack([out.logp, out.entropy])).sum().backward()
            return (*out, own.grad)

        for mine, theirs in zip(run("cuda"), run("cpu")):
            same(mine, theirs)
