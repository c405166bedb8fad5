"""OpenRLHF on Lockstep: its `PolicyLoss`, with the maths of a recipe.

OpenRLHF has no hook for a loss. `patch` replaces its `PolicyLoss` with ours, also in Ray's workers:

    ray job submit --runtime-env-json '{"worker_process_setup_hook": "lockstep.openrlhf.patch"}' -- python -m openrlhf.cli.train_ppo_ray …

`lockstep.openrlhf.patch` keeps OpenRLHF's own keys (`--actor.eps_clip_low_high`, `--actor.dual_clip`,
`--actor.policy_loss_type`, `--algo.advantage.is_correction_*`). `lockstep.openrlhf.patch:<recipe>` uses a
recipe's loss, and `lockstep.openrlhf.patch:file` the one in the TOML file named by `LOCKSTEP_RECIPE`; the
denominators and the correction still follow OpenRLHF's keys. OpenRLHF adds the KL, entropy and value terms
itself: a recipe with one of them is refused, and the message names OpenRLHF's key.

Written against OpenRLHF at 3c3be623 (`openrlhf/models/loss.py`, `openrlhf/trainer/ray/ppo_actor.py`).
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from . import Credit, Error
from ._host import Host, by_name, clip_low, corrected, mean, metrics, replace, sums

__all__ = ["PolicyLoss", "patch"]

_HOST = Host(
    "OpenRLHF",
    {
        ("loss", "kl"): "--algo.kl.use_loss",
        ("loss", "entropy"): "--actor.entropy_coef",
        ("loss", "value"): "the critic's own loss, keys --critic.*",
        ("advantages", "correction"): "--algo.advantage.is_correction_enable",
    },
    {"loss": frozenset({"cu_seqlens", "cu_groups", "loss_mask", "logp", "logp_old", "logp_rollout", "counts"})},
)
_CORRECTIONS = {"tis": "truncate", "icepop": "mask", "seq-mask-tis": "plain"}
_MODULE = "openrlhf.models.loss"


def settings(loss: PolicyLoss) -> dict[str, Any]:
    """Translates the arguments of a `PolicyLoss`, except its correction, to a recipe."""
    out: dict[str, Any] = {"extends": "openrlhf"}
    out |= {"gate.clip_ratio_low": clip_low(loss.clip_eps_low), "gate.clip_ratio_high": loss.clip_eps_high}
    if loss.dual_clip is not None:
        out["gate.clip_ratio_c"] = loss.dual_clip
    if loss.policy_loss_type == "gspo":
        # The sequence ratio is not clamped, and is differentiated as it is.
        out |= {"extends": "openrlhf_gspo", "ratio.guard": "none", "ratio.gradient": "mean"}
    elif loss.policy_loss_type != "ppo":
        raise Error(f"policy_loss_type is {loss.policy_loss_type!r}: expected ppo or gspo")
    return out


def correction(kind: str, band: Any) -> dict[str, Any]:
    """Returns the `[correction]` table for a vllm_is_correction_type and its two thresholds."""
    if band is None or len(band) != 2:
        raise Error(f"vllm_is_truncated_threshold (--algo.advantage.is_correction_threshold) is {band!r}: expected two numbers")
    low, high = map(float, band)
    own: dict[str, Any] = {"level": "token", "rule": _CORRECTIONS[kind], "denominator": "before"}
    if kind == "seq-mask-tis":
        return {**own, "reject": [{"statistic": "seq_mean_k1", "low": low, "high": high}]}
    return {**own, "low": low, "high": high}


class PolicyLoss(nn.Module):
    """OpenRLHF's `PolicyLoss`: the same arguments, the same four results.

    Raises `lockstep.Error`: an argument outside its domain; a live log-probability or advantage that is
    not a number (`argument`, `index`).
    """

    recipe = ""
    """Name of the recipe; empty to use OpenRLHF's own keys."""

    def __init__(
        self,
        clip_eps_low: float = 0.2,
        clip_eps_high: float = 0.2,
        dual_clip: float | None = None,
        token_level_loss: bool = True,
        policy_loss_type: str = "ppo",
        enable_vllm_is_correction: bool = False,
        vllm_is_truncated_threshold: list[float] | None = None,
        vllm_is_correction_type: str = "tis",
    ) -> None:
        super().__init__()
        self.clip_eps_low, self.clip_eps_high, self.dual_clip = clip_eps_low, clip_eps_high, dual_clip
        self.policy_loss_type = policy_loss_type
        # With a sequence-level ratio, the loss is a mean of per-sequence losses.
        self.token_level_loss = token_level_loss and policy_loss_type != "gspo"
        self.enable_vllm_is_correction = enable_vllm_is_correction
        self.vllm_is_truncated_threshold = vllm_is_truncated_threshold
        self.vllm_is_correction_type = vllm_is_correction_type
        if vllm_is_correction_type not in _CORRECTIONS:
            raise Error(f"vllm_is_correction_type is {vllm_is_correction_type!r}: expected one of {', '.join(_CORRECTIONS)}")
        self._recipe()
        if enable_vllm_is_correction and policy_loss_type == "ppo":
            correction(vllm_is_correction_type, vllm_is_truncated_threshold)

    def _recipe(self) -> Any:
        return _HOST.loss(self.recipe, "token-sum" if self.token_level_loss else "seq-mean-token-mean", lambda: settings(self))

    def forward(
        self,
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        action_mask: Tensor | None = None,
        rollout_log_probs: Tensor | None = None,
        dp_size: int = 1,
        batch_num_tokens: float | Tensor | None = None,
        global_batch_size: float | Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Returns loss, clipped fraction, mean of old − new, and with a correction the mean of sampler − old.

        The clipped fraction is a fraction of tokens. Tensors are `[B, T]`.
        """
        mask = torch.ones_like(log_probs, dtype=torch.bool) if action_mask is None else action_mask.bool()
        credit, reference, vllm_kl = Credit(advantage=advantages, per_token=True), old_log_probs, None
        if self.enable_vllm_is_correction:
            if rollout_log_probs is None:
                raise Error("rollout_log_probs is None: --algo.advantage.is_correction_enable needs the sampler's log-probabilities")
            if self.policy_loss_type == "gspo":
                reference = rollout_log_probs
            else:
                own = correction(self.vllm_is_correction_type, self.vllm_is_truncated_threshold)
                made = corrected("openrlhf", own, old_log_probs, rollout_log_probs, loss_mask=mask)
                credit.weights, credit.loss_mask = made.weights, made.loss_mask
                vllm_kl = mean(rollout_log_probs - old_log_probs, mask).float()
        rest = {} if rollout_log_probs is None else {"logp_rollout": rollout_log_probs}
        # Sequences that a rejection emptied still count.
        count, of_batch = mask.sum(), batch_num_tokens
        if not self.token_level_loss:
            count, of_batch = (mask.sum(dim=-1) > 0).sum(), global_batch_size
        out = sums(self._recipe(), credit, logp=log_probs, logp_old=reference, loss_mask=mask, **rest)
        loss = out.loss / count.clamp(min=1) if of_batch is None else out.loss / of_batch * dp_size
        clipped = torch.as_tensor(metrics(out.stats)["clip_fraction"], dtype=torch.float32, device=log_probs.device)
        return loss, clipped, mean(old_log_probs - log_probs, mask).float(), vllm_kl


class _Patched(MetaPathFinder):
    """Replaces the class once its module has run.

    Importing OpenRLHF here would load deepspeed in vLLM's workers.
    """

    def __init__(self, by: type) -> None:
        self.by = by

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                replace(module, "PolicyLoss", self.by)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def patch(name: str = "") -> None:
    """Replaces OpenRLHF's `PolicyLoss` in this process, now or on its import; `name`: a recipe to use."""
    by = type("PolicyLoss", (PolicyLoss,), {"recipe": name, "__module__": __name__})
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Patched)]
    if _MODULE not in sys.modules:
        sys.meta_path.insert(0, _Patched(by))
    for module in (_MODULE, "openrlhf.models", "openrlhf.trainer.ray.ppo_actor"):
        if module in sys.modules:
            replace(sys.modules[module], "PolicyLoss", by)


__getattr__ = by_name(patch=patch)
