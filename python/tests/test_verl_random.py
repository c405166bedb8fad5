"""verl's own losses and advantages beside ours, with random settings on random batches."""

import numpy as np
import pytest
import torch
from draws import CASES, Draw, check_same, outcome

pytest.importorskip("verl")
from verl import DataProto  # noqa: E402
from verl.trainer.config import AlgoConfig  # noqa: E402
from verl.trainer.ppo.core_algos import get_policy_loss_fn  # noqa: E402
from verl.trainer.ppo.ray_trainer import compute_advantage  # noqa: E402
from verl.workers.config import ActorConfig, PolicyLossConfig  # noqa: E402

import lockstep.verl  # noqa: E402

MODES = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
BOUNDS = [(None, None), (0.2, 0.28), (0.5, 0.1), (1.5, 0.3), (0.0, 0.2)]
CLIPPED = {"actor/pg_clipfrac", "actor/pg_clipfrac_lower"}


def actor(draw):
    """An actor's configuration, and the settings that were drawn, for messages."""
    low, high = draw.choice(BOUNDS)
    of_loss = dict(
        dro_beta=draw.choice([0.1, 1.0]),
        kl_cov_ratio=draw.choice([None, 0.2, 0.5]),
        ppo_kl_coef=draw.choice([None, 0.1]),
        # Everything that Clip-Cov may draw is drawn, since verl's draws are others than ours.
        clip_cov_ratio=1.0,
        clip_cov_lb=draw.choice([None, 0.0]),
        clip_cov_ub=draw.choice([None, 50.0]),
    )
    settings = dict(
        clip_ratio=draw.choice([0.1, 0.2]),
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=draw.choice([1.5, 3.0]),
        tau_pos=draw.choice([1.0, 0.5]),
        tau_neg=draw.choice([1.05, 2.0]),
    )
    info = draw.choice(
        [
            {},
            dict(dp_size=1, batch_num_tokens=50, global_batch_size=8, loss_scale_factor=16.0),
            dict(dp_size=2, batch_num_tokens=torch.tensor(40), global_batch_size=8, loss_scale_factor=None),
        ]
    )
    policy_loss = PolicyLossConfig(**of_loss)
    made = ActorConfig(
        strategy="fsdp", rollout_n=1, use_dynamic_bsz=True, policy_loss=policy_loss, **settings
    )
    made.global_batch_info.update(info)
    return made, {**settings, **of_loss, **info}


@pytest.mark.parametrize("name", lockstep.verl.LOSSES)
def test_losses_are_verls(name):
    for seed in range(CASES):
        draw = Draw(seed)
        # Of equal covariances verl and we select others: those of equal advantages, and of two tokens alone.
        distinct = name in ("clip_cov", "kl_cov")
        rows, width = draw.randint(1, 5), draw.randint(3 if distinct else 1, 7)
        config, settings = actor(draw)
        scale, mode = draw.choice([0.1, 1.0, 15.0]), draw.choice(MODES)
        logp = draw.logps(rows, width)
        advantages = draw.row_advantages(rows)[:, None].expand(rows, width).contiguous()
        by_token = distinct or draw.random() < 0.3
        if by_token:
            advantages = draw.normal_of(rows, width) * (1.0 if distinct else advantages != 0)
        mask = draw.mask(rows, width, least=3 if distinct else 1)
        batch = dict(
            old_log_prob=draw.near(logp, scale),
            advantages=advantages,
            response_mask=mask,
            loss_agg_mode=mode,
            config=config,
        )
        batch["rollout_is_weights"] = draw.choice([None, 2 * draw.uniform_of(rows, width)])

        def run(key):
            function = get_policy_loss_fn(key)
            loss, gradient, metrics = outcome(logp, lambda log_prob: function(log_prob=log_prob, **batch))
            return loss, gradient * mask, metrics

        # As the documentation of `lockstep.verl` says.
        others = name == "clip_cov" or (name == "geo_mean" and by_token) or not advantages[mask].all()
        case = dict(seed=seed, mode=mode, scale=scale, **settings)
        check_same(run(name), run(f"lockstep:{name}"), case, CLIPPED if others else set())


@pytest.mark.parametrize("name", lockstep.verl.ESTIMATORS)
def test_advantages_are_verls(name):
    for seed in range(CASES):
        draw = Draw(seed)
        rows, width = draw.randint(2, 9), draw.randint(1, 6)
        # Two rows at least, for verl's REINFORCE++ divides by the deviation of what it whitens.
        mask = draw.mask(rows, width, least=width + 1)
        last = (mask.cumsum(dim=1) == mask.sum(dim=1, keepdim=True)) & mask
        binary, normal = draw.uniform_of(rows, width) < 0.5, draw.normal_of(rows, width)
        rewards = draw.choice([normal, normal * last, binary * last])
        uid = [draw.choice("abc") for _ in range(rows)]
        if name == "grpo_passk":
            # verl's, like ours, refuses a single response.
            uid[rows // 2 :] = uid[: rows - rows // 2]
            uid = uid if rows % 2 == 0 else ["a"] * rows
        config = AlgoConfig(gamma=draw.choice([1.0, 0.9]), norm_adv_by_std_in_grpo=draw.random() < 0.5)
        found = []
        for key in (name, f"lockstep:{name}"):
            columns = dict(token_level_rewards=rewards.float(), response_mask=mask.long())
            data = DataProto.from_dict(columns, non_tensors=dict(uid=np.array(uid, dtype=object)))
            std = config.norm_adv_by_std_in_grpo
            settings = dict(gamma=config.gamma, norm_adv_by_std_in_grpo=std, config=config)
            made = compute_advantage(data, adv_estimator=key, **settings).batch
            found.append([torch.where(mask, made[what], 0.0) for what in ("advantages", "returns")])
        case = dict(seed=seed, uid="".join(uid), gamma=config.gamma, std=std)
        ours, theirs = found[1], found[0]
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4, msg=lambda said: f"{case}: {said}")
