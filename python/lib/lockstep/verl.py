"""verl on Lockstep: `actor_rollout_ref.actor.policy_loss.loss_mode=lockstep`, `algorithm.adv_estimator=lockstep:rloo`.

verl loads this module in every process, Ray workers too, by the package's entry point `verl.plugins`. A loss mode is

- `lockstep`: verl's `vanilla` with verl's own keys (`clip_ratio`, `clip_ratio_c`, `loss_agg_mode`, …);
- `lockstep:gspo`, or another loss of verl: that loss, with verl's own keys;
- `lockstep:<recipe>`: the recipe as it stands, but for `loss_agg_mode`, which stays verl's where the recipe does not say otherwise;
- `lockstep:file`: the recipe in the TOML file that the environment variable `LOCKSTEP_RECIPE` names.

An advantage estimator is `lockstep:<recipe>` or `lockstep:file`, and `lockstep` is `grpo`. Counts, entropy and KL terms and rollout
correction weights are verl's: a recipe that has a term of its own for them is refused, and the message names verl's key.

    python -m lockstep.verl check

says what is registered.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from . import Credit, Error, Recipe, advantages, names, recipe
from .torch import loss as _loss, metrics as _metrics

_CLIP = ("gate.clip_ratio_low", "gate.clip_ratio_high")


def _bounds(config: Any) -> tuple[float, float]:
    """Lower and upper bound, each `clip_ratio` where it is not set."""
    both = config.clip_ratio
    low, high = config.clip_ratio_low, config.clip_ratio_high
    return (both if low is None else low), (both if high is None else high)


def _clip(config: Any) -> dict[str, Any]:
    low, high = _bounds(config)
    # A bound of the ratio at or below 0 never holds.
    return dict(zip(_CLIP, (min(low, 1.0), high)))


def _dual_clip(config: Any) -> dict[str, Any]:
    return {**_clip(config), "gate.clip_ratio_c": config.get("clip_ratio_c", 3.0)}


def _cispo(config: Any) -> dict[str, Any]:
    low, high = _bounds(config)
    return {"gate.low": max(1.0 - low, 0.0), "gate.high": 1.0 + high}


def _gmpo(config: Any) -> dict[str, Any]:
    return dict(zip(("gate.clip_log_low", "gate.clip_log_high"), _bounds(config)))


def _sapo(config: Any) -> dict[str, Any]:
    return {"gate.tau_pos": config.tau_pos, "gate.tau_neg": config.tau_neg}


def _kl_cov(config: Any) -> dict[str, Any]:
    policy = config.policy_loss
    return {"gate.kl_cov_ratio": policy.kl_cov_ratio, "gate.ppo_kl_coef": policy.ppo_kl_coef}


def _clip_cov(config: Any) -> dict[str, Any]:
    policy = config.policy_loss
    return {
        **_clip(config),
        "gate.clip_cov_ratio": policy.clip_cov_ratio,
        "gate.clip_cov_lb": policy.clip_cov_lb,
        "gate.clip_cov_ub": policy.clip_cov_ub,
    }


def _dro(config: Any) -> dict[str, Any]:
    return {"gate.beta": config.policy_loss.dro_beta}


def _nothing(config: Any) -> dict[str, Any]:
    return {}


# verl's losses: recipe, verl's keys, whether `loss_agg_mode` is read.
LOSSES: dict[str, tuple[str, Callable[[Any], dict[str, Any]], bool]] = {
    "vanilla": ("verl", _dual_clip, True),
    "dppo_tv": ("dppo_tv", _dual_clip, True),
    "dppo_kl": ("dppo_kl", _dual_clip, True),
    "gspo": ("gspo", _clip, True),
    "sapo": ("verl_sapo", _sapo, False),
    "gpg": ("gpg", _nothing, True),
    "clip_cov": ("clip_cov", _clip_cov, True),
    "kl_cov": ("kl_cov", _kl_cov, True),
    "geo_mean": ("gmpo", _gmpo, False),
    "dro": ("dro", _dro, True),
    "cispo": ("verl_cispo", _cispo, True),
}

# Terms that verl adds itself, by the column that they read, and verl's key for them.
_VERLS_OWN = {
    "logp_ref": "use_kl_loss",
    "entropy": "entropy_coeff",
    "values": "the critic's own loss",
    "logp_rollout": "algorithm.rollout_correction",
}


@cache
def _file() -> str:
    path = os.environ.get("LOCKSTEP_RECIPE")
    if not path:
        raise Error("lockstep:file: the environment variable LOCKSTEP_RECIPE names no file")
    with open(path, encoding="utf-8") as file:
        return file.read()


def _aggregation(mode: str, horizon: float | None) -> dict[str, Any]:
    keys: dict[str, Any] = {"aggregation.mode": mode}
    if mode == "seq-mean-token-sum-norm":
        # Without a constant verl takes the padded width, which is every row's length here.
        keys["aggregation.horizon"] = "longest" if horizon is None else float(horizon)
    return keys


def _settings(name: str, config: Any, loss_agg_mode: str) -> dict[str, Any]:
    """A recipe for this loss mode and verl's configuration."""
    aggregation = _aggregation(loss_agg_mode, config.global_batch_info.get("loss_scale_factor"))
    if name in LOSSES:
        extends, keys, aggregated = LOSSES[name]
        return {"extends": extends, **keys(config), **(aggregation if aggregated else {})}
    return {"extends": name, **aggregation}


def _checked(own: Recipe, name: str) -> Recipe:
    for column, stage, call, required, _ in own.needs():
        if call == "loss" and required and column in _VERLS_OWN:
            raise Error(f"lockstep:{name}: {stage} reads {column}, and verl has a term of its own: {_VERLS_OWN[column]}")
    return own


@cache
def _recipe(source: Any) -> Recipe:
    name, settings = source
    return _checked(recipe(dict(settings) if isinstance(settings, tuple) else settings), name)


def _counts(config: Any, mask: Tensor) -> Tensor:
    """verl's counts of the whole batch, or those of this one."""
    info = config.global_batch_info
    tokens, sequences = info.get("batch_num_tokens"), info.get("global_batch_size")
    if info.get("dp_size", 1) > 1 and tokens is None and sequences is None:
        raise Error("dp_size is above 1: expected batch_num_tokens or global_batch_size in global_batch_info")
    own = torch.stack([mask.sum(), (mask.sum(dim=-1) > 0).sum()])

    def number(value: Any, otherwise: Tensor) -> Tensor:
        return otherwise if value is None else torch.as_tensor(value, dtype=torch.int64, device=mask.device).reshape(())

    tokens, nonempty = number(tokens, own[0]), number(sequences, own[1])
    return torch.stack([tokens, nonempty, torch.maximum(nonempty, torch.full_like(nonempty, mask.shape[0]))])


def policy_loss(
    name: str,
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """A policy loss with verl's signature: tensors `[batch, response length]`; the loss and verl's metrics."""
    if name == "file":
        own = _recipe((name, _file()))
    else:
        own = _recipe((name, tuple(_settings(name, config, loss_agg_mode).items())))
    mask = response_mask.bool()
    # GMPO is a mean over the sequences at hand, in verl and here, whatever verl counts.
    of_batch = own.name != "gmpo"
    out = _loss(
        own,
        Credit(advantage=advantages, per_token=True, weights=rollout_is_weights),
        logp=log_prob,
        logp_old=old_log_prob,
        loss_mask=mask,
        counts=_counts(config, mask) if of_batch else None,
    )
    if own.name == "kl_cov":
        # Of KL-Cov verl logs the mean of the magnitudes, and nothing else.
        distance = (log_prob - old_log_prob).detach().abs() * mask
        return out.loss * config.global_batch_info.get("dp_size", 1), {
            "actor/ppo_kl": (distance.sum() / (mask.sum() + 1e-8)).item()
        }
    said = _metrics(out.stats)
    upper, lower = ("clip_fraction", "clip_fraction_dual") if of_batch else ("clip_fraction_high", "clip_fraction_low")
    logged = {
        "actor/pg_clipfrac": said[upper],
        "actor/ppo_kl": said["approx_kl"],
        "actor/pg_clipfrac_lower": said[lower],
    }
    return out.loss * (config.global_batch_info.get("dp_size", 1) if of_batch else 1), logged


def estimate(
    name: str, token_level_rewards: Tensor, response_mask: Tensor, index: Any = None, config: Any = None, **given: Any
) -> tuple[Tensor, Tensor]:
    """An advantage estimator with verl's signature: rewards `[batch, response length]`, `index` the prompt of each response, in any order."""
    own = recipe(_file() if name == "file" else name)
    rows = token_level_rewards.shape[0]
    # Responses to a prompt become neighbours; groups come in the order of their first.
    number: dict[Any, int] = {}
    prompt = [number.setdefault(uid, len(number)) for uid in (range(rows) if index is None else list(index))]
    order = sorted(range(rows), key=prompt.__getitem__)
    sizes = [0] * len(number)
    for group in prompt:
        sizes[group] += 1
    place = torch.tensor(order, device=token_level_rewards.device)
    columns: dict[str, Any] = {
        "token_rewards": token_level_rewards,
        "rewards": token_level_rewards.sum(dim=-1),
        "loss_mask": response_mask.bool(),
        "baseline": given.get("reward_baselines"),
        "logp_old": given.get("old_log_probs"),
        "sum_p_squared": given.get("sum_pi_squared"),
    }
    reads = {column for column, _, call, *_ in own.needs() if call == "advantages"}
    columns = {key: value[place] for key, value in columns.items() if value is not None and key in reads | {"loss_mask"}}
    offsets = torch.tensor([0, *sizes], device=place.device).cumsum(0)
    credit = advantages(own, cu_groups=offsets, **columns)
    back = torch.empty_like(place)
    back[place] = torch.arange(rows, device=place.device)
    mask = response_mask.to(token_level_rewards.dtype)
    advantage = credit.advantage[back]
    advantage = advantage if own.per_token else advantage[:, None] * mask
    returns = advantage if credit.returns is None else credit.returns[back]
    return advantage, returns


def register() -> list[str]:
    """Puts every name into verl's two registries; returns them."""
    from verl.trainer.ppo import core_algos

    losses = dict.fromkeys([*LOSSES, *names(), "file"])
    for name in losses:
        core_algos.register_policy_loss(f"lockstep:{name}")(partial(policy_loss, name))
    core_algos.register_policy_loss("lockstep")(partial(policy_loss, "vanilla"))
    estimators = {f"lockstep:{name}": name for name in [*names(), "file"]} | {"lockstep": "grpo"}
    for key, name in estimators.items():
        if key not in core_algos.ADV_ESTIMATOR_REGISTRY:
            core_algos.register_adv_est(key)(partial(estimate, name))
    return ["lockstep", *(f"lockstep:{name}" for name in losses)]


if __name__ == "__main__":
    if sys.argv[1:] != ["check"]:
        sys.exit("usage: python -m lockstep.verl check")
    print("\n".join(register()))
elif "verl" in sys.modules:
    register()
