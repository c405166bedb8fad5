"""verl on Lockstep: policy losses and advantage estimators by name.

Example: `actor_rollout_ref.actor.policy_loss.loss_mode=lockstep`, `algorithm.adv_estimator=lockstep:rloo`.

verl loads this module in every process, including Ray workers, through the package's entry point
`verl.plugins`. The loss modes are

- `lockstep`: verl's `vanilla` with verl's own keys (`clip_ratio`, `clip_ratio_c`, `loss_agg_mode`, …);
- `lockstep:gspo`, or another loss of verl: that loss, with verl's own keys;
- `lockstep:<recipe>`: the recipe's loss, `[aggregation]` included, with verl's counts of the whole batch;
- `lockstep:file`: likewise the recipe in the TOML file named by the environment variable `LOCKSTEP_RECIPE`.

Advantage estimators have the same names: `lockstep` is `grpo`, and verl's estimators read verl's own keys.
Entropy, KL and value terms and rollout correction stay verl's: a recipe with such a term is refused, and the
message names verl's key. So is a baseline, `remax`'s too: verl makes greedy responses for its own
`algorithm.adv_estimator=remax` alone.

The metrics are verl's, but `actor/pg_clipfrac` and `actor/pg_clipfrac_lower` do not count tokens with an
advantage of 0, as verl does for `cispo`, `dppo_tv` and `dppo_kl`; for `clip_cov` they count the tokens that
PPO's clip bounds, where verl counts those that it draws; for `geo_mean` a token counts as high or low by the
sign of its sequence's mean advantage, where verl looks at the token's own.

`LOCKSTEP_ON_ERROR=nan` and `LOCKSTEP_POSITIVE_LOGP=clamp` in the environment, including that of Ray's
workers, set what happens to a refused value, like `on_error` and `positive_logp` of `lockstep.torch.loss`.
verl skips a step whose gradient is NaN.

    python -m lockstep.verl check

reports what is registered, and what is wrong if it is not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from typing import Any

import torch
from torch import Tensor

from . import Credit, Error, advantages, names
from ._host import Host, clip_low, file, items, of_sequences, options
from .columns import error
from .torch import loss as _loss, metrics as _metrics

TESTED = ("0.9.1",)
_CLIP = ("gate.clip_ratio_low", "gate.clip_ratio_high")
# Of losses in which verl does not bound the log-ratio.
_UNBOUNDED = {"ratio.guard": "none"}


def _bounds(config: Any) -> tuple[float, float]:
    """Returns the lower and upper bound, each `clip_ratio` if not set."""
    both = config.clip_ratio
    low, high = config.clip_ratio_low, config.clip_ratio_high
    return (both if low is None else low), (both if high is None else high)


def _clip(config: Any) -> dict[str, Any]:
    low, high = _bounds(config)
    return dict(zip(_CLIP, (clip_low(low), high)))


def _dual_clip(config: Any) -> dict[str, Any]:
    return {**_clip(config), "gate.clip_ratio_c": config.get("clip_ratio_c", 3.0)}


def _dppo_kl(config: Any) -> dict[str, Any]:
    # A bound of the divergence, in nats.
    return {**_dual_clip(config), _CLIP[0]: _bounds(config)[0]}


def _cispo(config: Any) -> dict[str, Any]:
    low, high = _bounds(config)
    return {"gate.low": 1.0 - clip_low(low), "gate.high": 1.0 + high}


def _gmpo(config: Any) -> dict[str, Any]:
    return {**_UNBOUNDED, **dict(zip(("gate.clip_log_low", "gate.clip_log_high"), _bounds(config)))}


def _sapo(config: Any) -> dict[str, Any]:
    return {"gate.tau_pos": config.tau_pos, "gate.tau_neg": config.tau_neg}


def _covariance(config: Any, **defaults: float) -> dict[str, Any]:
    """Returns keys of `policy_loss`; for null, the numbers that verl's code falls back to."""
    values = {key: getattr(config.policy_loss, key) for key in defaults}
    return {f"gate.{key}": defaults[key] if value is None else value for key, value in values.items()}


def _kl_cov(config: Any) -> dict[str, Any]:
    return _covariance(config, kl_cov_ratio=0.0002, ppo_kl_coef=1.0)


def _clip_cov(config: Any) -> dict[str, Any]:
    return {**_clip(config), **_covariance(config, clip_cov_ratio=0.0002, clip_cov_lb=1.0, clip_cov_ub=5.0)}


def _dro(config: Any) -> dict[str, Any]:
    beta = config.policy_loss.dro_beta
    if beta is None:
        raise Error("actor_rollout_ref.actor.policy_loss.dro_beta is not set: expected a number above 0")
    return {**_UNBOUNDED, "gate.beta": beta}


def _nothing(config: Any) -> dict[str, Any]:
    return {}


# verl's losses: recipe, verl's keys, and whether `loss_agg_mode` is read.
LOSSES: dict[str, tuple[str, Callable[[Any], dict[str, Any]], bool]] = {
    "vanilla": ("verl", _dual_clip, True),
    "dppo_tv": ("dppo_tv", _dual_clip, True),
    "dppo_kl": ("dppo_kl", _dppo_kl, True),
    "gspo": ("gspo", _clip, True),
    "sapo": ("verl_sapo", _sapo, False),
    "gpg": ("gpg", _nothing, True),
    "clip_cov": ("clip_cov", _clip_cov, True),
    "kl_cov": ("kl_cov", _kl_cov, True),
    "geo_mean": ("gmpo", _gmpo, False),
    "dro": ("dro", _dro, True),
    "cispo": ("verl_cispo", _cispo, True),
}


def _norm(config: Any) -> dict[str, Any]:
    return {"advantage.norm_by_std": config.get("norm_adv_by_std_in_grpo", True)}


def _gamma(config: Any) -> dict[str, Any]:
    return {"advantage.gamma": config.gamma}


# verl's estimators: recipe, verl's keys.
ESTIMATORS: dict[str, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    "grpo": ("verl", _norm),
    "grpo_vectorized": ("verl", _nothing),
    "grpo_passk": ("pass_k", _norm),
    "reinforce_plus_plus": ("reinforce_plus_plus", _gamma),
    "reinforce_plus_plus_baseline": ("reinforce_plus_plus_baseline", _nothing),
    "rloo": ("rloo", _nothing),
    "rloo_vectorized": ("verl_rloo_vectorized", _nothing),
    "opo": ("opo", _nothing),
    "gpg": ("gpg", _nothing),
}

_HOST = Host(
    "verl",
    {
        ("loss", "kl"): "actor_rollout_ref.actor.use_kl_loss",
        ("loss", "entropy"): "actor_rollout_ref.actor.entropy_coeff",
        ("loss", "value"): "the critic's own loss, keys critic.*",
        ("advantages", "kl"): "algorithm.use_kl_in_reward",
        ("advantages", "correction"): "algorithm.rollout_correction",
        # For no other name verl makes greedy responses, and only its legacy trainer does.
        ("advantages", "advantage"): "its own algorithm.adv_estimator=remax, with greedy responses",
        ("advantages", "advantage.over_time"): "algorithm.adv_estimator=gae",
    },
    {
        "loss": frozenset({"cu_seqlens", "cu_groups", "loss_mask", "logp", "logp_old", "counts", "seed"}),
        "advantages": frozenset({"cu_seqlens", "cu_groups", "loss_mask", "rewards", "token_rewards"}),
    },
)


def _aggregation(mode: str, horizon: float | None) -> dict[str, Any]:
    keys: dict[str, Any] = {"aggregation.mode": mode}
    if mode == "seq-mean-token-sum-norm":
        # Without a constant, verl uses the padded width, which is every row's length here.
        keys["aggregation.horizon"] = "longest" if horizon is None else float(horizon)
    return keys


def _source(name: str, config: Any, loss_agg_mode: str) -> Any:
    """Returns the source of a loss mode's recipe."""
    if name == "file":
        return file()
    if name not in LOSSES:
        return name
    extends, keys, aggregated = LOSSES[name]
    horizon = config.global_batch_info.get("loss_scale_factor")
    return items({"extends": extends, **keys(config), **(_aggregation(loss_agg_mode, horizon) if aggregated else {})})


def _counts(config: Any, mask: Tensor) -> Tensor:
    """Returns verl's counts of the whole batch, or this batch's own."""
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
    """A policy loss with verl's signature; returns the loss and verl's metrics.

    Tensors are `[batch, response length]`.
    """
    own = _HOST.recipe(name, _source(name, config, loss_agg_mode))
    mask = response_mask.bool()
    # verl's GMPO is a mean over the local sequences, whatever verl counts.
    of_batch = name != "geo_mean"
    # The off-policy mask takes whole sequences by the sign of their advantage.
    masks = "opsm_delta" in own.toml
    # Clip-Cov draws with torch's generator, like verl's.
    seed = torch.randint(2**62, (1,)).to(mask.device) if any(column == "seed" for column, *_ in own.needs()) else None
    out = _loss(
        own,
        Credit(advantage=of_sequences(advantages, mask) if masks else advantages, per_token=not masks, weights=rollout_is_weights),
        logp=log_prob,
        logp_old=old_log_prob,
        loss_mask=mask,
        counts=_counts(config, mask) if of_batch else None,
        seed=seed,
        **options(),
    )
    if name == "kl_cov":
        # For KL-Cov, verl logs only the mean of the magnitudes.
        distance = torch.where(mask, (log_prob - old_log_prob).detach().abs(), 0.0)
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
    name: str,
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Any = None,
    config: Any = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """An advantage estimator with verl's signature; returns advantages and returns.

    Rewards are `[batch, response length]`; `index` is the prompt of each row, in any order.
    """
    source = file() if name == "file" else name
    if name in ESTIMATORS:
        extends, keys = ESTIMATORS[name]
        source = items({"extends": extends, **({} if config is None else keys(config))})
    own = _HOST.recipe(name, source, "advantages")
    if index is None:
        raise Error(f"lockstep:{name}: the batch has no uid, which says which prompt each response belongs to")
    rows = token_level_rewards.shape[0]
    # The entries of a tensor are tensors, no two of which are the same key.
    index = index.tolist() if isinstance(index, Tensor) else index
    if len(index) != rows:
        raise error("index", f" has {len(index)} entries: expected {rows}, the prompt of each response")
    # Responses to a prompt become adjacent; groups are in the order of their first response.
    number: dict[Any, int] = {}
    prompt = [number.setdefault(uid, len(number)) for uid in index]
    order = sorted(range(rows), key=prompt.__getitem__)
    sizes = [0] * len(number)
    for group in prompt:
        sizes[group] += 1
    place = torch.tensor(order, device=token_level_rewards.device)
    offsets = torch.tensor([0, *sizes], device=place.device).cumsum(0)
    columns = {"token_rewards": token_level_rewards, "rewards": token_level_rewards.sum(dim=-1)}
    reads = {column for column, _, call, *_ in own.needs() if call == "advantages"}
    columns = {column: value[place] for column, value in columns.items() if column in reads}
    credit = advantages(own, cu_groups=offsets, loss_mask=response_mask.bool()[place], **columns)
    if credit.loss_mask is not None or credit.weights is not None:
        raise Error(
            f"lockstep:{name}: the recipe drops or weights tokens, but verl accepts only advantages and returns:"
            " use its algorithm.filter_groups and algorithm.rollout_correction"
        )
    back = torch.empty_like(place)
    back[place] = torch.arange(rows, device=place.device)
    mask = response_mask.to(token_level_rewards.dtype)
    advantage = credit.advantage[back]
    advantage = (advantage if own.per_token else advantage[:, None]) * mask
    returns = advantage if credit.returns is None else credit.returns[back] * mask
    return advantage, returns


def register() -> None:
    """Adds every name to verl's two registries."""
    from verl.trainer.ppo import core_algos

    registries = (
        (core_algos.POLICY_LOSS_REGISTRY, policy_loss, LOSSES, "vanilla"),
        (core_algos.ADV_ESTIMATOR_REGISTRY, estimate, ESTIMATORS, "grpo"),
    )
    for registry, of, theirs, default in registries:
        registry["lockstep"] = partial(of, default)
        registry.update({f"lockstep:{name}": partial(of, name) for name in (*theirs, *names(), "file")})


def check() -> list[str]:
    """Prints what verl has loaded in this process; returns the problems found."""
    try:
        import verl
        from verl.trainer.ppo import core_algos
    except ImportError as error:
        return [f"verl cannot be imported: {error}. Install verl=={TESTED[-1]}"]
    wrong = []
    print(f"verl {verl.__version__}, tested with {', '.join(TESTED)}")
    if verl.__version__ not in TESTED:
        wrong.append(f"verl {verl.__version__} is not tested: install verl=={TESTED[-1]}, or run Lockstep's tests with yours")
    by_module = "lockstep.verl" in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")
    by_plugin = any(point.value == "lockstep.verl" for point in entry_points(group="verl.plugins"))
    print(f"entry point verl.plugins: {'found' if by_plugin else 'not found'}")
    if by_module:
        print("VERL_USE_EXTERNAL_MODULES: names lockstep.verl")
    elif not by_plugin:
        wrong.append("no entry point: install the wheel (pip install lockstep-rl), or set VERL_USE_EXTERNAL_MODULES=lockstep.verl")
    loaded = True
    for what, registry in (("losses", "POLICY_LOSS_REGISTRY"), ("estimators", "ADV_ESTIMATOR_REGISTRY")):
        found = [name for name in getattr(core_algos, registry, ()) if name.startswith("lockstep")]
        print(f"{what}: {', '.join(found) or 'none'}")
        loaded = loaded and bool(found)
    if not loaded and (by_module or by_plugin):
        # verl reports a failure here only in its debug log.
        try:
            register()
        except Exception as error:
            wrong.append(f"the plug-in failed to load: {type(error).__name__}: {error}")
        else:
            wrong.append(f"verl did not load the plug-in: VERL_USE_EXTERNAL_PLUGINS is {os.environ.get('VERL_USE_EXTERNAL_PLUGINS')!r}")
    return wrong


if __name__ == "__main__":
    if sys.argv[1:] != ["check"]:
        sys.exit("usage: python -m lockstep.verl check")
    sys.exit("\n".join(check()) or None)
register()
