"""Arrays of NumPy: types, shapes, offsets."""

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
    with pytest.raises(lockstep.Error, match="dapoo"):
        lockstep.recipe("dapoo")
    with pytest.raises(lockstep.Error, match="clip_ratio_hi"):
        lockstep.recipe({"extends": "dapo", "gate.clip_ratio_hi": 0.5})


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
    ],
)
def test_what_is_wrong_is_named(changed, message, argument, index):
    credit = lockstep.Credit(np.array([1.0, -1.0], dtype=np.float32))
    with pytest.raises(lockstep.Error, match=message) as refused:
        lockstep.loss("dapo", credit, **{**PACKED, **changed})
    if argument:
        assert (refused.value.argument, refused.value.index) == (argument, index)


def test_importing_it_is_quick_and_brings_no_torch():
    # What it takes of a processor: by the clock, other work would count.
    script = "import sys, time; t = time.process_time(); import lockstep; print(time.process_time() - t); assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    took = min(float(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout) for _ in range(3))
    assert took < 0.05
