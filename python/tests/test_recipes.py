"""Every recipe through Python gives the bytes of `lockstep score`, on arrays of NumPy and of torch."""

import os
import subprocess

import numpy as np
import pytest

import lockstep

safetensors = pytest.importorskip("safetensors.numpy")
BINARY = os.environ.get("LOCKSTEP_BIN")
pytestmark = pytest.mark.skipif(not BINARY, reason="LOCKSTEP_BIN names no lockstep binary")


def made(folder, name):
    rollouts, scored = folder / f"{name}.rollouts", folder / f"{name}.scored"
    like = [BINARY, "rollouts", "--like", name, "--sequences", "16", "--tokens", "200", "--seed", "7", "-o", rollouts]
    subprocess.run(like, check=True, capture_output=True)
    subprocess.run([BINARY, "score", rollouts, "--recipe", name, "-o", scored], check=True, capture_output=True)
    return safetensors.load_file(rollouts), safetensors.load_file(scored)


def as_torch(columns):
    torch = pytest.importorskip("torch")
    unsigned = {np.dtype("u4"): np.int32, np.dtype("u8"): np.int64}
    return {
        name: torch.from_numpy(array.view(unsigned.get(array.dtype, array.dtype))) for name, array in columns.items()
    }


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("name", lockstep.names())
def test_every_recipe_gives_the_bytes_of_score(name, kind, tmp_path):
    columns, scored = made(tmp_path, name)
    given = columns if kind == "numpy" else as_torch(columns)
    credit, loss = lockstep.step(name, **given)
    got = {"advantage": credit.advantage, "coef": loss.coef, "loss": loss.loss}
    for key, array in got.items():
        assert np.asarray(array).tobytes() == scored[key].tobytes(), key
