"""slime on Lockstep: its policy loss and advantages, as functions that slime loads by path.

    --loss-type custom_loss --custom-loss-function-path lockstep.slime.loss
    --custom-advantage-function-path lockstep.slime.advantages:rloo

`lockstep.slime.loss` reads slime's own keys (`--advantage-estimator`, `--eps-clip*`, `--use-kl-loss`,
`--kl-loss-*`, `--use-unbiased-kl`, `--entropy-coef`, `--use-opsm`, `--use-tis`, `--tis-clip*`,
`--use-rollout-logprobs`). `lockstep.slime.loss:<recipe>` uses a recipe's loss, KL and entropy terms included,
and `:file` the recipe in the TOML file named by `LOCKSTEP_RECIPE`; denominators and `--use-tis` still follow
slime. The denominators are those of `sum_of_sample_mean`, which slime passes: per token with
`--calculate-per-token-loss`, otherwise per rollout.

`lockstep.slime.advantages:<recipe>` computes advantages from `raw_reward`, the rewards of the whole batch, in
groups of `--n-samples-per-prompt`, for recipes whose advantages depend only on rewards. A sample's
`metadata["raw_reward"]` replaces its reward there, as in slime's metrics. slime's own
`get_log_probs_and_entropy` computes log-probabilities. Context parallelism is refused, because a rank would
hold parts of sequences.

Written against slime at 624b824a (`slime/backends/megatron_utils/loss.py`, `slime/utils/ppo_utils.py`,
`slime/ray/rollout.py`).
"""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor

from . import Credit, Error, Recipe
from . import advantages as _advantages
from ._host import Host, by_name, by_rewards_alone, clip_low, corrected, file, metrics, needed, sums

__all__ = ["advantages", "loss"]

_HOST = Host(
    "slime",
    {
        ("loss", "value"): "the critic's own loss, key --value-clip",
        ("advantages", "correction"): "--use-tis",
        ("advantages", "kl"): "--kl-coef",
    },
    {
        "loss": frozenset(
            {"cu_seqlens", "cu_groups", "loss_mask", "logp", "logp_old", "logp_ref", "logp_rollout", "entropy", "counts"}
        ),
        "advantages": frozenset({"cu_seqlens", "cu_groups", "rewards"}),
    },
)
_ESTIMATORS = {
    "gspo": "slime_gspo",
    "cispo": "slime_cispo",
    **dict.fromkeys(("grpo", "ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"), "slime"),
}
_CORRECTIONS = {None: "truncate", "vanilla_tis_function": "truncate", "icepop_function": "mask"}


def settings(args: Any) -> dict[str, Any]:
    """Translates slime's arguments for the policy loss, except its correction, to a recipe."""
    name, low = args.advantage_estimator, args.eps_clip
    high = low if args.eps_clip_high is None else args.eps_clip_high
    low = clip_low(low)
    if name not in _ESTIMATORS:
        raise Error(f"--advantage-estimator is {name!r}: expected one of {', '.join(_ESTIMATORS)}")
    out: dict[str, Any] = {"extends": _ESTIMATORS[name]}
    if name == "cispo":
        # slime's bounds are distances from 1; the recipe's are bounds of the weight itself.
        out |= {"gate.low": 1.0 - low, "gate.high": 1.0 + high}
    else:
        out |= {"gate.clip_ratio_low": low, "gate.clip_ratio_high": high}
        if args.eps_clip_c is not None:
            out["gate.clip_ratio_c"] = args.eps_clip_c
    if name == "gspo":
        # Each token keeps its advantage; the sequence ratio is differentiated as it is.
        out |= {"ratio.advantage": "own", "ratio.gradient": "mean"}
    if args.use_kl_loss:
        # slime clamps under this name only.
        kind = args.kl_loss_type
        out |= {"kl.estimator": "k3" if kind == "low_var_kl" else kind, "kl.coef": args.kl_loss_coef}
        if kind == "low_var_kl":
            out["kl.clamp_out"] = 10.0
        if args.use_unbiased_kl:
            out["kl.importance_weighted"] = "through_ratio"
    if args.entropy_coef:
        out["entropy.coef"] = args.entropy_coef
    if args.use_opsm:
        out["mask.opsm_delta"] = args.opsm_delta
    return out


def correction(args: Any) -> dict[str, Any] | None:
    """Returns the `[correction]` table for slime's arguments."""
    if not (args.use_tis or args.get_mismatch_metrics):
        return None
    path = args.custom_tis_function_path
    rule = _CORRECTIONS.get(path and path.rpartition(".")[2])
    if rule is None:
        raise Error(f"--custom-tis-function-path is {path!r}: expected slime's vanilla_tis_function or icepop_function")
    return {"level": "token", "rule": rule, "low": float(args.tis_clip_low), "high": float(args.tis_clip), "denominator": "before"}


def _of_sequences(per_sample: list[Tensor]) -> Tensor:
    """Returns per-sequence advantages, which the off-policy sequence mask needs."""
    first = torch.stack([own[0] if len(own) else own.new_zeros(()) for own in per_sample])
    if any(bool((own != own[0]).any()) for own in per_sample if len(own)):
        raise Error("--use-opsm with per-token advantages: Lockstep's off-policy sequence mask needs one per sequence")
    return first


def loss(args: Any, batch: dict[str, Any], logits: Tensor, sum_of_sample_mean: Any, name: str = "") -> tuple[Tensor, dict[str, Tensor]]:
    """slime's `policy_loss_function`.

    It takes slime's arguments, the micro-batch (lists with one tensor per sample), logits `[1, T, V]` and
    slime's reduction. Returns loss and metrics, which slime adds up. `pg_clipfrac` is a fraction of the
    micro-batch's tokens, where slime takes a fraction of each sample's.

    Raises `lockstep.Error`: an unsupported argument of slime, by its name; a live value that is not a number
    (`argument`, `index`).
    """
    from slime.backends.megatron_utils import loss as slimes

    if getattr(args, "custom_pg_loss_reducer_function_path", None) is not None:
        raise Error("--custom-pg-loss-reducer-function-path is set: Lockstep's recipe defines the reduction; leave it out")
    by_tokens = args.calculate_per_token_loss
    own = _HOST.loss(name, "token-sum" if by_tokens else "seq-mean-token-mean", lambda: settings(args))
    reads = _reads(own)
    theirs = args
    if "entropy" in reads and not args.entropy_coef:
        # slime detaches the entropy then.
        theirs = copy(args)
        theirs.entropy_coef = 1.0
    _, found = needed(slimes, "get_log_probs_and_entropy")(
        logits,
        args=theirs,
        unconcat_tokens=batch["unconcat_tokens"],
        total_lengths=batch["total_lengths"],
        response_lengths=batch["response_lengths"],
        with_entropy=True,
        **needed(slimes, "get_rollout_top_p_logprob_kwargs")(args, batch),
    )
    lengths = [int(length) for length in batch["response_lengths"]]
    if [len(own_) for own_ in found["log_probs"]] != lengths:
        raise Error("context parallelism: this rank has parts of the sequences, but Lockstep's slime adapter needs whole sequences")
    logp, entropy = torch.cat(found["log_probs"]), torch.cat(found["entropy"])
    train = batch.get("log_probs") or [one.detach() for one in found["log_probs"]]
    old = torch.cat(batch["rollout_log_probs"] if args.use_rollout_logprobs else train)
    mask = torch.cat(batch["loss_masks"]).bool()
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(device=logp.device, dtype=torch.int32)

    per_token = "mask.opsm_delta" not in reads
    credit = Credit(
        advantage=torch.cat(batch["advantages"]) if per_token else _of_sequences(batch["advantages"]), per_token=per_token
    )
    rollout = batch.get("rollout_log_probs")
    weighing = correction(args)
    if weighing is not None:
        if not rollout:
            raise Error("rollout_log_probs is missing: --use-tis needs the sampler's log-probabilities")
        if logp.numel():
            policies = torch.cat(train), torch.cat(rollout)
            credit.weights = corrected("slime", weighing, *policies, cu_seqlens=offsets, loss_mask=mask).weights
    shares = None if by_tokens else _shares(batch, logp)
    if shares is not None:
        if reads & {"logp_ref", "entropy"}:
            raise Error("samples that share a rollout's denominator, with --use-kl-loss or --entropy-coef: not supported")
        credit.weights = shares if credit.weights is None else credit.weights * shares
    columns: dict[str, Any] = {"entropy": entropy} if "entropy" in reads else {}
    if "logp_ref" in reads:
        if not batch.get("ref_log_probs"):
            raise Error("ref_log_probs is missing: the KL term of the recipe needs a reference (--ref-load)")
        columns["logp_ref"] = torch.cat(batch["ref_log_probs"])
    if "logp_rollout" in reads and rollout:
        columns["logp_rollout"] = torch.cat(rollout)
    if logp.numel():
        out = sums(own, credit, logp=logp, logp_old=old, loss_mask=mask, cu_seqlens=offsets, **columns)
        value, clipped = out.loss, metrics(out.stats)["clip_fraction"]
    else:
        # The gradient of every rank must go through its model.
        value, clipped = 0 * logits.sum(), 0.0
    with torch.no_grad():
        logged = {"loss": value, "entropy_loss": sum_of_sample_mean(entropy), "ppo_kl": sum_of_sample_mean(old - logp)}
        logged["pg_clipfrac"] = sum_of_sample_mean(torch.full_like(logp, clipped))
        if rollout:
            compared = logp if args.use_rollout_logprobs else old
            logged["train_rollout_logprob_abs_diff"] = sum_of_sample_mean((compared - torch.cat(rollout)).abs())
    return value, {key: value.detach().clone() for key, value in logged.items()}


def _reads(own: Recipe) -> frozenset[str]:
    """Returns the columns the loss reads, and the off-policy sequence mask's key if the recipe sets it."""
    columns = {column for column, _, call, required, _ in own.needs() if call == "loss"}
    return frozenset(columns | ({"mask.opsm_delta"} if "opsm_delta" in own.toml else set()))


def _shares(batch: dict[str, Any], like: Tensor) -> Tensor | None:
    """Returns each token's share if samples of one rollout share a denominator; None if each has its own.

    The share is the sample's own length over the length of all samples of the rollout.
    """
    sums_ = batch.get("rollout_mask_sums")
    if sums_ is None:
        return None
    own = torch.stack([mask.sum() for mask in batch["loss_masks"]]).to(like).clamp(min=1)
    of_rollout = torch.stack([torch.as_tensor(one) for one in sums_]).to(like).clamp(min=1)
    if torch.equal(own, of_rollout):
        return None
    return (own / of_rollout).repeat_interleave(torch.tensor([len(mask) for mask in batch["loss_masks"]], device=like.device))


@cache
def _advantage_recipe(name: str, source: str) -> Recipe:
    own = _HOST.recipe(name, source, "advantages")
    if not by_rewards_alone(own):
        raise Error(f"lockstep:{name}: its advantages depend on the lengths or tokens of responses, which a rank does not have for the whole batch, or exclude some responses")
    return own


def advantages(args: Any, rollout_data: dict[str, Any], name: str = "slime") -> None:
    """Stores `advantages` and `returns`, lists of per-token tensors, in `rollout_data`.

    They are computed from `raw_reward`; `partition` holds this rank's places in the batch.

    Raises `lockstep.Error`: a recipe that reads more than rewards; rewards other than
    `--rollout-batch-size` groups of `--n-samples-per-prompt`; several samples of one rollout;
    `--custom-reward-post-process-path`, whose rewards are not in `raw_reward`.
    """
    if getattr(args, "custom_reward_post_process_path", None) is not None:
        raise Error("--custom-reward-post-process-path is set: Lockstep's advantages are of raw_reward, which it does not change; leave it out")
    count, expected = len(rollout_data["raw_reward"]), args.rollout_batch_size * args.n_samples_per_prompt
    if count != expected:
        raise Error(f"raw_reward has {count} entries: expected {expected}, --rollout-batch-size times --n-samples-per-prompt")
    rollouts = [int(rollout) for rollout in rollout_data.get("rollout_ids", ())]
    if len(set(rollouts)) < len(rollouts):
        raise Error("rollout_ids: a rollout has several samples, but groups are of one sample per rollout")
    own = _advantage_recipe(name, file() if name == "file" else name)
    place = rollout_data["loss_masks"][0].device
    rewards = torch.as_tensor(rollout_data["raw_reward"], dtype=torch.float32, device=place)
    lengths = torch.arange(len(rewards) + 1, dtype=torch.int32, device=place)
    credit = _advantages(own, group_size=args.n_samples_per_prompt, cu_seqlens=lengths, rewards=rewards)
    pairs = zip(rollout_data["partition"], rollout_data["kl"])
    rollout_data["advantages"] = [credit.advantage[int(at)].expand(len(like)).clone() for at, like in pairs]
    rollout_data["returns"] = [own.clone() for own in rollout_data["advantages"]]


__getattr__ = by_name(loss=loss, advantages=advantages)
