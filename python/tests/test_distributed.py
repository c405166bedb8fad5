"""Many ranks: one digest from gloo, MPI and Ray, whatever the sharding; a rank that fails; rows whose tokens are spread over ranks."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lockstep
from lockstep import distributed

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import ddp_bits  # noqa: E402

HERE = Path(__file__).parent
WORLDS = (1, 2, 3, 7)


def rows(columns):
    return dict(loss_mask=columns["loss_mask"], cu_seqlens=columns["cu_seqlens"])


def first(numbers):
    """What a task of Ray does before the driver knows the batch."""
    columns = ddp_bits.prompts(numbers)
    credit = lockstep.advantages(ddp_bits.RECIPE, **columns)
    return distributed.count(**rows(columns)), distributed.moments(credit, **rows(columns)).to_bytes()


def second(numbers, counts, moments):
    """And what when it does: bytes of totals, bytes of each prompt, the loss rounded."""
    columns = ddp_bits.prompts(numbers)
    credit = lockstep.advantages(ddp_bits.RECIPE, **columns)
    credit = distributed.whiten(credit, moments=distributed.merge([moments]), **rows(columns))
    loss = lockstep.loss(ddp_bits.RECIPE, credit, counts=counts, **columns)
    return loss.totals().to_bytes(), ddp_bits.by_prompt(numbers, columns, credit, loss), float(loss.loss)


def driver(dealt, each):
    """Digest of an update whose ranks are tasks, and the loss as a sum of float64. `each(task, arguments of the ranks)` runs them."""
    known = each(first, [(numbers,) for numbers in dealt])
    counts = np.sum([count for count, _ in known], axis=0).astype("u8")
    moments = distributed.merge(bytes_ for _, bytes_ in known).to_bytes()
    done = each(second, [(numbers, counts, moments) for numbers in dealt])
    totals = distributed.merge(bytes_ for bytes_, *_ in done)
    assert totals.counts == counts.tolist()
    return ddp_bits.digest(totals, [own for _, own, _ in done]), sum(loss for *_, loss in done)


def here(task, arguments):
    return [task(*own) for own in arguments]


@pytest.fixture(scope="module")
def digest():
    """Of the batch on one rank, in order."""
    return driver([range(ddp_bits.PROMPTS)], here)[0]


def ranks(*command):
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=100, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def gloo():
    return ranks(sys.executable, "ranks.py", "gloo")


@pytest.fixture(scope="module")
def mpi():
    return ranks(str(Path(sys.executable).parent / "mpiexec"), "-n", "7", sys.executable, "ranks.py", "mpi")


def check_worlds(worlds, digest):
    assert {name: own for name, (own, _) in worlds.items()} == {str(world): digest for world in WORLDS}
    # What the exact sums are for: a sum of float64 over the same shards has other bits for another number of ranks.
    assert len({floats for _, floats in worlds.values()}) > 1


def test_gloo_has_the_digest_of_one_rank(gloo, digest):
    check_worlds(gloo["worlds"], digest)


def test_mpi_has_the_digest_of_one_rank(mpi, digest):
    check_worlds(mpi["worlds"], digest)


def process():
    return os.getpid(), lockstep.Totals()


def test_ray_has_the_digest_of_one_rank(digest, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parents[1] / "examples"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1", object_store_memory=1 << 27)
    try:

        def each(task, arguments):
            remote = ray.remote(task)
            return ray.get([remote.remote(*own) for own in arguments], timeout=60)

        worlds = {str(world): driver(ddp_bits.deal(world), each) for world in WORLDS}
        there, totals = each(process, [()])[0]
    finally:
        ray.shutdown()
    check_worlds(worlds, digest)
    assert there != os.getpid() and totals == lockstep.Totals()


def test_any_shuffle_has_the_digest_of_one_rank(digest):
    sums = set()
    for world in (2, 3, 7, 60):
        for seed in range(1, 4):
            own, floats = driver(ddp_bits.deal(world, seed), here)
            assert own == digest, (world, seed)
            sums.add(floats)
    assert len(sums) > 1


@pytest.mark.parametrize("engine", ["gloo", "mpi"])
def test_where_one_rank_fails_all_raise_its_error(engine, request):
    said = request.getfixturevalue(engine)
    for groups, bad in [(said["failures"], 2), (said.get("last", said["failures"]), 5 if "last" in said else 2)]:
        assert len(groups) == 3
        for seen, after in groups:
            assert seen == groups[0][0], "every rank sees the same"
            (loss, *loss_at), (counts, *_), (whitened, *_), (wrong, *_), kinds = seen
            assert loss.startswith(f"rank {bad}: `logp`[0] is 0.5") and loss_at == [bad, "logp", 0]
            assert counts.startswith(f"rank {bad}: `loss_mask` has ")
            assert whitened.startswith(f"rank {bad}: `values`[0] is inf")
            assert wrong.startswith(f"rank {bad}: `totals` is str")
            assert "different data" in kinds
            assert after == [6, 3, 6], "the ranks are in step"


def test_context_parallel_has_the_bits_of_whole_rows(gloo):
    torch = pytest.importorskip("torch")
    import hashlib

    import lockstep.torch

    whole = {name: torch.from_numpy(array) for name, array in ddp_bits.prompts(range(6)).items()}
    credit = lockstep.advantages("dapo", **whole)
    logp = whole.pop("logp").requires_grad_()
    whole.pop("rewards")
    loss = lockstep.torch.loss("dapo", credit, logp=logp, **whole).loss
    loss.backward()
    want = [loss.item().hex(), hashlib.sha256(logp.grad.numpy().tobytes()).hexdigest()]
    assert gloo["context"] == {str(size): [want, want] for size in (1, 2, 4, 7)}
    assert gloo["short"] == [["rank 1: `own`[0] has shape [4]: expected [5], the tokens of rank 1", 1, "own", 0]] * 3
    own, other = gloo["context disagreements"]
    types = "`own` differs between ranks, here it is [{}]: expected the same types on all ranks of the group"
    of_others = [types.format(f"torch.{of} on cpu") for of in ("int32", "float64", "float32 on cpu, torch.float32")]
    same = [
        ["rank 1: `own`[1] is on meta: expected cpu or cuda", "own"],
        ["rank 1: `own`[0] has layout torch.sparse_coo: expected a dense tensor", "own"],
        *[["`cu_seqlens` or `layout` differs between ranks: expected the same on all ranks of the group", "cu_seqlens"]] * 2,
        "lockstep's gradients are closed forms, which cannot be differentiated again: expected first derivatives alone",
    ]
    assert own == [*[[types.format("torch.float32 on cpu"), "own"]] * 3, *same]
    assert other == [*[[message, "own"] for message in of_others], *same]
    assert gloo["odd"] == [["rank 1: Odd: None", 1, None, None]] * 2


def test_a_vocabulary_over_ranks_has_the_bits_of_one_rank(gloo):
    (float32, bfloat16, float16) = of_types = gloo["vocab"]["1"][::2]
    assert gloo["vocab"] == {str(size): [float32, float32, bfloat16, bfloat16, float16, float16] for size in (1, 2, 4, 7)}
    assert len(set(of_types)) == 3
    assert "cannot be differentiated again" in gloo["vocab twice"]
    own, other = gloo["vocab failures"]
    assert own == other == [
        ["LockstepError", "`logits`[2] is NaN: expected a row with at least one finite entry and no NaN or +inf"],
        ["LockstepError", "`shards that have the label`[1] is 0: expected exactly 1"],
        ["RankError", "rank 0: `vocab` is 0: expected 1 to 16777216"],
        ["RankError", "rank 1: `logits` has type torch.int64 and shape [3, 4]: expected floats, [N, V] or [B, T, V]"],
        ["RankError", "rank 1: `labels` has type torch.float64: expected torch.uint32"],
        ["RankError", "rank 1: `labels` has shape [2]: expected [3]"],
        ["RankError", "rank 1: `labels` is a list: expected a tensor"],
    ]
    assert gloo["vocab disagreements"] == [[
        ["`logits` differs between ranks (3, 4 rows): expected the same on all ranks of the group", "logits"],
        ["`entropy` differs between ranks (0, 1): expected the same on all ranks of the group", "entropy"],
        ["`temperature` differs between ranks (1, 0.5): expected the same on all ranks of the group", "temperature"],
        ["`vocab_start` of rank 1 in the group is 3: expected 4, so that the parts cover the vocabulary once", "vocab_start"],
        ["`vocab_start` of rank 1 in the group is 5: expected 4, so that the parts cover the vocabulary once", "vocab_start"],
        ["`vocab_start` is None on some ranks of the group: expected it on all or none", "vocab_start"],
        ["rank 1: `vocab_start` is 0.5: expected 0 to 16777215", "vocab_start"],
    ]] * 2


def test_segments_are_each_token_once():
    segments = pytest.importorskip("lockstep.context_parallel").segments
    assert segments([0, 8, 12], 0, 2) == [(0, 2), (6, 8), (8, 9), (11, 12)]
    assert segments([0, 8, 12], 1, 2) == [(2, 4), (4, 6), (9, 10), (10, 11)]
    assert segments([0, 8], 1, 2, "contiguous") == [(4, 8)]
    for layout in ("zigzag", "contiguous"):
        for size in (1, 2, 3, 4, 7):
            spans = [span for rank in range(size) for span in segments([0, 0, 1, 30, 58], rank, size, layout)]
            assert sorted(token for span in spans for token in range(*span)) == list(range(58))
    for arguments, message in [
        (([0, 8], 2, 2), r"`rank` is 2: expected 0 to 1"),
        (([0, 8], 0, 2, "ring"), "`layout` is 'ring'"),
        (([0, 8, 3], 0, 2), r"`cu_seqlens`\[2\] is 3: expected at least 8"),
        (([3, 8], 0, 2), r"`cu_seqlens`\[0\] is 3: expected 0"),
    ]:
        with pytest.raises(lockstep.Error, match=message):
            segments(*arguments)


@pytest.mark.parametrize(
    "recipe",
    ["dapo", "gspo", "gmpo", {"extends": "grpo", "entropy.coef": 0.01}, {"extends": "grpo", "metrics.reduction": "exact"}],
    ids=["dapo", "gspo", "gmpo", "entropy", "exact"],
)
def test_totals_are_loss_and_metrics(recipe):
    columns = ddp_bits.prompts(range(5))
    columns["entropy"] = -columns["logp"]
    credit = lockstep.advantages(recipe, **columns)
    loss = lockstep.loss(recipe, credit, **columns)
    totals = loss.totals()
    assert totals.loss == pytest.approx(float(loss.loss), rel=1e-12)
    assert totals.metrics == pytest.approx(loss.metrics, rel=1e-12)
    assert tuple(totals.counts) == distributed.count(**rows(columns))
    alone = lockstep.loss(recipe, credit, metrics=False, **columns).totals()
    assert alone.loss == totals.loss and alone.metrics is None
    assert (alone + totals).metrics is None and lockstep.Totals() + totals == totals


def test_totals_of_a_loss_of_torch():
    torch = pytest.importorskip("torch")
    import lockstep.torch

    columns = ddp_bits.prompts(range(5))
    credit = lockstep.advantages("dapo", **columns)
    want = lockstep.loss("dapo", credit, **columns).totals()
    of_torch = {name: torch.from_numpy(array) for name, array in columns.items() if name != "rewards"}
    credit = lockstep.advantages("dapo", **of_torch, rewards=torch.from_numpy(columns["rewards"]))
    out = lockstep.torch.loss("dapo", credit, **of_torch)
    assert distributed.totals(out) == want == distributed.totals(lockstep.loss("dapo", credit, **of_torch))
    for nothing in (lockstep.torch.loss("dapo", credit, metrics=False, **of_torch), 3.0):
        with pytest.raises(lockstep.Error, match="no row sums"):
            distributed.totals(nothing)


@pytest.mark.parametrize("by", ["verl", "nemo", "trl", "mssr", "areal", "nemo_gdpo"])
def test_whitening_is_the_recipes(by):
    recipe = {"extends": "dapo", "advantage.norm_by_std": False}
    columns = ddp_bits.prompts(range(8))
    want = lockstep.advantages({**recipe, "advantage.whiten": by}, **columns).advantage
    got = distributed.whiten(lockstep.advantages(recipe, **columns), by, moments=own(recipe, columns, by), **rows(columns)).advantage
    # The recipe's own moments are sums in a tree, rounded: near.
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def own(recipe, columns, by):
    return distributed.moments(lockstep.advantages(recipe, **columns), by, **rows(columns))


def test_whitening_of_tokens():
    values = np.random.default_rng(0).standard_normal((4, 8), dtype="f4")
    mask = np.arange(32).reshape(4, 8) % 3 != 0
    moments = distributed.moments(values, loss_mask=mask)
    assert moments.count == mask.sum() and moments.mean == pytest.approx(values[mask].mean(dtype="f8"), rel=1e-12)
    assert moments.variance(1) == pytest.approx(values[mask].var(ddof=1, dtype="f8"), rel=1e-12)
    out = distributed.whiten(values, moments=moments, loss_mask=mask)
    assert out.shape == (4, 8) and (out[~mask] == 0).all() and abs(out[mask].mean()) < 1e-6
    packed = lockstep.Credit(values.ravel(), per_token=True, loss_mask=mask.ravel())
    assert (distributed.whiten(packed, moments=moments).advantage == out.ravel()).all()
    halves = [distributed.moments(values[part], loss_mask=mask[part]) for part in (slice(2, 4), slice(0, 2))]
    assert distributed.merge(halves) == moments


def test_moments_of_what_is_copied():
    # Other types are copied, and the copies must live until they have been read.
    values = np.random.default_rng(0).standard_normal((1000, 1000))
    exact = distributed.moments(values.astype("f4"))
    for _ in range(3):
        assert distributed.moments(values) == exact
    mask = np.arange(1_000_000).reshape(values.shape) % 3 != 0
    assert distributed.moments(values, loss_mask=mask.astype("i8")) == distributed.moments(values.astype("f4"), loss_mask=mask)
    with pytest.raises(lockstep.Error, match="`loss_mask` has shape"):
        distributed.moments(values, loss_mask=mask.reshape(500, 2000))


def test_advantages_of_a_shape_that_says_nothing_are_refused():
    column = np.ones((2, 1), "f4")
    for credit, message in [
        (column, r"`cu_seqlens` is for packed columns, but the advantages are padded, \[2, 1\]"),
        (column[None], r"`credit` has shape \[1, 2, 1\]: expected \[S\], or per token \[B, T\]"),
        (lockstep.Credit(column), r"`credit.advantage` has shape \[2, 1\]: expected \[S\], or per token \(`per_token`\)"),
    ]:
        with pytest.raises(lockstep.Error, match=message):
            distributed.moments(credit, cu_seqlens=[0, 3, 8])
    assert distributed.moments(column).count == 2
    with pytest.raises(lockstep.Error, match="`moments` is Totals: expected Moments"):
        distributed.whiten(column, moments=lockstep.Totals())


def test_rows_may_be_of_another_library_than_advantages():
    torch = pytest.importorskip("torch")
    values, offsets = np.array([1.0, 2.0, 4.0], "f4"), [0, 1, 3, 6]
    want = distributed.moments(values, cu_seqlens=offsets)
    assert distributed.moments(torch.tensor(values), cu_seqlens=offsets) == want
    assert distributed.moments(values, cu_seqlens=torch.tensor(offsets)) == want


def test_a_rank_may_have_no_rows():
    none, moments = np.zeros(0, "f4"), distributed.moments(np.ones(2, "f4"), cu_seqlens=[0, 1, 3])
    assert distributed.count(cu_seqlens=[0]) == distributed.count(loss_mask=np.zeros((0, 4), bool)) == (0, 0, 0)
    assert distributed.count(loss_mask=np.zeros((3, 0), bool)) == (0, 0, 3)
    assert distributed.moments(none, cu_seqlens=[0]) == lockstep.Moments()
    assert distributed.whiten(none, moments=moments, cu_seqlens=[0]).shape == (0,)
    assert distributed.merge([lockstep.Moments(), moments]) == moments
    with pytest.raises(lockstep.Error, match="`values` has 1 entries: expected 2"):
        distributed.moments(np.ones(1, "f4"), cu_seqlens=[0, 1, 3])


def test_what_is_no_part_is_refused():
    good = lockstep.Totals().to_bytes()
    for parts, message in [
        ([], "`parts` is empty"),
        ([good, b"LXMM"], r"`bytes of exact moments` has 4"),
        ([good, b"other"], r"`parts`\[1\] is 5 bytes that begin with b'othe'"),
        ([good, lockstep.Moments()], r"`parts`\[1\] is Moments: expected Totals"),
        ([3.5], r"`parts`\[0\] is float"),
    ]:
        with pytest.raises(lockstep.Error, match=message):
            distributed.merge(parts)
    limbs, maxima = lockstep.Totals().limbs()
    limbs[8:16] = (-1).to_bytes(8, sys.byteorder, signed=True)
    with pytest.raises(lockstep.Error, match=r"`limbs`\[1\] is -1"):
        lockstep.Totals.from_limbs(limbs, maxima)
    with pytest.raises(lockstep.Error, match=r"`limbs` has 998"):
        lockstep.Totals.from_limbs(limbs[8:], maxima)
    with pytest.raises(ValueError, match="not 64-bit integers"):
        lockstep.Totals.from_limbs(limbs[1:], maxima)
    with pytest.raises(lockstep.Error, match="`loss_mask` is missing"):
        distributed.moments(np.zeros(4, "f4"))
    with pytest.raises(ValueError, match="`by`"):
        distributed.moments(np.zeros((1, 4), "f4"), "mean")
    with pytest.raises(lockstep.Error, match="this loss has no totals"):
        lockstep.Loss(loss=0.0, coef=None).totals()
    with pytest.raises(lockstep.Error, match="not initialised"):
        distributed.reduce(lockstep.Totals())


def test_totals_and_moments_survive_pickle():
    columns = ddp_bits.prompts([3])
    credit = lockstep.advantages("dapo", **columns)
    for part in (lockstep.loss("dapo", credit, **columns).totals(), distributed.moments(credit, **rows(columns))):
        assert pickle.loads(pickle.dumps(part)) == part == type(part).from_bytes(part.to_bytes())
        assert part != type(part)()


def test_the_example_prints_one_digest():
    example = HERE.parents[1] / "examples" / "ddp_bits.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=100, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and len({line.split("digest ")[1].split(",")[0] for line in lines}) == 1
    assert len({line.rsplit(" ", 1)[1] for line in lines}) > 1
