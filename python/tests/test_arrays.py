"""Arrays of NumPy: types, shapes, offsets."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import lockstep

LOGP = np.array([-0.5, -1.0, -0.25, -2.0], dtype=np.float32)
PACKED = dict(cu_seqlens=[0, 2, 4], cu_groups=[0, 2], logp_old=LOGP, logp=LOGP)


def test_packed_and_padded_are_the_same():
    packed = lockstep.step("dapo", rewards=[1.0, 0.0], **PACKED)
    columns = dict(logp_old=LOGP.reshape(2, 2), logp=LOGP.reshape(2, 2))
    padded = lockstep.step("dapo", rewards=[1.0, 0.0], group_size=2, **columns)
    assert padded[1].coef.shape == (2, 2)
    assert padded[1].coef.tobytes() == packed[1].coef.tobytes()
    assert packed[1].loss == padded[1].loss and packed[1].metrics == padded[1].metrics


def test_a_recipe_is_a_name_toml_or_a_mapping():
    toml = lockstep.recipe('extends = "dapo"\ngate.clip_ratio_high = 0.5\n')
    nested = lockstep.recipe({"extends": "dapo", "gate": {"clip_ratio_high": 0.5}})
    dotted = lockstep.recipe({"extends": "dapo", "gate.clip_ratio_high": 0.5})
    assert toml.toml == nested.toml == dotted.toml != lockstep.recipe("dapo").toml
    mixed = {"extends": "dapo", "gate.clip_ratio_high": 0.5, "gate": {"clip_ratio_low": np.float32(0.25)}}
    for given in (mixed, dict(reversed(mixed.items()))):
        assert "clip_ratio_high = 0.5" in lockstep.recipe(given).toml and "clip_ratio_low = 0.25" in lockstep.recipe(given).toml
    for wrong in ({**mixed, "gate": 1.0}, {"a": 1, "a.b": 2}, {1: 2}):
        with pytest.raises(lockstep.Error, match="key"):
            lockstep.recipe(wrong)
    for wrong in (float("nan"), None):
        with pytest.raises(lockstep.Error, match="gate.clip_ratio_high = "):
            lockstep.recipe({"extends": "dapo", "gate.clip_ratio_high": wrong})
    with pytest.raises(lockstep.Error, match="expected a name"):
        lockstep.recipe(3)
    with pytest.raises(lockstep.Error, match="dapoo"):
        lockstep.recipe("dapoo")
    with pytest.raises(lockstep.Error, match="clip_ratio_hi"):
        lockstep.recipe({"extends": "dapo", "gate.clip_ratio_hi": 0.5})


def test_results_survive_pickle():
    credit, loss = lockstep.step("dapo", rewards=[1.0, 0.0], **PACKED)
    for copied in (copy.deepcopy, lambda own: pickle.loads(pickle.dumps(own))):
        other, loss_again = copied(credit), copied(loss)
        assert other.advantage.tobytes() == credit.advantage.tobytes() and not other.per_token
        assert loss_again.coef.tobytes() == loss.coef.tobytes() and loss_again.loss == loss.loss
        assert loss_again.metrics == loss.metrics != {}
        with pytest.raises(lockstep.Error, match="has no totals"):
            loss_again.totals()


def test_a_recipe_survives_pickle():
    for name in lockstep.names():
        own = lockstep.recipe(name)
        for other in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
            assert (other.name, other.toml, other.needs()) == (own.name, own.toml, own.needs())


@pytest.mark.parametrize(
    ("changed", "message", "argument", "index"),
    [
        (dict(cu_seqlens=[0, 9, 4]), "expected at least 9", "cu_seqlens", 2),
        (dict(cu_seqlens=[0, 2, 5]), "the last offset must be 4", "cu_seqlens", 2),
        (dict(cu_seqlens=[0, -2, 4]), r"cu_seqlens`\[1\] is -2", "cu_seqlens", 1),
        (dict(logp=LOGP[:3]), "expected 4", "logp", None),
        (dict(logp=LOGP.astype(np.int32)), "has type int32", "logp", None),
        (dict(logp=-LOGP), r"logp`\[0\] is 0.5", "logp", 0),
        (dict(log_p=LOGP), "is not a column", "log_p", None),
        (dict(loss_mask=np.ones((2, 2), bool)), "is for packed columns", "cu_seqlens", None),
        (dict(cu_seqlens=[[0, 2, 4]]), r"has shape \[1, 3\]", "cu_seqlens", None),
        (dict(logp=[[0.0], [0.0, 0.0]]), "is not an array", "logp", None),
        (dict(group_size=2), "beside cu_groups", "group_size", None),
        (dict(cu_groups=None, group_size=-2), "is -2: expected a positive", "group_size", None),
        (dict(cu_groups=None, group_size=1.5), "is 1.5: expected a positive", "group_size", None),
        (dict(counts=np.array([4, 2, 2**63], "u8")), "at most 2", "counts", 2),
    ],
)
def test_what_is_wrong_is_named(changed, message, argument, index):
    credit = lockstep.Credit(np.array([1.0, -1.0], dtype=np.float32))
    with pytest.raises(lockstep.Error, match=message) as refused:
        lockstep.loss("dapo", credit, **{**PACKED, **changed})
    if argument:
        assert (refused.value.argument, refused.value.index) == (argument, index)


def test_shapes_are_those_of_the_columns():
    columns = dict(logp=LOGP.reshape(2, 2), logp_old=LOGP.reshape(2, 2))
    credit = lockstep.Credit(np.ones((2, 2), "f4"), per_token=True)
    assert lockstep.loss("dapo", credit, **columns).coef.shape == (2, 2)
    for wrong in (lockstep.Credit(np.ones((4, 1), "f4"), per_token=True), lockstep.Credit(np.ones(2, "f4"), loss_mask=np.ones((1, 4), "u1"))):
        with pytest.raises(lockstep.Error, match=r"credit\..*expected \[2, 2\]"):
            lockstep.loss("dapo", wrong, **columns)
    with pytest.raises(lockstep.Error, match="expected a Credit"):
        lockstep.loss("dapo", np.ones(2, "f4"), **columns)
    components = np.array([[1, 0, 0, 1], [0.5, 0, 1, 0]], "f4")
    gdpo = dict(cu_seqlens=[0, 1, 2, 3, 4], cu_groups=[0, 2, 4], reward_weights=np.ones(2, "f4"))
    by_components = lockstep.advantages("gdpo", reward_components=components, **gdpo).advantage
    assert (lockstep.advantages("gdpo", reward_components=components.ravel(), **gdpo).advantage == by_components).all()
    with pytest.raises(lockstep.Error, match=r"`reward_components` has shape \[4, 2\]: expected \[K, 4\]"):
        lockstep.advantages("gdpo", reward_components=components.T, **gdpo)


def test_a_tensor_that_is_no_array_is_refused():
    torch = pytest.importorskip("torch")
    ones = torch.ones(2)
    for wrong in (ones.clone().requires_grad_(), ones.bfloat16(), ones.to("meta"), ones.to_sparse()):
        with pytest.raises(lockstep.Error, match="`credit.advantage` is not an array: ") as refused:
            lockstep.loss("dapo", lockstep.Credit(wrong), **PACKED)
        assert refused.value.argument == "credit.advantage"


def test_bytes_may_start_anywhere():
    whole = b"." + LOGP.tobytes()
    moved = np.frombuffer(whole, "f4", offset=1)
    credit = lockstep.Credit(np.array([1.0, -1.0], "f4"))
    got, want = (lockstep.loss("dapo", credit, **{**PACKED, "logp": logp}).coef for logp in (moved, LOGP))
    assert not moved.flags.aligned and got.tobytes() == want.tobytes()


ENDS = dict(truncated=[1, 0], terminated=[0, 1], bootstrap=np.array([5.0, 5.0], "f4"))


@pytest.mark.parametrize("name", ["vtrace", "gae"])
def test_a_sequence_ends_in_one_way(name):
    one, half = np.ones(4, "f4"), np.full(4, -0.5, "f4")
    recipe = {"extends": name, "advantage.whiten": "none"} if name == "gae" else name
    columns = dict(cu_seqlens=[0, 2, 4], cu_groups=[0, 2], token_rewards=one, values_old=0 * one, logp_old=half, logp_rollout=half)
    bare = lockstep.advantages(recipe, **columns).advantage
    ends = lockstep.advantages(recipe, **columns, **ENDS).advantage
    assert (ends[:2] > bare[:2]).all() and (ends[2:] == bare[2:]).all()
    for missing in ENDS:
        with pytest.raises(lockstep.Error, match="together") as refused:
            lockstep.advantages(recipe, **columns, **{name: array for name, array in ENDS.items() if name != missing})
        assert refused.value.argument == missing
    for changed, argument in [(dict(terminated=[1, 1]), "truncated"), (dict(truncated=[1, 0], terminated=[0, 0]), "truncated"), (dict(bootstrap=[np.inf, 0.0]), "bootstrap")]:
        with pytest.raises(lockstep.Error, match="because the sequence is") as refused:
            lockstep.advantages(recipe, **columns, **{**ENDS, **changed})
        assert refused.value.argument == argument


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_sampler_that_gave_nothing_has_ratio_one(level):
    recipe = {"extends": "trl_vllm", "correction.level": level}
    sampler = LOGP - np.float32(0.25)
    columns = dict(PACKED, rewards=[1.0, 0.0])
    gap = np.where(np.arange(4) == 2, np.nan, sampler).astype("f4")
    filled = np.where(np.arange(4) == 2, LOGP, sampler).astype("f4")
    got, want = (lockstep.step(recipe, logp_rollout=logp, **columns) for logp in (gap, filled))
    assert got[0].weights.tobytes() == want[0].weights.tobytes() and got[1].coef.tobytes() == want[1].coef.tobytes()
    with pytest.raises(lockstep.Error, match="logp_rollout") as refused:
        lockstep.step({**recipe, "correction.nan_rollout": "error"}, logp_rollout=gap, **columns)
    assert (refused.value.argument, refused.value.index) == ("logp_rollout", 2)


def test_a_launch_leaves_a_sequence_out_for_one_reason():
    recipe = {"extends": "verl", "correction": {"level": "one", "rule": "plain"}}
    columns = dict(PACKED, rewards=[1.0, 0.0], logp_rollout=LOGP, valid=[1, 1])
    with pytest.raises(lockstep.Error, match="group_statistics") as refused:
        lockstep.advantages(recipe, **columns)
    assert refused.value.argument == "valid"
    lockstep.advantages({**recipe, "correction.group_statistics": "all"}, **columns)


def test_the_entropies_that_choose_tokens_are_numbers():
    credit = lockstep.Credit(np.array([1.0, -1.0], "f4"))
    recipe = {"extends": "dapo", "mask": {"top_entropy": 0.5, "quantile": "count"}}
    with pytest.raises(lockstep.Error, match="`entropy`") as refused:
        lockstep.loss(recipe, credit, **PACKED, entropy=np.array([1, 2, np.nan, 3], "f4"))
    assert refused.value.index == 2


def test_importing_it_is_quick_and_brings_no_torch():
    # What it takes of a processor: by the clock, other work would count. A core that others share runs at times half as fast.
    script = "import sys, time; t = time.process_time(); import lockstep; print(time.process_time() - t); assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    times = (float(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout) for _ in range(20))
    assert any(seconds < 0.05 for seconds in times)
