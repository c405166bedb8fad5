"""NeMo RL on Lockstep: a `LossFunction` that replaces its `ClippedPGLossFn`.

    import lockstep.nemo
    # Before NeMo RL's `setup` or `setup_single_controller`; or pass ClippedPGLossFn(cfg) as `loss_fn`.
    lockstep.nemo.patch()

The loss follows NeMo RL's own keys (`loss_fn.*`: clipping, CISPO, sequence ratios, KL, importance-sampling
correction, VAPO's likelihood term). `patch("<recipe>")`, or `ClippedPGLossFn(cfg, recipe="<recipe>")`, uses a
recipe's loss, KL included, and `"file"` the one in the TOML file named by `LOCKSTEP_RECIPE`; correction,
`token_level_loss` and the denominators `global_valid_toks`, `global_valid_seqs` still follow the
configuration. Entropy and value terms are refused: NeMo RL passes no entropy, and its critic has its own
loss.

The object is pickled to the policy's workers: Lockstep must be installed in their environment too. Metrics
have NeMo RL's names and denominators; `js_divergence_error`, `is_oob_ratio`, the clamped ratio's metrics and,
for sequences, `sampling_importance_ratio` are left out.

Written against NeMo RL at 7ea279ab (`nemo_rl/algorithms/loss/interfaces.py`, `loss_functions.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from . import Credit, Error, Recipe
from ._host import Host, clip_low, corrected, metrics, replace, sums
from .faults import of_values

__all__ = ["ClippedPGLossFn", "patch"]

_HOST = Host(
    "NeMo RL",
    {
        ("loss", "value"): "the critic's own loss, MseValueLossFn",
        ("advantages", "correction"): "loss_fn.use_importance_sampling_correction",
    },
    {"loss": frozenset({"cu_seqlens", "cu_groups", "loss_mask", "logp", "logp_old", "logp_ref", "logp_rollout", "counts"})},
)
# NeMo RL's loss keys and their defaults.
DEFAULTS: dict[str, Any] = {
    "disable_ppo_ratio": False,
    "token_level_loss": True,
    "sequence_level_importance_ratios": False,
    "ratio_clip_min": 0.2,
    "ratio_clip_max": 0.2,
    "ratio_clip_c": None,
    "reference_policy_kl_penalty": 0.01,
    "reference_policy_kl_type": "k3",
    "kl_input_clamp_value": 20.0,
    "kl_output_clamp_value": 10.0,
    "use_kl_in_reward": False,
    "use_importance_sampling_correction": False,
    "truncated_importance_sampling_type": None,
    "truncated_importance_sampling_ratio": None,
    "truncated_importance_sampling_ratio_min": None,
    "use_on_policy_kl_approximation": False,
    "force_on_policy_ratio": False,
    "use_cispo": False,
    "positive_example_nll_weight": 0.0,
}
# Where NeMo RL's loss is imported from, and the modules that make one.
_MODULES = (
    "nemo_rl.algorithms.loss",
    "nemo_rl.algorithms.grpo",
    "nemo_rl.algorithms.ppo",
    "nemo_rl.algorithms.single_controller_utils.setup",
)
# Combinations that NeMo RL refuses.
_TOGETHER = {
    "disable_ppo_ratio": "it leaves no ratio to clip",
    "force_on_policy_ratio": "it sets the ratio to 1",
    "sequence_level_importance_ratios": "CISPO's weights are per token",
    "ratio_clip_c": "CISPO clips the weights themselves",
}


def _key(cfg: Any, key: str) -> Any:
    return cfg.get(key, DEFAULTS[key]) if isinstance(cfg, Mapping) else getattr(cfg, key, DEFAULTS[key])


def settings(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Translates NeMo RL's keys for the policy term to a recipe."""
    low, high = clip_low(keys["ratio_clip_min"]), keys["ratio_clip_max"]
    out: dict[str, Any] = {"extends": "nemo", "ratio.on_policy": keys["force_on_policy_ratio"]}
    if keys["use_cispo"]:
        # Bounds of the weight itself.
        out["gate"] = {"kind": "cispo", "low": 1.0 - low, "high": 1.0 + high}
    elif keys["disable_ppo_ratio"] and not keys["force_on_policy_ratio"]:
        out["gate"] = {"kind": "reinforce"}
    else:
        out |= {"gate.clip_ratio_low": low, "gate.clip_ratio_high": high}
        if keys["ratio_clip_c"] is not None:
            out["gate.clip_ratio_c"] = keys["ratio_clip_c"]
    if keys["sequence_level_importance_ratios"] and not (keys["force_on_policy_ratio"] or keys["disable_ppo_ratio"]):
        out |= {"ratio.level": "sequence", "ratio.gradient": "mean"}
    return out


def kl(keys: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the recipe of the KL term, which is separate; None without one."""
    if keys["use_kl_in_reward"] or not keys["reference_policy_kl_penalty"]:
        return None
    weighted = "through_ratio" if keys["use_on_policy_kl_approximation"] else "score"
    own = {"estimator": keys["reference_policy_kl_type"], "coef": keys["reference_policy_kl_penalty"], "importance_weighted": weighted}
    for ours, theirs in (("clamp_in", "kl_input_clamp_value"), ("clamp_out", "kl_output_clamp_value")):
        if keys[theirs] is not None:
            own[ours] = float(keys[theirs])
    return {"extends": "nemo", "kl": own}


def correction(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `[correction]` table: importance weights for the sampler, and their truncation."""
    kind, own = keys["truncated_importance_sampling_type"], {"denominator": "before"}
    own["level"] = "sequence" if keys["sequence_level_importance_ratios"] else "token"
    band = {"low": keys["truncated_importance_sampling_ratio_min"] or 0.0, "high": keys["truncated_importance_sampling_ratio"]}
    if kind in ("tis", "icepop"):
        return {**own, "rule": "truncate" if kind == "tis" else "mask", **band}
    rejected = [{"statistic": "seq_mean_k1", **band}] if kind == "seq-mask-tis" else []
    return {**own, "rule": "plain", "reject": rejected}


def _checked(keys: dict[str, Any]) -> dict[str, Any]:
    """Returns the keys if they go together; raises for combinations that NeMo RL refuses."""

    def refuse(key: str, why: str) -> None:
        raise Error(f"loss_fn.{key} is {keys[key]!r}: {why}")

    if keys["sequence_level_importance_ratios"] and keys["token_level_loss"]:
        refuse("token_level_loss", "expected false with sequence_level_importance_ratios")
    if keys["use_cispo"]:
        for key, why in _TOGETHER.items():
            if keys[key]:
                refuse(key, f"cannot be combined with use_cispo: {why}")
        if not keys["token_level_loss"]:
            refuse("token_level_loss", "expected true with use_cispo")
    kind = keys["truncated_importance_sampling_type"]
    if kind not in (None, "tis", "icepop", "seq-mask-tis"):
        refuse("truncated_importance_sampling_type", "expected tis, icepop or seq-mask-tis")
    if kind is not None:
        if not keys["use_importance_sampling_correction"]:
            refuse("truncated_importance_sampling_type", "expected use_importance_sampling_correction with it")
        if not (keys["truncated_importance_sampling_ratio"] or 0) > 0:
            refuse("truncated_importance_sampling_ratio", "expected a number above 0")
        least = keys["truncated_importance_sampling_ratio_min"]
        if kind != "tis" and least is None:
            refuse("truncated_importance_sampling_ratio_min", f"expected a number with {kind}")
        if least is not None and least > keys["truncated_importance_sampling_ratio"]:
            refuse("truncated_importance_sampling_ratio_min", "expected at most truncated_importance_sampling_ratio")
        if kind == "seq-mask-tis" and keys["sequence_level_importance_ratios"]:
            refuse("truncated_importance_sampling_type", "cannot be combined with sequence_level_importance_ratios: its weights are per token")
    return keys


class ClippedPGLossFn:
    """NeMo RL's `ClippedPGLossFn`, with the same arguments plus the name `recipe`.

    It is called as NeMo RL's protocol `LossFunction` requires.

    Raises `lockstep.Error`: keys that cannot be combined; a live value that is not a number (`argument`,
    `index`).
    """

    def __init__(self, cfg: Any, use_fused_linear_logprobs: bool = False, recipe: str = "") -> None:
        from nemo_rl.algorithms.loss.interfaces import LossInputType, LossType, MetricNormalizer

        self.keys = _checked({key: _key(cfg, key) for key in DEFAULTS})
        self.use_fused_linear_logprobs, self.recipe = use_fused_linear_logprobs, recipe
        self.by_tokens = self.keys["token_level_loss"]
        # Attributes that NeMo RL reads from a loss.
        self.loss_type = LossType.TOKEN_LEVEL if self.by_tokens else LossType.SEQUENCE_LEVEL
        self.input_type = LossInputType.LOGPROB
        self.reference_policy_kl_penalty = 0 if self.keys["use_kl_in_reward"] else self.keys["reference_policy_kl_penalty"]
        tokens, sequences, none = MetricNormalizer.TOKENS, MetricNormalizer.SEQUENCES, MetricNormalizer.NONE
        own = tokens if self.by_tokens else sequences
        self.metric_normalizations = {
            **dict.fromkeys(("loss", "kl_penalty"), own),
            **dict.fromkeys(("probs_ratio", "token_mult_prob_error", "gen_kl_error", "policy_kl_error", "approx_entropy"), tokens),
            "sampling_importance_ratio": tokens,
            **dict.fromkeys(("num_valid_samples", "positive_nll_loss", "probs_ratio_min", "probs_ratio_max"), none),
        }
        self._own()

    def _own(self) -> Recipe:
        return self._summed(settings(self.keys), self.recipe)

    def _summed(self, keys: dict[str, Any], name: str = "") -> Recipe:
        return _HOST.loss(name, "token-sum" if self.by_tokens else "seq-mean-token-mean", lambda: keys)

    def __call__(
        self,
        next_token_logprobs: Tensor,
        data: Mapping[str, Any],
        global_valid_seqs: Tensor,
        global_valid_toks: Tensor,
        **_: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Returns loss and metrics.

        Log-probabilities are `[B, T-1]`, `data` holds `[B, T]` and `[B]`, and the counts are those of the
        whole batch.
        """
        keys, logp = self.keys, next_token_logprobs.float()
        samples = data["sample_mask"].bool()
        mask = data["token_mask"][:, 1:].bool() & samples[:, None]
        sampler = data["generation_logprobs"][:, 1:]
        old = logp.detach() if keys["force_on_policy_ratio"] else data["prev_logprobs"][:, 1:]
        own, batch = self._own(), {"loss_mask": mask}
        credit = Credit(advantage=data["advantages"][:, 1:].contiguous(), per_token=True)
        if keys["use_importance_sampling_correction"]:
            made = corrected("nemo", correction(keys), old, sampler, **batch)
            credit.weights, credit.loss_mask = made.weights, made.loss_mask
        reads = {column for column, _, call, required, _ in own.needs() if call == "loss" and required}
        columns = {"logp_ref": _reference(data)} if "logp_ref" in reads else {}
        if "logp_rollout" in reads:
            columns["logp_rollout"] = sampler
        out = sums(own, credit, logp=logp, logp_old=old, **columns, **batch)
        # The loss of a batch without a live token is 0, as in NeMo RL.
        tokens, sequences = global_valid_toks + 1e-8, global_valid_seqs + 1e-8
        counted = tokens if self.by_tokens else sequences
        loss, penalty, likelihood = out.loss / counted, 0.0, 0.0
        term = None if self.recipe else kl(keys)
        if term is not None:
            # The KL term uses unfiltered log-probabilities if the sampler filters, and ignores rejections.
            curr = data.get("curr_logprobs_unfiltered", logp).float()
            towards = sampler if keys["use_on_policy_kl_approximation"] else curr.detach()
            value = self._alone(term, 0.0, logp=curr, logp_old=towards, logp_ref=_reference(data), **batch) / counted
            loss, penalty = loss + value, value.item() / keys["reference_policy_kl_penalty"]
        if keys["positive_example_nll_weight"] > 0 and "rewards" in data:
            right = mask & (data["rewards"] > 0)[:, None]
            term = {"extends": "nemo", "gate": {"kind": "reinforce"}}
            own = _HOST.loss("", "token-sum", lambda: term)
            value = sums(own, _flat(logp, 1.0), logp=logp, logp_old=logp.detach(), loss_mask=right).loss / right.sum().clamp(min=1)
            loss, likelihood = loss + keys["positive_example_nll_weight"] * value, value.item()
        said = self._said(out, logp.detach(), old, sampler, mask, tokens)
        return loss, {
            "loss": loss.item(),
            "kl_penalty": penalty,
            "positive_nll_loss": likelihood,
            "num_valid_samples": samples.sum().item(),
            **said,
        }

    def _alone(self, term: dict[str, Any], advantage: float, *, logp: Tensor, **columns: Any) -> Tensor:
        """Computes a separate term, with the same advantage for every token."""
        return sums(self._summed(term), _flat(logp, advantage), logp=logp, **columns).loss

    def _said(self, out: Any, logp: Tensor, old: Tensor, sampler: Tensor, mask: Tensor, tokens: Any) -> dict[str, float]:
        """Returns NeMo RL's other metrics: the micro-batch's token sums over the whole batch's count."""
        of = metrics(out.stats)
        share = mask.sum().item() / float(tokens)

        def over(values: Tensor) -> float:
            return (torch.where(mask, values.double(), 0.0).sum() / tokens).item()

        def unless_refused(metric: Callable[[], float]) -> float:
            # A value that only a metric reads must not end the training.
            try:
                return metric()
            except Error as refused:
                if not of_values(refused):
                    raise
                return float("nan")

        def apart(first: Tensor, second: Tensor) -> float:
            # The KL estimate on the first policy's samples, as a metric.
            own = {"extends": "nemo", "kl": {"estimator": self.keys["reference_policy_kl_type"], "coef": 0.0}}
            columns = dict(logp=first, logp_old=first, logp_ref=second, loss_mask=mask)
            return metrics(sums(self._summed(own), _flat(first, 0.0), **columns).stats)["kl_ref_mean"] * share

        said = {
            "token_mult_prob_error": over((sampler - old).abs().exp()),
            "gen_kl_error": unless_refused(lambda: apart(sampler, old)),
            "policy_kl_error": unless_refused(lambda: apart(old, sampler)),
            "approx_entropy": -over((logp - sampler).exp() * logp),
        }
        def sampled() -> float:
            weights = corrected("nemo", correction(self.keys), old, sampler, loss_mask=mask)
            left = mask if weights.loss_mask is None else weights.loss_mask.bool()
            return over(torch.where(left, weights.weights, 0.0))

        if not self.keys["sequence_level_importance_ratios"]:
            said["sampling_importance_ratio"] = unless_refused(sampled)
        if self.keys["force_on_policy_ratio"] or not self.keys["disable_ppo_ratio"]:
            # NeMo RL takes the minimum and the maximum of those of micro-batches.
            least, most = (of["ratio_min"], of["ratio_max"]) if share else (float("inf"), float("-inf"))
            said |= {"probs_ratio": of["ratio_mean"] * share, "probs_ratio_min": least, "probs_ratio_max": most}
        return said


def _flat(like: Tensor, advantage: float) -> Credit:
    return Credit(advantage=torch.full_like(like, advantage, requires_grad=False), per_token=True)


def _reference(data: Mapping[str, Any]) -> Tensor:
    if "reference_policy_logprobs" not in data:
        raise Error("reference_policy_logprobs is missing: loss_fn.reference_policy_kl_penalty is not 0, or the recipe has a KL term")
    return data["reference_policy_logprobs"][:, 1:]


def patch(name: str = "") -> None:
    """Replaces NeMo RL's loss in this process, also for PPO and the single controller; `name`: a recipe."""
    import nemo_rl.algorithms.loss  # noqa: F401

    by = partial(ClippedPGLossFn, recipe=name)
    for module in _MODULES:
        if module in sys.modules:
            replace(sys.modules[module], "ClippedPGLossFn", by)
