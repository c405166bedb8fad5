"""verl's own functions beside ours, on the arguments that verl passes."""

import pytest
import torch

core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
from verl.workers.config import ActorConfig, PolicyLossConfig  # noqa: E402

import lockstep.faults  # noqa: E402
import lockstep.torch  # noqa: E402
import lockstep.verl  # noqa: E402

MODES = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
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


def test_masked_tokens_of_kl_cov_may_hold_anything():
    old, new, mask, advantages = batch(3)
    want = lockstep.verl.policy_loss("kl_cov", old, new, advantages, mask, config=config())[1]
    for hole in (float("nan"), float("-inf")):
        assert lockstep.verl.policy_loss("kl_cov", old, torch.where(mask, new, hole), advantages, mask, config=config())[1] == want


def test_prompts_may_be_a_tensor():
    rewards, mask = torch.tensor([[1.0], [0.0], [1.0], [0.0]]), torch.ones(4, 1)
    for name in ("rloo_vectorized", "grpo"):
        want = lockstep.verl.estimate(name, rewards, mask, ["a", "a", "b", "b"])[0]
        assert want.abs().min() > 0 and torch.equal(lockstep.verl.estimate(name, rewards, mask, torch.tensor([7, 7, 3, 3]))[0], want)
    with pytest.raises(lockstep.Error, match="`index` has 3 entries: expected 4, the prompt of each response"):
        lockstep.verl.estimate("grpo", rewards, mask, ["a", "a", "b"])


def test_weights_of_the_sampler_are_verls():
    weights = torch.rand(6, 17, generator=torch.Generator().manual_seed(1)) + 0.5
    for name in ("vanilla", "gspo", "cispo"):
        (loss, gradient, _), (own, own_gradient, _) = both(name, "token-mean", {}, weights)
        torch.testing.assert_close(own, loss, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(own_gradient, gradient, rtol=2e-6, atol=1e-8)


def test_every_recipe_is_a_loss_as_it_stands_or_refused():
    old, new, mask, advantages = batch(3)
    ran, recipes = set(), [name for name in lockstep.names() if name not in lockstep.verl.LOSSES]
    for name in recipes:
        arguments = dict(logp=new, logp_old=old, loss_mask=mask)
        try:
            loss, _ = lockstep.verl.policy_loss(name, old, new, advantages, mask, "token-sum", config())
        except lockstep.Error as error:
            assert str(error).startswith(f"lockstep:{name}: ") and "verl does not pass" in str(error)
            continue
        per_token = name != "opsm"
        credit = lockstep.Credit(advantage=advantages if per_token else advantages[:, 0], per_token=per_token)
        assert loss.item() == lockstep.torch.loss(name, credit, **arguments).loss.item(), name
        ran.add(name)
    assert {"dapo", "dr_grpo", "gmpo", "opsm", "trl", "minpro"} <= ran
    assert not ran & {"areal", "verl_tis_token", "nemo_kl", "ppo_critic", "top_entropy", "vespo"}


def test_the_off_policy_mask_takes_one_advantage_per_sequence():
    old, new, mask, advantages = batch(3)
    advantages[2] *= torch.linspace(1, 2, advantages.shape[1])
    with pytest.raises(lockstep.Error, match=r"`advantages`\[2\] has several values"):
        lockstep.verl.policy_loss("opsm", old, new, advantages, mask, "token-sum", config())
    with pytest.raises(lockstep.Error, match="`credit.advantage`: one per sequence"):
        lockstep.torch.loss("opsm", lockstep.Credit(advantages, per_token=True), logp=new, logp_old=old, loss_mask=mask)


def test_clip_cov_draws_and_is_verls_where_all_that_may_be_drawn_is():
    old, new, mask, advantages = batch(3)

    def run(key, ratio):
        own = config()
        own.policy_loss.__dict__.update(clip_cov_ratio=ratio, clip_cov_lb=0.1, clip_cov_ub=5.0)
        loss = core_algos.get_policy_loss_fn(key)(old, new, advantages, mask, "token-mean", own)[0]
        return torch.autograd.grad(loss, new)[0]

    torch.testing.assert_close(run("lockstep:clip_cov", 1.0), run("clip_cov", 1.0), rtol=2e-6, atol=1e-8)
    drawn = [run("lockstep:clip_cov", 0.02) for _ in range(8)]
    assert any(not torch.equal(one, drawn[0]) for one in drawn)
    torch.manual_seed(1)
    first = run("lockstep:clip_cov", 0.02)
    torch.manual_seed(1)
    assert torch.equal(run("lockstep:clip_cov", 0.02), first)


def test_a_term_that_verl_adds_is_refused_with_verls_key():
    old, new, mask, advantages = batch(1)
    for name, key in (
        ("nemo_kl", "actor_rollout_ref.actor.use_kl_loss"),
        ("ppo_critic", "actor_rollout_ref.actor.entropy_coeff.*critic"),
        ("verl_tis_token", "algorithm.rollout_correction"),
    ):
        with pytest.raises(lockstep.Error, match=key):
            lockstep.verl.policy_loss(name, old, new, advantages, mask, config=config())
    for name, key in (
        ("gae", "algorithm.adv_estimator=gae"),
        ("areal", "algorithm.rollout_correction"),
        ("psr", "algorithm.filter_groups"),
        ("remax", "baseline.*its own algorithm.adv_estimator=remax"),
    ):
        with pytest.raises(lockstep.Error, match=key):
            lockstep.verl.estimate(name, mask.float(), mask, ["a", "a", "b", "b", "c", "c"])
    with pytest.raises(lockstep.Error, match="uid"):
        lockstep.verl.estimate("grpo", mask.float(), mask)


def test_a_recipe_of_a_file(tmp_path, monkeypatch):
    old, new, mask, advantages = batch(2)
    run = core_algos.get_policy_loss_fn("lockstep:file")
    arguments = (old, new, advantages, mask, "token-mean", config())
    monkeypatch.delenv("LOCKSTEP_RECIPE", raising=False)
    with pytest.raises(lockstep.Error, match="LOCKSTEP_RECIPE is not set"):
        run(*arguments)
    path = tmp_path / "own.toml"
    monkeypatch.setenv("LOCKSTEP_RECIPE", str(path))
    with pytest.raises(lockstep.Error, match=r"LOCKSTEP_RECIPE is '.*own.toml': No such file"):
        run(*arguments)
    path.write_text('extends = "dapo"\ngate.clip_ratio_high = 0.5\n')
    loss = run(*arguments)[0].item()
    assert loss == core_algos.get_policy_loss_fn("lockstep:file")(*arguments)[0].item()
    assert abs(loss - core_algos.get_policy_loss_fn("lockstep:dapo")(*arguments)[0].item()) > 1e-3
    bad = tmp_path / "bad.toml"
    monkeypatch.setenv("LOCKSTEP_RECIPE", str(bad))
    bad.write_text('extends = "no_such_recipe"\n')
    with pytest.raises(lockstep.Error, match="no_such_recipe"):
        run(*arguments)


def test_a_name_that_is_none_is_an_error():
    with pytest.raises(ValueError, match="lockstep:no_such_recipe"):
        core_algos.get_policy_loss_fn("lockstep:no_such_recipe")
    with pytest.raises(ValueError, match="lockstep:no_such_recipe"):
        core_algos.get_adv_estimator_fn("lockstep:no_such_recipe")


def test_a_key_of_verl_that_a_loss_needs_is_named():
    old, new, mask, advantages = batch(1)
    own = config()
    own.policy_loss.__dict__["dro_beta"] = None
    with pytest.raises(lockstep.Error, match="policy_loss.dro_beta is not set"):
        lockstep.verl.policy_loss("dro", old, new, advantages, mask, config=own)


def test_a_bad_value_is_nan_where_the_environment_says_so(monkeypatch):
    old, new, mask, advantages = batch(1)
    monkeypatch.setattr(lockstep.faults, "_WARNED", [])
    with torch.no_grad():
        new[0, 0] = float("nan")
    arguments = ("vanilla", old, new, advantages, mask, "token-mean", config())
    with pytest.raises(lockstep.Error, match=r"`logp`\[0\]"):
        lockstep.verl.policy_loss(*arguments)
    monkeypatch.setenv("LOCKSTEP_ON_ERROR", "nan")
    with pytest.warns(RuntimeWarning, match=r"`logp`\[0\]"):
        loss, logged = lockstep.verl.policy_loss(*arguments)
    loss.backward()
    assert loss.isnan() and new.grad.isnan().all() and all(value != value for value in logged.values())
