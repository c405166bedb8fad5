"""verl's own functions beside ours, on the arguments that verl passes."""

import numpy as np
import pytest
import torch

core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
from verl.workers.config import ActorConfig, PolicyLossConfig  # noqa: E402

import lockstep.verl  # noqa: E402

REGISTERED = lockstep.verl.register()
MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
# Clip-Cov draws at random.
LOSSES = [name for name in lockstep.verl.LOSSES if name != "clip_cov"]


def batch(seed, rows=6, width=17):
    generator = torch.Generator().manual_seed(seed)
    old = -3 * torch.rand(rows, width, generator=generator)
    new = (old + 0.4 * torch.randn(rows, width, generator=generator)).clamp(max=0).requires_grad_()
    lengths = torch.randint(1, width + 1, (rows, 1), generator=generator)
    mask = torch.arange(width)[None] < lengths
    mask &= torch.rand(rows, width, generator=generator) > 0.1
    mask[:, 0] = True
    advantages = torch.randn(rows, 1, generator=generator).expand(rows, width).contiguous()
    return old, new, mask, advantages


def config(**changed):
    own = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        use_dynamic_bsz=True,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        policy_loss=PolicyLossConfig(dro_beta=0.3, kl_cov_ratio=0.1),
    )
    own.global_batch_info.update(changed)
    return own


def both(name, mode, info, weights):
    old, new, mask, advantages = batch(3)
    out = []
    for key in (name, f"lockstep:{name}"):
        new.grad = None
        loss, metrics = core_algos.get_policy_loss_fn(key)(
            old_log_prob=old,
            log_prob=new,
            advantages=advantages,
            response_mask=mask,
            loss_agg_mode=mode,
            config=config(**info),
            rollout_is_weights=weights,
        )
        loss.backward()
        out.append((loss.detach(), new.grad * mask, metrics))
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_verls(name, mode):
    for info in ({}, dict(dp_size=2, batch_num_tokens=160, global_batch_size=16, loss_scale_factor=32)):
        (loss, gradient, metrics), (own, own_gradient, own_metrics) = both(name, mode, info, None)
        torch.testing.assert_close(own, loss, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(own_gradient, gradient, rtol=2e-6, atol=1e-7 * gradient.abs().max().item())
        for key, value in metrics.items():
            assert own_metrics[key] == pytest.approx(value, rel=1e-5, abs=1e-6), key


def test_weights_of_the_sampler_are_verls():
    weights = torch.rand(6, 17, generator=torch.Generator().manual_seed(1)) + 0.5
    for name in ("vanilla", "gspo", "cispo"):
        (loss, gradient, _), (own, own_gradient, _) = both(name, "token-mean", {}, weights)
        torch.testing.assert_close(own, loss, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(own_gradient, gradient, rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("grpo", "lockstep"),
        ("rloo", "lockstep:rloo"),
        ("rloo_vectorized", "lockstep:verl_rloo_vectorized"),
        ("opo", "lockstep:opo"),
        ("reinforce_plus_plus_baseline", "lockstep:reinforce_plus_plus_baseline"),
        ("gpg", "lockstep:gpg"),
    ],
)
def test_estimators_are_verls_in_any_order_of_prompts(theirs, ours):
    generator = np.random.default_rng(5)
    _, _, mask, _ = batch(4, rows=12)
    rewards = torch.zeros(12, 17)
    rewards[:, 0] = torch.from_numpy(generator.integers(0, 4, 12).astype(np.float32))
    index = np.array([f"prompt {i % 3}" for i in range(12)], dtype=object)
    generator.shuffle(index)
    from verl.trainer.config import AlgoConfig

    found = []
    for key in (theirs, ours):
        estimate = core_algos.get_adv_estimator_fn(key)
        found.append(estimate(token_level_rewards=rewards, response_mask=mask.float(), index=index, config=AlgoConfig())[0])
    torch.testing.assert_close(found[1], found[0], rtol=2e-6, atol=2e-6)


def test_a_recipe_with_a_term_that_verl_adds_is_refused():
    old, new, mask, advantages = batch(1)
    for name, key in (("nemo_kl", "use_kl_loss"), ("ppo_critic", "critic")):
        with pytest.raises(lockstep.Error, match=key):
            lockstep.verl.policy_loss(name, old, new, advantages, mask, config=config())
