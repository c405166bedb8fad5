"""verl's own engine and `compute_advantage`, with verl's maths and with ours: one value of the configuration is all that differs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("verl")
from tiny import model  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.trainer.config import AlgoConfig  # noqa: E402
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY  # noqa: E402
from verl.trainer.ppo.ray_trainer import compute_advantage  # noqa: E402

import lockstep.verl  # noqa: E402, F401

HERE = Path(__file__).parent


def theirs(registry, without):
    """What verl itself registers, new names too."""
    names = {name for name in registry if not name.startswith("lockstep")}
    assert without <= names
    return sorted(names - without)


# Clip-Cov draws at random; bypass_mode is no loss but calls one of verl's.
LOSSES = theirs(POLICY_LOSS_REGISTRY, {"clip_cov", "bypass_mode"})
# To these verl passes what no estimator of another name gets.
OF_ITS_OWN = {"gae", "gdpo", "remax", "optimal_token_baseline", "tir_optimal_token_baseline"}
ESTIMATORS = theirs(ADV_ESTIMATOR_REGISTRY, OF_ITS_OWN)
MODES = ["token-mean", "seq-mean-token-sum-norm"]
# Bounds of probabilities, not of ratios: of 32 words each has about 0.03.
NARROW = {"dppo_tv": 0.005, "dppo_kl": 0.0005}


def runs():
    for name in LOSSES:
        for mode in MODES:
            low, high = (NARROW[name],) * 2 if name in NARROW else (0.2, 0.28)
            settings = dict(
                clip_ratio_low=low, clip_ratio_high=high, loss_agg_mode=mode, entropy_coeff=0.01, use_kl_loss=True, calculate_entropy=True
            )
            for loss_mode in (name, f"lockstep:{name}"):
                yield f"{loss_mode} {mode}", (dict(loss_mode=loss_mode, dro_beta=0.3, kl_cov_ratio=0.2), settings)


def launched(folder, world):
    """What rank 0 of `world` processes has written."""
    model(folder / "model")
    (folder / "runs.json").write_text(json.dumps(dict(runs())))
    environment = dict(
        os.environ,
        OMP_NUM_THREADS="1",
        VERL_USE_EXTERNAL_MODULES="verl_cpu,lockstep.verl",
        VERL_PLATFORM="cpu",
        # verl has its FSDP engine for cuda and npu; verl_cpu makes cuda's one run here.
        VERL_ENGINE_DEVICE="cuda",
    )
    ranks = []
    for rank in range(world):
        command = [sys.executable, HERE / "verl_engine.py", folder, str(rank), str(world)]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        for rank in ranks:
            said, _ = rank.communicate(timeout=300)
            assert rank.returncode == 0, said[-4000:]
    finally:
        for rank in ranks:
            rank.kill()
    return torch.load(folder / "trained.pt")


@pytest.mark.parametrize("world", [1, 2])
def test_three_updates_lead_to_verls_parameters(world, tmp_path):
    out = launched(tmp_path, world)
    before, of = out["before"], out["runs"]
    for mode in MODES:
        for name in LOSSES:
            parameters, losses = of[f"{name} {mode}"]
            own, own_losses = of[f"lockstep:{name} {mode}"]
            assert (parameters - before).abs().max() > 1e-3, "nothing was learnt"
            assert (own - parameters).abs().max() < 1e-5, (name, mode)
            np.testing.assert_allclose(own_losses, losses, rtol=1e-5, atol=1e-6, err_msg=f"{name} {mode}")
            if name != "vanilla":
                assert (of[f"vanilla {mode}"][0] - parameters).abs().max() > 1e-4, f"{name} is vanilla here"


def rollouts(name, rows=13, width=17):
    """A batch as verl's trainer has it: prompts in any order, one of them with a single response, a turn of the environment in each."""
    generator = np.random.default_rng(5)
    lengths = torch.from_numpy(generator.integers(3, width + 1, rows))
    mask = (torch.arange(width) < lengths[:, None]).long()
    mask[:, 1] = 0
    rewards = torch.zeros(rows, width)
    rewards[torch.arange(rows), lengths - 1] = torch.from_numpy(generator.normal(size=rows).astype(np.float32))
    rewards[3] = 0
    uid = np.array([f"prompt {i % 4}" for i in range(rows - 1)] + ["alone"], dtype=object)
    generator.shuffle(uid)
    columns = dict(token_level_rewards=rewards, response_mask=mask)
    data = DataProto.from_dict(columns, non_tensors=dict(uid=uid))
    # verl's pass@k refuses a single response, and so do we.
    return data.select_idxs([i for i in range(rows) if uid[i] != "alone"]) if name == "grpo_passk" else data


@pytest.mark.parametrize("settings", [{}, dict(norm_adv_by_std_in_grpo=False, gamma=0.9)], ids=["", "changed"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_advantages_are_verls(name, settings):
    config = AlgoConfig(**settings)
    found = []
    for key in (name, f"lockstep:{name}", *(["lockstep"] if name == "grpo" else [])):
        data = compute_advantage(
            rollouts(name), adv_estimator=key, norm_adv_by_std_in_grpo=config.norm_adv_by_std_in_grpo, gamma=config.gamma, config=config
        )
        found.append([data.batch[what] * data.batch["response_mask"] for what in ("advantages", "returns")])
    assert found[0][0].abs().max() > 0.1
    for own in found[1:]:
        torch.testing.assert_close(own, found[0], rtol=0, atol=2e-6)
