"""Every recipe through Python gives the bytes of `lockstep score`, on arrays of NumPy and of torch."""

import os
import subprocess

import numpy as np
import pytest

import lockstep

safetensors = pytest.importorskip("safetensors.numpy")
BINARY = os.environ.get("LOCKSTEP_BIN")
pytestmark = pytest.mark.skipif(not BINARY, reason="LOCKSTEP_BIN names no lockstep binary")


def made(folder, name, recipe=None, **changed):
    """Columns of rollouts like those of the recipe `name`, some `changed`, and what `lockstep score` makes of them by `recipe`, or by `name`."""
    rollouts, scored = folder / f"{name}.rollouts", folder / f"{name}.scored"
    like = [BINARY, "rollouts", "--like", name, "--sequences", "16", "--tokens", "200", "--seed", "7", "-o", rollouts]
    subprocess.run(like, check=True, capture_output=True)
    if changed:
        safetensors.save_file({**safetensors.load_file(rollouts), **changed}, rollouts)
    subprocess.run([BINARY, "score", rollouts, "--recipe", recipe or name, "-o", scored], check=True, capture_output=True)
    return safetensors.load_file(rollouts), safetensors.load_file(scored)


def as_torch(columns):
    torch = pytest.importorskip("torch")
    unsigned = {np.dtype("u4"): np.int32, np.dtype("u8"): np.int64}
    return {
        name: torch.from_numpy(array.view(unsigned.get(array.dtype, array.dtype))) for name, array in columns.items()
    }


@pytest.mark.parametrize("name", lockstep.names())
def test_every_recipe_gives_the_bytes_of_score(name, tmp_path):
    columns, scored = made(tmp_path, name)
    if "logp_rollout" in columns:
        # Far enough from the sampler that rejections have something to reject.
        far = columns["logp_rollout"].copy()
        far[columns["cu_seqlens"][1] : columns["cu_seqlens"][2]] -= 3
        columns, scored = made(tmp_path, name, logp_rollout=far)
    for given in (columns, as_torch(columns)):
        advantages = lockstep.advantages(name, **given)
        for credit, loss in (lockstep.step(name, **given), (advantages, lockstep.loss(name, advantages, **given))):
            got = {"advantage": credit.advantage, "coef": loss.coef, "loss": loss.loss, "loss_mask": credit.loss_mask}
            got |= {"weights": credit.weights, "returns": credit.returns, "state.role_values": credit.role_values}
            for key, array in got.items():
                if key in scored or array is not None:
                    assert np.asarray(array).tobytes() == scored[key].tobytes(), key


FILTERS = [dict(kind="spread", eta=0.45), dict(kind="solve_rate", threshold=0.4, limit=0.6), dict(kind="balanced", tau=0.3)]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("filter_", FILTERS, ids=lambda filter_: filter_["kind"])
def test_sequences_that_a_filter_drops_have_no_advantage(filter_, kind, tmp_path):
    recipe = lockstep.recipe({"extends": "grpo", "reward.filter": filter_})
    path = tmp_path / "recipe.toml"
    path.write_text(recipe.toml)
    rewards = np.array([1, 0, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0], "f4")
    columns, scored = made(tmp_path, "grpo", path, rewards=rewards)
    given = columns if kind == "numpy" else as_torch(columns)
    for credit in (lockstep.advantages(recipe, **given), lockstep.step(recipe, **given)[0]):
        keep, advantage = np.asarray(credit.keep), np.asarray(credit.advantage)
        assert 0 < keep.sum() < keep.size and advantage.any()
        assert advantage.tobytes() == scored["advantage"].tobytes()
        assert not advantage[keep == 0].view("u4").any()
        assert np.asarray(lockstep.loss(recipe, credit, **given).coef).tobytes() == scored["coef"].tobytes()
