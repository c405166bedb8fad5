"""TRL's GRPO trainer with Lockstep's maths: use `LockstepGRPOTrainer` instead of `GRPOTrainer`.

The trainer is TRL's own. Two things are replaced. The settings of the policy loss in `GRPOConfig` become a
recipe (or pass your own as `recipe=`), whose loss and gradient replace TRL's; and, with `advantages=`, a
recipe's advantages replace TRL's. Entropy bonus, router loss, metrics, generation and logging stay TRL's.
Tested with TRL 1.16.

With `on_error="nan"`, a value that is refused on one rank makes the loss NaN there, so that no rank hangs in a
collective; the optimizer then skips that step on every rank (TRL itself would not skip it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback
from trl import GRPOTrainer

from . import Credit, Error, Recipe, advantages as _advantages, recipe as _recipe
from ._host import by_rewards_alone, clip_low, options
from .torch import loss as _loss, metrics as _metrics

__all__ = ["LockstepGRPOTrainer", "settings"]

# TRL's methods that this trainer relies on.
_METHODS = ("_compute_loss", "_get_per_token_logps_and_entropies", "_calculate_rewards", "_generate_and_score_completions")
_PRESETS = {
    "grpo": "trl_grpo",
    "bnpo": "trl_bnpo",
    "dr_grpo": "trl_dr_grpo",
    "dapo": "trl",
    "luspo": "trl_luspo",
    "sapo": "trl_sapo",
    "cispo": "trl_cispo",
    "vespo": "trl_vespo",
}
_BY_ITEMS = ("dapo", "cispo", "vespo")


def settings(args: Any, max_completion_length: int | None = None) -> dict[str, Any]:
    """Translates the policy loss settings of a `GRPOConfig` to a recipe.

    Losses that TRL divides by `num_items_in_batch` become sums over tokens.
    """
    kind = args.loss_type
    if kind not in _PRESETS:
        raise Error(f"loss_type is {kind!r}: expected one of {', '.join(_PRESETS)}")
    low = clip_low(args.epsilon)
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    out: dict[str, Any] = {"extends": _PRESETS[kind]}
    if kind == "sapo":
        out |= {"gate.tau_pos": args.sapo_temperature_pos, "gate.tau_neg": args.sapo_temperature_neg}
    elif kind == "cispo":
        out["gate.high"] = high
    elif kind == "vespo":
        out |= {f"gate.{key}": getattr(args, f"vespo_{key}") for key in ("k_pos", "lambda_pos", "k_neg", "lambda_neg")}
        # The sampler's weights come with the batch.
        out["correction"] = "none"
        if getattr(args, "top_entropy_quantile", 1.0) < 1.0:
            raise Error("top_entropy_quantile is below 1: expected 1 with loss_type 'vespo', whose sequence weight would leave out the same tokens")
    elif args.delta is None:
        out |= {"gate.clip_ratio_low": low, "gate.clip_ratio_high": high}
    elif args.delta < 1.0:
        raise Error(f"delta is {args.delta}: expected at least 1, or None")
    else:
        # min(min(r, delta)·A, clip(r)·A): the smaller of delta and 1 + epsilon bounds r where A > 0, the
        # larger where A < 0.
        upper, largest = min(high, args.delta - 1.0), max(args.delta, 1.0 + high)
        out["gate"] = {"kind": "two_sided", "clip_ratio_low": low, "clip_ratio_high": upper, "delta": largest}
    if kind != "vespo":
        out["ratio.level"] = args.importance_sampling_level
    if args.beta:
        weighted = {"importance_weighted": "through_ratio", "ratio": "policy"} if args.use_bias_correction_kl else {}
        out["kl"] = {"estimator": "k3", "coef": args.beta, **weighted}
    if args.off_policy_mask_threshold is not None:
        out["mask.opsm_delta"] = args.off_policy_mask_threshold
        out["mask.opsm_against"] = "rollout" if args.use_vllm else "old"
    if kind in _BY_ITEMS:
        out["aggregation.mode"] = "token-sum"
    if kind == "dr_grpo":
        out["aggregation.horizon"] = float(max_completion_length or args.max_completion_length)
    return out


class _LeaveOut(TrainerCallback):
    """Skips the step if a gradient is not finite, as verl does; reduced gradients agree on every rank."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        of = [parameter for parameter in model.parameters() if parameter.grad is not None]
        if not all(bool(parameter.grad.isfinite().all()) for parameter in of):
            for parameter in of:
                parameter.grad = None


class LockstepGRPOTrainer(GRPOTrainer):
    """A `GRPOTrainer` with Lockstep's policy loss, and with `advantages` also Lockstep's advantages.

    Args:
        recipe: recipe of the loss: a name, TOML, a mapping or a `lockstep.Recipe`; None: what `args` sets. It
            includes its KL term, if any, and its aggregation, over each micro-batch, in place of `loss_type`'s.
        advantages: a recipe whose advantages of `[prompts · num_generations]` rewards replace TRL's; None:
            TRL's own.
        on_error, positive_logp: as in `lockstep.torch.loss`; None: as set by `LOCKSTEP_ON_ERROR` and
            `LOCKSTEP_POSITIVE_LOGP`.

    Raises `lockstep.Error` on construction: a version of TRL without a method that this trainer needs (it is
    named); a recipe with a term or a correction that TRL has itself; advantages that depend on more than
    rewards.
    """

    def __init__(
        self,
        *args: Any,
        recipe: Any = None,
        advantages: Any = None,
        on_error: str | None = None,
        positive_logp: str | None = None,
        **kwargs: Any,
    ) -> None:
        missing = [name for name in _METHODS if not hasattr(GRPOTrainer, name)]
        if missing:
            raise Error(f"this version of TRL has no GRPOTrainer.{missing[0]}: use one that Lockstep was tested with (1.16)")
        super().__init__(*args, **kwargs)
        own = settings(self.args, self.max_completion_length) if recipe is None else recipe
        self.lockstep_recipe: Recipe = _recipe(own)
        self.lockstep_advantages: Recipe | None = None if advantages is None else _recipe(advantages)
        self._lockstep_divides = recipe is not None
        for column, stage, call, required, _ in self.lockstep_recipe.needs():
            # Without the correction that belongs to it, a loss would be a different loss.
            if stage == "correction" and required:
                raise Error(f"correction reads {column} before the loss: TRL corrects by itself (vllm_importance_sampling_correction); set correction = \"none\"")
            if call == "loss" and required and column in ("entropy", "values"):
                raise Error(f"{stage} reads {column}: TRL adds such a term itself (entropy_coef)")
        of_rewards = self.lockstep_advantages
        if of_rewards is not None and not by_rewards_alone(of_rewards):
            raise Error(f"advantages={of_rewards.name!r}: they depend on the lengths or tokens of responses, or exclude some responses, but TRL needs one advantage per reward")
        self._lockstep_options = options(on_error, positive_logp)
        if self._lockstep_options.get("on_error") == "nan":
            self.add_callback(_LeaveOut())
        self._lockstep_seen: dict[str, Any] | None = None
        self._lockstep_rewards: Tensor | None = None

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._lockstep_seen is None:
            return found
        logps, *rest = found
        self._lockstep_seen |= {"logp": logps, "entropies": rest[0], "router": rest[1]}
        # TRL's loss uses these, so that none of its gradient reaches the model.
        return (logps.detach(), *rest)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        # The coefficient before TRL adapts it.
        waits = self.use_adaptive_entropy and self._last_world_entropy > self.args.entropy_target
        coef = 0.0 if waits or not self._entropy_bonus_enabled else self.entropy_coef
        self._lockstep_seen = {}
        try:
            theirs = super()._compute_loss(model, inputs)
            seen = self._lockstep_seen
        finally:
            self._lockstep_seen = None
        ours = self._policy_loss(seen, inputs)
        if not (self._entropy_bonus_enabled or self.aux_loss_enabled):
            return ours
        # TRL's own terms keep their gradient and their value.
        return ours + (theirs - theirs.detach()) + self._terms_of_trl(seen, inputs, coef)

    def _policy_loss(self, seen: dict[str, Any], inputs: dict[str, Any]) -> Tensor:
        logp, mask = seen["logp"], inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
        weights = None
        if self.use_vllm and self.vllm_importance_sampling_correction:
            weights = inputs["importance_sampling_ratio"].expand_as(logp)
        if self.top_entropy_quantile < 1.0:
            # A quantile over all processes, computed by TRL.
            kept = self.get_high_entropy_mask(seen["entropies"], mask, 1 - self.top_entropy_quantile)
            weights = kept.to(logp.dtype) if weights is None else weights * kept
        sampler = inputs.get("sampling_per_token_logps")
        if sampler is not None:
            # What vLLM could not score says nothing about how far off-policy a sequence is.
            sampler = torch.where(sampler.isnan(), logp.detach(), sampler)
        advantage = inputs["advantages"]
        old = inputs.get("old_per_token_logps")
        out = _loss(
            self.lockstep_recipe,
            Credit(advantage=advantage, per_token=advantage.dim() == 2, weights=weights),
            logp=logp,
            logp_old=logp.detach() if old is None else old,
            logp_ref=inputs.get("ref_per_token_logps") if self.beta else None,
            logp_rollout=sampler,
            loss_mask=mask,
            **self._lockstep_options,
        )
        training = self.model.training
        self._metrics["train" if training else "eval"]["lockstep/clip_fraction"].append(_metrics(out.stats)["clip_fraction"])
        return out.loss / self._normalizer(inputs, training)

    @torch.no_grad()
    def _terms_of_trl(self, seen: dict[str, Any], inputs: dict[str, Any], coef: float) -> Tensor:
        """Returns the value of entropy bonus and router loss."""
        mask = inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
        if self.top_entropy_quantile < 1.0:
            mask = mask * self.get_high_entropy_mask(seen["entropies"], mask, 1 - self.top_entropy_quantile)
        bonus = coef * (seen["entropies"] * mask).sum() / mask.sum().clamp(min=1.0)
        router = self.router_aux_loss_coef * seen["router"] if self.aux_loss_enabled else 0.0
        return (router - bonus) / (self.current_gradient_accumulation_steps if self.model.training else 1.0)

    def _normalizer(self, inputs: dict[str, Any], training: bool) -> Any:
        """Returns TRL's divisor, besides what the recipe divides by."""
        accumulated = self.current_gradient_accumulation_steps if training else 1.0
        if self._lockstep_divides or self.loss_type not in _BY_ITEMS:
            return accumulated
        items = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes
        return items * accumulated / self.args.steps_per_generation if training else items

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        self._lockstep_rewards = super()._calculate_rewards(*args, **kwargs)
        return self._lockstep_rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        batch = super()._generate_and_score_completions(inputs)
        if self.lockstep_advantages is not None:
            weights = self.reward_weights.to(self._lockstep_rewards.device)
            rewards = (self._lockstep_rewards * weights).nansum(dim=1)
            rewards[self._lockstep_rewards.isnan().all(dim=1)] = float("nan")
            size = self.num_generations if self.model.training else self.num_generations_eval
            lengths = torch.arange(rewards.numel() + 1, device=rewards.device)
            credit = _advantages(self.lockstep_advantages, group_size=size, cu_seqlens=lengths, rewards=rewards.float())
            own = len(batch["advantages"])
            first = self.accelerator.process_index * own
            batch["advantages"] = credit.advantage[first : first + own]
        return batch
