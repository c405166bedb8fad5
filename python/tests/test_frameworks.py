"""slime, OpenRLHF, NeMo RL and AReaL: our adapters, called with their signatures, beside what their code computes (golden/cases).

None of the four is installed: modules here stand in for what an adapter imports of them, with the signatures of the versions named there.
"""

import enum
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from golden import Packed, cases, check, differs, expected, files

import lockstep
import lockstep.areal
import lockstep.nemo
import lockstep.openrlhf
import lockstep.slime
from lockstep._host import by_rewards_alone


def module(monkeypatch, path, **members):
    """A module that stands in for one of a framework's, with its packages."""
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        if name not in sys.modules:
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
            if end > 1:
                monkeypatch.setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], sys.modules[name], raising=False)
    for name, value in members.items():
        monkeypatch.setattr(sys.modules[path], name, value, raising=False)
    return sys.modules[path]


def terms(case):
    return max(sum(abs(x) for x in want) for want, _ in expected(case, "dloss_dlogp"))


def every(source):
    return [pytest.param(source, name, id=name) for name in files(source)]


# slime


def log_probs_and_entropy(logits, *, args, unconcat_tokens, total_lengths, response_lengths, with_entropy=False, non_loss_data=True, **top_p):
    """Stands in for slime's: channel 0 of `logits` is the log-probability, channel 1 the entropy."""
    split = [list(logits[0, :, channel].split(response_lengths)) for channel in (0, 1)]
    if not (with_entropy and args.entropy_coef):
        split[1] = [own.detach() for own in split[1]]
    return torch.empty(0), dict(zip(("log_probs", "entropy"), split))


def sum_of_sample_mean(lengths, masks, sums, by_tokens):
    def reduce(x):
        shares = [1 if by_tokens else total.clamp(min=1) for total in sums]
        return sum((own * mask).sum() / share for own, mask, share in zip(x.split(lengths), masks, shares))

    return reduce


@pytest.fixture
def slime(monkeypatch):
    module(
        monkeypatch,
        "slime.backends.megatron_utils.loss",
        get_log_probs_and_entropy=log_probs_and_entropy,
        get_rollout_top_p_logprob_kwargs=lambda args, batch: {},
    )


SLIME = dict(
    advantage_estimator="grpo", eps_clip=0.2, eps_clip_high=None, eps_clip_c=None, use_kl_loss=False, kl_loss_type="k1", kl_loss_coef=0.0,
    use_unbiased_kl=False, entropy_coef=0.0, use_opsm=False, opsm_delta=1e-4, use_tis=False, get_mismatch_metrics=False, tis_clip=2.0,
    tis_clip_low=0, custom_tis_function_path=None, use_rollout_logprobs=False, calculate_per_token_loss=False,
    custom_pg_loss_reducer_function_path=None, n_samples_per_prompt=2,
)  # fmt: skip


def slime_call(packed, config, name=None):
    config = {key: value for key, value in config.items() if key in SLIME}
    args = SimpleNamespace(**{**SLIME, **config})
    logp = packed.tokens("logp_new")
    entropy = packed.tokens("entropy") if "entropy" in packed else torch.zeros_like(logp)
    logits = torch.stack([logp, entropy], dim=-1)[None].requires_grad_()
    split = lambda values: list(values.split(packed.lengths))  # noqa: E731
    masks = split(packed.mask)
    own = [mask.sum() for mask in masks]
    sums = [torch.tensor(float(x)) for x in packed.inputs["rollout_mask_sums"]] if "rollout_mask_sums" in packed else own
    batch = {
        "unconcat_tokens": masks,
        "total_lengths": packed.lengths,
        "response_lengths": packed.lengths,
        "loss_masks": masks,
        "rollout_mask_sums": sums,
        "advantages": split(packed.advantages),
        "log_probs": split(packed.tokens("logp_old")),
    }
    for column, key in (("logp_rollout", "rollout_log_probs"), ("logp_ref", "ref_log_probs")):
        if column in packed:
            batch[key] = split(packed.tokens(column))
    function = lockstep.slime.loss if name is None else getattr(lockstep.slime, f"loss:{name}")
    reduce = sum_of_sample_mean(packed.lengths, masks, sums, args.calculate_per_token_loss)
    loss, logged = function(args, batch, logits, reduce)
    loss.backward()
    return loss.item(), logits.grad[0], logged


@pytest.mark.parametrize("source, name", every("slime"))
def test_slime_stand_in_losses_are_slimes(source, name, slime):
    for case in cases(source, name):
        config = dict(case["config"])
        if name == "policy_losses":
            # Losses of tokens; their sum is what has the gradient.
            config |= {"advantage_estimator": "grpo" if config["loss"] == "ppo" else config["loss"], "calculate_per_token_loss": True}
        if "tis_function" in config:
            config["custom_tis_function_path"] = f"slime.backends.megatron_utils.loss.{config['tis_function']}_function"
        packed = Packed(case)
        loss, gradient, logged = slime_call(packed, config)
        outside = 1.0
        if not config.get("calculate_per_token_loss"):
            outside = config.get("num_microbatches", 1) * config.get("dp_size", 1) / config["step_global_batch_size"]
        check(case, "dloss_dlogp", gradient[:, 0].double() * outside, packed.spans)
        if name == "policy_losses":
            continue
        check(case, "loss", loss * outside, terms=terms(case) + abs(logged["entropy_loss"].item() * config.get("entropy_coef", 0) * outside))
        if "entropy_coef" in config:
            check(case, "dloss_dentropy", gradient[:, 1].double() * outside, packed.spans)
        for key in ("entropy_loss", "train_rollout_logprob_abs_diff"):
            if key in logged and key in case["expected"]["metrics"] and "entropy" in packed:
                check(case, f"metrics.{key}", logged[key])


# OpenRLHF


def openrlhf_call(packed, config, cls=lockstep.openrlhf.PolicyLoss):
    made = ("clip_eps_low", "clip_eps_high", "dual_clip", "token_level_loss", "policy_loss_type")
    made += ("enable_vllm_is_correction", "vllm_is_truncated_threshold", "vllm_is_correction_type")
    loss = cls(**{key: config[key] for key in made if key in config})
    logp = packed.padded(packed.tokens("logp_new")).requires_grad_()
    called = {key: config[key] for key in ("dp_size", "batch_num_tokens", "global_batch_size") if config.get(key) is not None}
    out = loss(
        logp,
        packed.padded(packed.tokens("logp_old")),
        packed.padded(packed.advantages),
        action_mask=packed.padded(packed.mask.bool(), False),
        rollout_log_probs=packed.padded(packed.tokens("logp_rollout")) if "logp_rollout" in packed else None,
        **called,
    )
    out[0].backward()
    return out, packed.packed(logp.grad)


@pytest.mark.parametrize("source, name", every("openrlhf"))
def test_openrlhf_stand_in_losses_are_openrlhfs(source, name):
    for case in cases(source, name):
        packed = Packed(case)
        (loss, clipped, kl, vllm_kl), gradient = openrlhf_call(packed, case["config"])
        check(case, "loss", loss, terms=terms(case))
        check(case, "dloss_dlogp", gradient, packed.spans)
        check(case, "metrics.clip_ratio", clipped)
        live = packed.mask.bool()
        apart = (packed.tokens("logp_old") - packed.tokens("logp_new"))[live].abs().mean().item()
        check(case, "metrics.ppo_kl", kl, terms=apart)
        assert (vllm_kl is not None) == ("vllm_kl" in case["expected"]["metrics"])
        if vllm_kl is not None:
            apart = (packed.tokens("logp_old") - packed.tokens("logp_rollout"))[live].abs().mean().item()
            check(case, "metrics.vllm_kl", vllm_kl, terms=apart)


# NeMo RL


@pytest.fixture
def nemo(monkeypatch):
    return module(
        monkeypatch,
        "nemo_rl.algorithms.loss.interfaces",
        LossType=enum.Enum("LossType", ["TOKEN_LEVEL", "SEQUENCE_LEVEL"]),
        LossInputType=enum.Enum("LossInputType", ["LOGIT", "LOGPROB"]),
        MetricNormalizer=enum.Enum("MetricNormalizer", ["TOKENS", "SEQUENCES", "NONE"]),
    )


def nemo_call(packed, config, recipe=""):
    cfg = {key: value for key, value in config.items() if key in lockstep.nemo.DEFAULTS}
    loss = lockstep.nemo.ClippedPGLossFn(SimpleNamespace(**cfg), recipe=recipe)
    logp = packed.padded(packed.tokens("logp_new")).requires_grad_()
    shifted = lambda values, fill=0.0: packed.padded(values, fill, before=1)  # noqa: E731
    rows = len(packed.lengths)
    data = {
        "token_mask": shifted(packed.mask.float()),
        "sample_mask": torch.tensor([float(x) for x in packed.inputs.get("sample_mask", [1] * rows)]),
        "advantages": shifted(packed.advantages),
        "generation_logprobs": shifted(packed.tokens("logp_rollout")),
        "prev_logprobs": shifted(packed.tokens("logp_old" if "logp_old" in packed else "logp_new")),
    }
    if "logp_ref" in packed:
        data["reference_policy_logprobs"] = shifted(packed.tokens("logp_ref"))
    if "rewards" in packed:
        data["rewards"] = packed.tokens("rewards")
    counts = (torch.tensor(config["global_valid_seqs"]), torch.tensor(config["global_valid_toks"]))
    out, logged = loss(logp, data, *counts)
    out.backward()
    return out.item(), packed.packed(logp.grad), logged


@pytest.mark.parametrize("source, name", every("nemo_rl"))
def test_nemo_stand_in_losses_are_nemos(source, name, nemo):
    for case in cases(source, name):
        packed = Packed(case)
        loss, gradient, logged = nemo_call(packed, case["config"])
        check(case, "dloss_dlogp", gradient, packed.spans)
        check(case, "loss", loss, terms=terms(case))
        for key, value in logged.items():
            sum_of = terms(case) if key == "loss" else 0.0
            if key == "kl_penalty" and "logp_ref" in packed:
                # Of k1, whose terms cancel.
                sum_of = (packed.tokens("logp_new") - packed.tokens("logp_ref"))[packed.mask.bool()].abs().mean().item()
            check(case, f"metrics.{key}", value, terms=sum_of)


# AReaL


class Tracker:
    """Stands in for AReaL's `stats_tracker`."""

    def __init__(self):
        self.seen, self.masks = {}, {}

    def denominator(self, **masks):
        assert all(mask.dtype == torch.bool for mask in masks.values())
        self.masks |= masks

    def stat(self, denominator, **stats):
        assert denominator in self.masks
        self.seen |= stats

    def scalar(self, **numbers):
        self.seen |= numbers


def resolve_proximal_logp(prox_logp_gt, prox_logp_method, old_logp, logprobs, versions, current_version):
    """Stands in for AReaL's: between sampler and policy by their versions, where there was no forward pass."""
    if prox_logp_gt is not None:
        return prox_logp_gt
    assert prox_logp_method == "loglinear"
    behind = current_version - versions
    share = torch.where((behind > 0) & (versions >= 0), (behind - 1) / behind, 0.0).clamp(0.0, 1.0)
    return old_logp + share * (logprobs - old_logp)


@pytest.fixture
def areal(monkeypatch):
    tracker = Tracker()
    return module(
        monkeypatch,
        "areal.trainer.ppo.actor",
        stats_tracker=tracker,
        infer_token_denominator=lambda data, mask: torch.ones_like(mask),
        _resolve_proximal_logp=resolve_proximal_logp,
        grpo_loss_fn=lambda *_: None,
    )


def areal_call(packed, config, name=""):
    config = dict(config)
    config.pop("batch", None)
    if config.get("rejection_sampling"):
        config["rejection_sampling"] = SimpleNamespace(**config["rejection_sampling"])
    logp = packed.tokens("logp_new").requires_grad_()
    old = packed.tokens("logp_old") if "logp_old" in packed else None
    data = {
        "logprobs": packed.tokens("logp_rollout") if "logp_rollout" in packed else old,
        "prox_logp": old,
        "advantages": packed.advantages,
        "loss_mask": packed.mask,
        "cu_seqlens": torch.tensor(packed.offsets, dtype=torch.int32),
    }
    if "versions" in packed:
        data["versions"] = torch.tensor(packed.inputs["versions"])
    arguments = {"eps_clip": 0.2, "eps_clip_higher": None, "c_clip": None, **config}
    loss = lockstep.areal.grpo_loss_fn(logp, torch.zeros_like(logp), data, **arguments, name=name)
    loss.backward()
    return loss.item(), logp.grad


@pytest.mark.parametrize("source, name", every("areal"))
def test_areal_stand_in_losses_are_areals(source, name, areal):
    steep = 0
    for case in cases(source, name):
        packed = Packed(case)
        loss, gradient = areal_call(packed, case["config"])
        check(case, "loss", loss, terms=terms(case))
        if name == "policy_loss_sapo" and (packed.tokens("logp_new") - packed.tokens("logp_old")).max() > 2:
            # Far above 1 AReaL's gate is exactly 1 and its gradient 0; ours keeps its e^-z.
            if any(differs(gradient, want, tolerance, packed.spans) for want, tolerance in expected(case, "dloss_dlogp")):
                steep += 1
                continue
        check(case, "dloss_dlogp", gradient, packed.spans)
    assert steep == (2 if name == "policy_loss_sapo" else 0)


def test_areal_stand_in_rejects_by_a_k3_of_its_direction(areal):
    """e^-d - 1 + d with d = proximal - sampler: 0.0214 at d = -0.2, 0.0187 at 0.2."""
    case = {"inputs": {"cu_seqlens": [0, 2], "seq_advantages": [1.0], "logp_new": [-1.0, -1.0], "logp_old": [-1.0, -1.0]}}
    case["inputs"]["logp_rollout"] = [-0.8, -1.2]
    rejection = dict(level="token", action="mask", metric="kl_k3", agg="mean", upper=0.02, lower=None)
    _, gradient = areal_call(Packed(case), {"rejection_sampling": rejection})
    assert gradient[0] == 0 and gradient[1] != 0
    # The rejected token counts in the statistics, with a ratio of 0, except in those of the weight.
    tracker = areal.stats_tracker
    assert tracker.masks["n_valid_tokens"].tolist() == [True, True]
    assert tracker.masks["unclipped_behave_tokens"].tolist() == [False, True]
    assert tracker.seen["importance_weight"] == 0.5


# Recipes by name, refusals, patches


def first(source, name, **config):
    case = cases(source, name)[0]
    return Packed(case), {**case["config"], **config}


def test_a_recipe_by_name_is_its_loss_with_the_frameworks_denominator(slime, nemo, areal, tmp_path, monkeypatch):
    """One batch through four doors: the sum over tokens of the recipe, over what each framework divides by."""
    packed, config = first("nemo_rl", "policy_loss_clipped_pg")
    credit = lockstep.Credit(advantage=packed.advantages, per_token=True)
    columns = dict(logp_old=packed.tokens("logp_old"), loss_mask=packed.mask, cu_seqlens=packed.offsets)
    sums = lockstep.loss({"extends": "cispo", "aggregation.mode": "token-sum"}, credit, logp=packed.tokens("logp_new"), **columns)
    tokens, by_key = int(packed.mask.sum()), {"token_level_loss": True, "global_valid_toks": 100, "global_valid_seqs": 7}
    path = tmp_path / "own.toml"
    path.write_text('extends = "cispo"\naggregation.mode = "seq-mean-token-sum-norm"\naggregation.horizon = 8.0\n')
    monkeypatch.setenv("LOCKSTEP_RECIPE", str(path))
    for name in ("cispo", "file"):
        losses = {
            "slime": slime_call(packed, {"calculate_per_token_loss": True}, name)[:2],
            "nemo": nemo_call(packed, {**by_key, "reference_policy_kl_penalty": 0}, name)[:2],
            "areal": areal_call(packed, {}, name),
        }
        made = type("PolicyLoss", (lockstep.openrlhf.PolicyLoss,), {"recipe": name})
        out, gradient = openrlhf_call(packed, {"batch_num_tokens": 100, "dp_size": 2}, made)
        losses["openrlhf"] = out[0].item(), gradient
        over = {"slime": 1.0, "nemo": 1 / 100, "areal": 1 / tokens, "openrlhf": 2 / 100}
        for framework, (loss, gradient) in losses.items():
            gradient = gradient[:, 0] if framework == "slime" else gradient
            assert loss == pytest.approx(sums.loss.item() * over[framework], rel=1e-6), framework
            torch.testing.assert_close(gradient, sums.coef * over[framework], rtol=1e-6, atol=0, msg=framework)


def test_slimes_entropy_learns_by_a_recipes_term(slime, tmp_path, monkeypatch):
    packed, _ = first("slime", "policy_loss_grpo")
    path = tmp_path / "own.toml"
    path.write_text('extends = "slime"\nentropy = { coef = 0.01 }\n')
    monkeypatch.setenv("LOCKSTEP_RECIPE", str(path))
    by_recipe, by_key = slime_call(packed, {}, "file"), slime_call(packed, {"entropy_coef": 0.01})
    assert by_recipe[1][:, 1].count_nonzero() == packed.mask.sum()
    torch.testing.assert_close(by_recipe[1], by_key[1], rtol=1e-6, atol=0)


def test_a_term_that_the_framework_adds_is_refused_with_its_key(slime, nemo, areal):
    packed, config = first("nemo_rl", "policy_loss_clipped_pg")
    own = type("PolicyLoss", (lockstep.openrlhf.PolicyLoss,), {"recipe": "nemo_kl"})
    with pytest.raises(lockstep.Error, match=r"lockstep:nemo_kl: kl reads logp_ref, which OpenRLHF does not pass: it has --algo\.kl\.use_loss"):
        own()
    own.recipe = "ppo_critic"
    with pytest.raises(lockstep.Error, match=r"--actor\.entropy_coef.*--critic"):
        own()
    own.recipe = "verl_tis_token"
    with pytest.raises(lockstep.Error, match=r"--algo\.advantage\.is_correction_enable"):
        own()
    for name, key in (("nemo_kl", "actor.kl_ctl"), ("verl_tis_token", "actor.rejection_sampling")):
        with pytest.raises(lockstep.Error, match=key):
            areal_call(packed, {}, name)
    for name, key in (("ppo_critic", "MseValueLossFn"), ("verl_tis_token", "loss_fn.use_importance_sampling_correction")):
        with pytest.raises(lockstep.Error, match=key):
            nemo_call(packed, config, name)
    for name, key in (("ppo_critic", "--value-clip"), ("verl_tis_token", "--use-tis")):
        with pytest.raises(lockstep.Error, match=key):
            slime_call(packed, {}, name)
    with pytest.raises(lockstep.Error, match="ref_log_probs is missing"):
        slime_call(packed, {}, "nemo_kl")


def test_what_an_adapter_cannot_do_is_said_with_the_frameworks_key(slime, nemo, areal):
    packed, config = first("nemo_rl", "policy_loss_clipped_pg")
    for said, changed in (
        ("--custom-tis-function-path", dict(use_tis=True, custom_tis_function_path="my.own")),
        ("--custom-pg-loss-reducer-function-path", dict(custom_pg_loss_reducer_function_path="my.own")),
        ("--advantage-estimator", dict(advantage_estimator="reinforce")),
    ):
        with pytest.raises(lockstep.Error, match=said):
            slime_call(packed, changed)
    for said, changed in (
        ("clip_ratio_c", dict(dual_clip=0.5)),
        ("policy_loss_type", dict(policy_loss_type="dapo")),
        ("vllm_is_correction_type", dict(vllm_is_correction_type="mis")),
        ("vllm_is_truncated_threshold", dict(enable_vllm_is_correction=True, vllm_is_truncated_threshold=[2.0])),
    ):
        with pytest.raises(lockstep.Error, match=said):
            lockstep.openrlhf.PolicyLoss(**changed)
    for said, changed in (
        ("loss_fn.token_level_loss", dict(sequence_level_importance_ratios=True)),
        ("loss_fn.ratio_clip_c", dict(use_cispo=True, ratio_clip_c=3.0)),
        ("loss_fn.truncated_importance_sampling_type", dict(truncated_importance_sampling_type="tis")),
    ):
        with pytest.raises(lockstep.Error, match=said):
            nemo_call(packed, {**config, **changed})
    rejection = dict(level="sequence", action="clamp", metric="kl_k2", agg="mean", upper=1.0, lower=None)
    for said, changed in (
        ("rejection_sampling.agg", dict(rejection_sampling=rejection)),
        ("rejection_sampling.level is 'turn': expected token or sequence", dict(rejection_sampling={**rejection, "level": "turn"})),
        ("rejection_sampling.lower", dict(rejection_sampling={**rejection, "action": "mask", "lower": 0.1})),
        ("use_decoupled_loss", dict(use_sapo_loss=True, use_decoupled_loss=True)),
        ("importance_sampling_level", dict(importance_sampling_level="turn")),
    ):
        with pytest.raises(lockstep.Error, match=said):
            areal_call(packed, changed)


def test_a_micro_batch_without_a_live_token_is_0(slime, nemo, areal):
    packed, config = first("nemo_rl", "policy_loss_clipped_pg")
    packed.mask = torch.zeros_like(packed.mask)
    for loss, gradient in (
        slime_call(packed, {})[:2],
        nemo_call(packed, {**config, "use_importance_sampling_correction": True, "global_valid_toks": 0, "global_valid_seqs": 0})[:2],
        areal_call(packed, {}),
        (lambda out, gradient: (out[0].item(), gradient))(*openrlhf_call(packed, {})),
    ):
        assert loss == 0 and not gradient.any()
    # The minimum and the maximum over micro-batches ignore this one.
    logged = nemo_call(packed, {**config, "global_valid_toks": 0, "global_valid_seqs": 0})[2]
    assert (logged["probs_ratio_min"], logged["probs_ratio_max"]) == (float("inf"), float("-inf"))
    packed.inputs = {**packed.inputs, "cu_seqlens": [0, 0]}
    packed.lengths, packed.mask = [0], packed.mask[:0]
    empty = {key: [] for key in ("logp_new", "logp_old", "logp_rollout", "token_advantages")}
    packed.inputs |= {**empty, "seq_advantages": [1.0]}
    loss, gradient, logged = slime_call(packed, {"use_tis": True})
    assert loss == 0 and set(logged) == {"loss", "entropy_loss", "ppo_kl", "pg_clipfrac", "train_rollout_logprob_abs_diff"}


def test_a_path_to_a_function_can_name_a_recipe():
    assert callable(getattr(lockstep.slime, "loss:dapo")) and callable(getattr(lockstep.slime, "advantages:rloo"))
    assert callable(getattr(lockstep.openrlhf, "patch:file"))
    with pytest.raises(lockstep.Error, match="no recipe 'dapoo'"):
        getattr(lockstep.slime, "loss:dapoo")
    for host in (lockstep.openrlhf._HOST, lockstep.slime._HOST, lockstep.nemo._HOST, lockstep.areal._HOST):
        with pytest.raises(lockstep.Error, match="no recipe 'dapoo': expected one of lockstep.names"):
            host.loss("dapoo", "token-sum", dict)
    with pytest.raises(AttributeError):
        getattr(lockstep.slime, "lost:dapo")


def test_slime_stand_in_advantages_are_of_the_whole_batchs_groups():
    rewards = [1.0, 0.0, 0.0, 3.0, 2.0, 4.0]
    data = {
        "raw_reward": rewards,
        "partition": [5, 0, 3],
        "kl": [torch.zeros(2), torch.zeros(3), torch.zeros(0)],
        "loss_masks": [torch.ones(2, dtype=torch.int32), torch.ones(3, dtype=torch.int32), torch.ones(0, dtype=torch.int32)],
    }
    args = SimpleNamespace(n_samples_per_prompt=2, rollout_batch_size=3)
    getattr(lockstep.slime, "advantages:rloo")(args, data)
    # The other response of its group is each one's baseline.
    assert [own.tolist() for own in data["advantages"]] == [[2.0, 2.0], [1.0, 1.0, 1.0], []]
    for name in ("opo", "gae", "conciser"):
        with pytest.raises(lockstep.Error, match=f"lockstep:{name}"):
            getattr(lockstep.slime, f"advantages:{name}")(args, data)
    for changed, columns, said in (
        (dict(rollout_batch_size=4), {}, "raw_reward has 6 entries: expected 8"),
        (dict(custom_reward_post_process_path="own.rewards"), {}, "--custom-reward-post-process-path"),
        ({}, dict(rollout_ids=[0, 1, 1]), "a rollout has several samples"),
    ):
        with pytest.raises(lockstep.Error, match=said):
            lockstep.slime.advantages(SimpleNamespace(**{**vars(args), **changed}), {**data, **columns})


def test_advantages_that_depend_on_lengths_are_known():
    overlong = {"extends": "dapo", "reward.overlong": {"buffer": 4096, "factor": 1.0, "max_length": 20480}}
    assert not any(map(by_rewards_alone, map(lockstep.recipe, (overlong, "conciser", "opo"))))
    assert all(map(by_rewards_alone, map(lockstep.recipe, ("rloo", "grpo", "pass_at_k", "mc_grpo"))))


def test_patches_replace_what_is_there_and_name_what_is_gone(nemo, areal, monkeypatch):
    # `nemo_rl.algorithms.ppo` is not imported yet: it will take the loss from the package.
    paths = ("loss", "grpo", "single_controller_utils.setup")
    imported = [module(monkeypatch, f"nemo_rl.algorithms.{path}", ClippedPGLossFn=None) for path in paths]
    lockstep.nemo.patch("dapo")
    for each in imported:
        cfg = SimpleNamespace(reference_policy_kl_penalty=0)
        own = each.ClippedPGLossFn(cfg, use_fused_linear_logprobs=True)
        assert (own.recipe, own.use_fused_linear_logprobs, own.loss_type.name) == ("dapo", True, "TOKEN_LEVEL")
    lockstep.areal.patch("dapo")
    assert areal.grpo_loss_fn.keywords == {"name": "dapo"}
    packed, _ = first("areal", "policy_loss_ppo")
    monkeypatch.delattr(areal, "_resolve_proximal_logp")
    with pytest.raises(lockstep.Error, match="areal.trainer.ppo.actor has no _resolve_proximal_logp"):
        areal_call(packed, {})
    monkeypatch.delattr(areal, "grpo_loss_fn")
    with pytest.raises(lockstep.Error, match="areal.trainer.ppo.actor has no grpo_loss_fn"):
        lockstep.areal.patch()


@pytest.fixture
def openrlhf_on_disk(tmp_path, monkeypatch):
    """A package that stands in for OpenRLHF's, laid out and imported as it is there."""
    for path, text in {
        "openrlhf/__init__.py": "",
        "openrlhf/models/__init__.py": "from .loss import PolicyLoss\n",
        "openrlhf/models/loss.py": "class PolicyLoss:\n    pass\n",
        "openrlhf/trainer/__init__.py": "",
        "openrlhf/trainer/ray/__init__.py": "",
        "openrlhf/trainer/ray/ppo_actor.py": "from openrlhf.models import PolicyLoss\n",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == "openrlhf"]:
        del sys.modules[name]


@pytest.mark.parametrize("before", [True, False])
def test_openrlhf_stand_in_is_patched_whether_it_was_imported_or_not(before, openrlhf_on_disk):
    import importlib

    if before:
        importlib.import_module("openrlhf.trainer.ray.ppo_actor")
    getattr(lockstep.openrlhf, "patch:gspo")()
    assert before == ("openrlhf" in sys.modules), "patching imports nothing"
    found = importlib.import_module("openrlhf.trainer.ray.ppo_actor").PolicyLoss
    assert issubclass(found, lockstep.openrlhf.PolicyLoss) and found.recipe == "gspo"
    lockstep.openrlhf.patch()
    assert sys.modules["openrlhf.models"].PolicyLoss.recipe == ""


def test_openrlhf_stand_in_is_patched_in_rays_workers(openrlhf_on_disk):
    ray = pytest.importorskip("ray")
    path = ":".join([str(openrlhf_on_disk), *filter(None, sys.path)])
    environment = {"worker_process_setup_hook": "lockstep.openrlhf.patch:dapo", "env_vars": {"PYTHONPATH": path}}
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    try:

        @ray.remote
        def found():
            from openrlhf.trainer.ray.ppo_actor import PolicyLoss

            return PolicyLoss.__module__, PolicyLoss.recipe

        assert ray.get(found.remote()) == ("lockstep.openrlhf", "dapo")
    finally:
        ray.shutdown()


NEMO = lockstep.nemo.DEFAULTS
TRUNCATED = dict(use_importance_sampling_correction=True, truncated_importance_sampling_ratio=2.0)
SEQUENCE_MASK = dict(
    truncated_importance_sampling_type="seq-mask-tis", truncated_importance_sampling_ratio_min=0.5
)


def slime_settings(**changed):
    return lockstep.slime.settings(SimpleNamespace(**{**SLIME, **changed}))


@pytest.mark.parametrize(
    "made, bound",
    [
        (lambda low: lockstep.areal.settings(low, None, None, "token", False, 1.0, 1.05), "clip_ratio_low = 1.0"),
        (lambda low: lockstep.nemo.settings({**NEMO, "ratio_clip_min": low}), "clip_ratio_low = 1.0"),
        (lambda low: lockstep.nemo.settings({**NEMO, "ratio_clip_min": low, "use_cispo": True}), "low = 0.0"),
        (lambda low: lockstep.openrlhf.settings(lockstep.openrlhf.PolicyLoss(low)), "clip_ratio_low = 1.0"),
        (lambda low: slime_settings(eps_clip=low), "clip_ratio_low = 1.0"),
        (lambda low: slime_settings(eps_clip=low, advantage_estimator="cispo"), "low = 0.0"),
    ],
    ids=["areal", "nemo", "nemo-cispo", "openrlhf", "slime", "slime-cispo"],
)
def test_a_lower_bound_that_never_applies_is_taken(made, bound):
    assert bound in lockstep.recipe(made(1.5)).toml.splitlines()


def test_nemo_takes_and_refuses_corrections_as_nemo_does():
    keys = {**NEMO, **TRUNCATED, **SEQUENCE_MASK}
    assert lockstep.nemo._checked(dict(keys)) == keys
    for wrong in (
        dict(truncated_importance_sampling_ratio_min=3.0),
        dict(sequence_level_importance_ratios=True, token_level_loss=False),
    ):
        with pytest.raises(lockstep.Error, match="loss_fn.truncated_importance_sampling"):
            lockstep.nemo._checked({**keys, **wrong})


def test_nemo_stand_in_goes_on_where_only_a_metric_reads_a_bad_value(nemo):
    packed, config = first("nemo_rl", "policy_loss_clipped_pg")
    config["use_importance_sampling_correction"] = False
    loss, gradient, _ = nemo_call(packed, config)
    packed.inputs["logp_rollout"] = [1.0, *packed.inputs["logp_rollout"][1:]]
    same, same_gradient, logged = nemo_call(packed, config)
    assert same == loss and torch.equal(same_gradient, gradient)
    assert {key for key, value in logged.items() if value != value} >= {"gen_kl_error", "policy_kl_error"}
