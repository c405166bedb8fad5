"""AReaL on Lockstep: its `grpo_loss_fn`, with the maths of a recipe.

    import lockstep.areal
    # In the processes that train, before PPOActor.ppo_update:
    lockstep.areal.patch()
    # Or in your own trainer:
    engine.train_batch(data, loss_fn=partial(lockstep.areal.grpo_loss_fn, …), loss_weight_fn=…)

The loss follows AReaL's own keys (`actor.eps_clip`, `eps_clip_higher`, `c_clip`, `rejection_sampling`,
`m2_threshold`, `importance_sampling_level`, `use_sapo_loss`, `sapo_tau_*`). `patch("<recipe>")`, or the
argument `name`, uses a recipe's loss, and `"file"` the one in the TOML file named by `LOCKSTEP_RECIPE`.
Rejection and M2PO still follow AReaL's keys, and the denominator is AReaL's: the tokens of the micro-batch,
by which its engine weighs it. The proximal policy is AReaL's too (`prox_logp_method`). Recipes with a KL,
entropy or value term are refused: AReaL has its KL in the reward (`actor.kl_ctl`).

Written against AReaL at 4aef98d8 (`areal/trainer/ppo/actor.py`, `areal/utils/functional/functional.py`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from . import Credit, Error
from ._host import Host, clip_low, corrected, metrics, needed, replace, sums

__all__ = ["grpo_loss_fn", "patch"]

_HOST = Host(
    "AReaL",
    {
        ("loss", "kl"): "actor.kl_ctl, in the reward",
        ("loss", "value"): "the critic's own loss, keys critic.*",
        ("advantages", "correction"): "actor.rejection_sampling",
    },
    {"loss": frozenset({"cu_seqlens", "cu_groups", "loss_mask", "logp", "logp_old", "logp_rollout", "counts"})},
)


def settings(
    eps_clip: float,
    eps_clip_higher: float | None,
    c_clip: float | None,
    importance_sampling_level: str,
    use_sapo_loss: bool,
    sapo_tau_pos: float,
    sapo_tau_neg: float,
) -> dict[str, Any]:
    """Translates AReaL's keys for the policy loss, except rejection, to a recipe."""
    if importance_sampling_level not in ("token", "sequence"):
        raise Error(f"importance_sampling_level is {importance_sampling_level!r}: expected token or sequence")
    out: dict[str, Any] = {"correction": "none", "advantage.whiten": "none"}
    if importance_sampling_level == "sequence":
        out |= {"ratio.level": "sequence", "ratio.gradient": "mean", "ratio.advantage": "sequence_mean"}
    if use_sapo_loss:
        return {**out, "extends": "areal_sapo", "gate.tau_pos": sapo_tau_pos, "gate.tau_neg": sapo_tau_neg}
    high = eps_clip if eps_clip_higher is None else eps_clip_higher
    out |= {"extends": "areal", "gate.clip_ratio_low": clip_low(eps_clip), "gate.clip_ratio_high": high}
    if c_clip is not None:
        out["gate.clip_ratio_c"] = c_clip
    return out


def _refused(key: str, value: Any, why: str) -> Error:
    return Error(f"rejection_sampling.{key} is {value!r}: {why}")


def _exp(bound: float) -> float:
    """Converts a log-ratio bound to a binary32 ratio bound; below the smallest normal number it becomes 0."""
    ratio = torch.tensor(bound, dtype=torch.float64).exp().item()
    info = torch.finfo(torch.float32)
    return 0.0 if ratio < info.tiny else min(ratio, info.max)


def correction(config: Any) -> tuple[dict[str, Any], bool]:
    """Returns the `[correction]` table for a `RejectionSamplingConfig`, and whether to swap the policies.

    AReaL's k3 has the opposite direction, so its rejection needs the policies swapped.
    """
    level, action, metric, agg = config.level, config.action, config.metric, config.agg
    lower, upper = config.lower, config.upper
    if level not in ("token", "sequence"):
        raise _refused("level", level, "expected token or sequence")
    by_ratio, of_sequences = metric == "ratio", level == "sequence"
    # If sequences are rejected by their ratio, the weight is the geometric mean of the ratio.
    own: dict[str, Any] = {"level": "geometric" if of_sequences and by_ratio else "token", "denominator": "after"}
    if action == "clamp":
        # Truncating all sequences equals truncating those out of bounds, if a metric within bounds implies a
        # mean within bounds.
        inside = not of_sequences or (
            by_ratio
            and (
                agg == "mean"
                or (agg == "sum" and (lower is None or lower <= 1.0) and upper >= 1.0)
                or (agg == "max" and (lower is None or lower <= 0.0))
            )
        )
        if not inside:
            raise _refused("agg", agg, "sequences are truncated by the mean of their ratio")
        return {**own, "rule": "truncate", "low": max(lower or 0.0, 0.0), "high": float(upper)}, False
    if action != "mask":
        raise _refused("action", action, "expected mask or clamp")
    kind = "k1" if by_ratio else metric.removeprefix("kl_")
    statistic = f"seq_{agg}_{kind}" if of_sequences else f"token_{kind}"
    reject: dict[str, Any] = {"statistic": statistic, "high": float(upper)}
    if kind == "k1":
        of = float if by_ratio else _exp
        reject |= {"low": 0.0 if lower is None else max(of(lower), 0.0), "high": of(upper)}
    elif lower is not None and lower > 0.0:
        raise _refused("lower", lower, f"{metric} has no lower bound here; leave it out")
    return {**own, "rule": "plain", "reject": [reject]}, kind == "k3"


def _rejected(config: Any, prox: Tensor, sampler: Tensor, mask: Tensor, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor | None]:
    """Returns what rejection leaves of the mask, and the weights."""
    own, exchanged = correction(config)
    if not exchanged:
        made = corrected("areal", own, prox, sampler, loss_mask=mask, **batch)
        return _left(made, mask), made.weights
    left = _left(corrected("areal", own, sampler, prox, loss_mask=mask, **batch), mask)
    plain = {key: value for key, value in own.items() if key != "reject"}
    return left, corrected("areal", plain, prox, sampler, loss_mask=left, **batch).weights


def _left(made: Credit, mask: Tensor) -> Tensor:
    return mask if made.loss_mask is None else made.loss_mask.bool()


def grpo_loss_fn(
    logprobs: Tensor,
    entropy: Tensor,
    input_data: dict[str, Any],
    eps_clip: float,
    eps_clip_higher: float | None,
    c_clip: float | None,
    rejection_sampling: Any = None,
    m2_threshold: float | None = None,
    importance_sampling_level: str = "token",
    current_version: int | None = None,
    prox_logp_method: str = "recompute",
    use_sapo_loss: bool = False,
    sapo_tau_pos: float = 1.0,
    sapo_tau_neg: float = 1.05,
    use_decoupled_loss: bool = False,
    vocab_min_logits: Tensor | None = None,
    vocab_max_logits: Tensor | None = None,
    name: str = "",
) -> Tensor:
    """AReaL's `grpo_loss_fn`; returns the loss, and logs as AReaL does.

    Log-probabilities are `[N]`, with `cu_seqlens` in `input_data`, or `[B, T]`.

    Raises `lockstep.Error`: an unsupported setting, by its key; a live value that is not a number
    (`argument`, `index`).
    """
    from areal.trainer.ppo import actor

    if input_data.get("teacher_logp") is not None:
        raise Error("teacher_logp is given: Lockstep's AReaL adapter has no distillation term (distill_loss_weight); leave the teacher out")
    if use_sapo_loss and use_decoupled_loss:
        raise Error("use_sapo_loss with use_decoupled_loss: expected actor.use_decoupled_loss=false")
    keys = (eps_clip, eps_clip_higher, c_clip, importance_sampling_level, use_sapo_loss, sapo_tau_pos, sapo_tau_neg)
    own = _HOST.loss(name, "token-sum", lambda: settings(*keys))
    sampler, mask = input_data["logprobs"], input_data["loss_mask"].bool()
    prox = needed(actor, "_resolve_proximal_logp")(
        prox_logp_gt=input_data.get("prox_logp"),
        prox_logp_method=prox_logp_method,
        old_logp=sampler,
        logprobs=logprobs.detach(),
        versions=input_data.get("versions"),
        current_version=current_version,
    )
    batch: dict[str, Tensor] = {}
    if logprobs.dim() == 1:
        if input_data.get("cu_seqlens") is None:
            raise Error("cu_seqlens is missing in input_data: packed log-probabilities need it")
        batch["cu_seqlens"] = input_data["cu_seqlens"]
    weights = None
    if m2_threshold is not None:
        of_batch = {"level": "one", "rule": "plain", "denominator": "after", "m2_threshold": float(m2_threshold)}
        made = corrected("areal", of_batch, prox, sampler, loss_mask=mask, **batch)
        mask, weights = _left(made, mask), made.weights
    # Rejection does not change the denominator.
    tokens, left = mask.sum().clamp(min=1), mask
    if rejection_sampling is not None and not use_sapo_loss:
        left, own_weights = _rejected(rejection_sampling, prox, sampler, mask, batch)
        weights = own_weights if weights is None or own_weights is None else weights * own_weights
    credit = Credit(advantage=input_data["advantages"], per_token=True, weights=weights)
    towards = sampler if use_sapo_loss else prox
    rest = {"logp_rollout": sampler} if "logp_rollout" in {need[0] for need in own.needs() if need[2] == "loss"} else {}
    out = sums(own, credit, logp=logprobs, logp_old=towards, loss_mask=left, **batch, **rest)
    of = metrics(out.stats)
    _log(actor, input_data, mask, left, of, logprobs.detach(), sampler, towards, entropy.detach(), weights)
    return out.loss / tokens


def _log(
    actor: Any,
    input_data: Any,
    mask: Tensor,
    left: Tensor,
    of: dict[str, float],
    logp: Tensor,
    sampler: Tensor,
    towards: Tensor,
    entropy: Tensor,
    weights: Any,
) -> None:
    tracker = actor.stats_tracker
    tracker.denominator(n_tokens=actor.infer_token_denominator(input_data, mask), n_valid_tokens=mask)
    stats = dict(new_logp=logp, old_logp=sampler, entropy=entropy.float(), approx_kl=logp - towards)
    tracker.stat(**stats, denominator="n_valid_tokens")
    if weights is not None:
        tracker.denominator(unclipped_behave_tokens=left & (weights > 0))
        tracker.stat(behave_imp_weight=weights, denominator="unclipped_behave_tokens")
    # Tokens that a rejection leaves out count, with a ratio of 0.
    share = (left.sum() / mask.sum().clamp(min=1)).item()
    tracker.scalar(
        clip_ratio=of["clip_fraction"] * share,
        dual_clip_ratio=of["clip_fraction_dual"] * share,
        importance_weight=of["ratio_mean"] * share,
    )


def patch(name: str = "") -> None:
    """Replaces AReaL's loss in `areal.trainer.ppo.actor` of this process; `name`: a recipe to use."""
    from areal.trainer.ppo import actor

    replace(actor, "grpo_loss_fn", partial(grpo_loss_fn, name=name))
