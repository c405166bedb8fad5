//! TRL's ops and settings, as recipes.
//!
//! | settings | keys of the recipe |
//! |---|---|
//! | `loss_type` | the preset, except for the separate trainers GMPO and RLOO |
//! | `epsilon`, `epsilon_high`, `delta`, `sapo_temperature_*`, `vespo_*` | `gate` |
//! | `importance_sampling_level` | `ratio.level` |
//! | `beta`, `use_bias_correction_kl` | `kl` |
//! | `use_vllm`, `vllm_importance_sampling_*` | `correction` |
//! | `off_policy_mask_threshold`, `top_entropy_quantile` | `mask` |
//! | `entropy_coef` | `entropy` |
//! | `max_completion_length` | `aggregation.horizon` |
//! | `scale_rewards`, `normalize_advantages`, `reward_weights`, `reward_clip_range` | `advantage`, `reward` |
//! | `num_items_in_batch` | column `counts` |
//!
//! **Outside of a recipe.** TRL divides inside its loss by factors that a trainer applies outside ours, so a
//! scale of loss and gradients represents them. Losses that divide by what the micro-batch holds:
//! 1/`gradient_accumulation_steps`. `dapo`, `cispo` and `vespo` divide by `num_items_in_batch`, the tokens of
//! a whole generation on all processes, and scale up accordingly: `num_processes` · `steps_per_generation` /
//! `gradient_accumulation_steps`.

use crate::inputs::Inputs;
use crate::outcome::{Calls, Setup};
use crate::settings::{Config, Overlay};
use crate::sources::{Plan, ROLLOUT, Request};

#[rustfmt::skip]
const POLICY: &[&str] = &[
    "cu_seqlens", "cu_groups", "loss_mask", "logp_new", "logp_old", "logp_ref", "logp_rollout", "entropy",
    "seq_advantages",
];
const REWARDS: &[&str] = &["cu_groups", "rewards_per_func"];

#[rustfmt::skip]
const CLIPPED: &[&str] = &[
    "metrics.clip_ratio/low_mean", "metrics.clip_ratio/low_min", "metrics.clip_ratio/high_mean",
    "metrics.clip_ratio/high_max", "metrics.clip_ratio/region_mean",
];
#[rustfmt::skip]
const SAMPLING: &[&str] = &[
    "metrics.sampling_logp_difference/mean", "metrics.sampling_logp_difference/max",
    "metrics.importance_sampling_ratio/min", "metrics.importance_sampling_ratio/mean",
    "metrics.importance_sampling_ratio/max",
];
#[rustfmt::skip]
const ADVANTAGES: &[&str] = &[
    "advantages", "metrics.reward", "metrics.reward_std", "metrics.frac_reward_zero_std",
];

/// What Lockstep does not compute, and why.
const NOT_COMPUTED: &[(&str, &str)] = &[
    ("metrics.reward", "a statistic of the rewards as they came, which no estimator returns"),
    ("metrics.reward_std", "the same"),
    ("metrics.frac_reward_zero_std", "the same"),
    ("metrics.vespo/phi_seq_mean", "the factor of every gradient, and these are compared token by token"),
    ("metrics.entropy_coef", "the setting itself"),
];

/// The ops that this table covers.
#[rustfmt::skip]
pub(crate) const OPS: &[&str] = &[
    "advantage_grpo", "advantage_grpo_multi_reward", "advantage_rloo", "policy_loss_bnpo",
    "policy_loss_cispo", "policy_loss_dapo", "policy_loss_dr_grpo", "policy_loss_entropy_bonus",
    "policy_loss_gmpo", "policy_loss_grpo", "policy_loss_grpo_kl", "policy_loss_grpo_vllm_is_mask",
    "policy_loss_grpo_vllm_is_truncate", "policy_loss_luspo", "policy_loss_mixed_vllm_is",
    "policy_loss_off_policy_mask", "policy_loss_rloo", "policy_loss_sapo", "policy_loss_top_entropy",
    "policy_loss_vespo", "vllm_importance_sampling",
];

/// TRL's `loss_type`, and our preset; the last two are separate trainers.
#[rustfmt::skip]
const LOSSES: &[(&str, &str)] = &[
    ("dapo", "trl"), ("grpo", "trl_grpo"), ("bnpo", "trl_bnpo"), ("dr_grpo", "trl_dr_grpo"),
    ("luspo", "trl_luspo"), ("sapo", "trl_sapo"), ("cispo", "trl_cispo"), ("vespo", "trl_vespo"),
    ("gmpo", "trl_gmpo"), ("rloo", "trl_rloo"),
];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, .. }: Request<'_, '_>) -> Result<Plan, String> {
    // Labels from the generator.
    config.ignore(&["batch", "rewards", "num_generations"]);
    let mut setup = match op {
        "advantage_grpo" | "advantage_grpo_multi_reward" => group_advantages(config)?,
        "advantage_rloo" => leave_one_out(config)?,
        "vllm_importance_sampling" => {
            let mut to = Setup::new(Overlay::new("trl_vllm"), Calls::Advantages, ROLLOUT, SAMPLING);
            correction(config, &mut to)?;
            to
        }
        _ if OPS.contains(&op) => policy(op, config, inputs)?,
        _ => return Err(format!("op {op} is not in the table of TRL")),
    };
    setup.skips.extend(NOT_COMPUTED);
    Ok(Plan::recipe(setup))
}

fn advantages(recipe: Overlay, config: &mut Config<'_>) -> Result<Setup, String> {
    let mut to = Setup::new(recipe, Calls::Advantages, REWARDS, ADVANTAGES);
    to.reward_weights = config.numbers("reward_weights")?.ok_or("config `reward_weights` is missing")?;
    Ok(to)
}

fn group_advantages(config: &mut Config<'_>) -> Result<Setup, String> {
    let scale = config.text("scale_rewards")?.unwrap_or("group");
    let mut recipe = Overlay::new("trl_grpo");
    match (config.text("multi_objective_aggregation")?.unwrap_or("sum_then_normalize"), scale) {
        // Its scale is the batch's, whatever `scale_rewards` says.
        ("normalize_then_sum", _) => return advantages(Overlay::new("trl_gdpo"), config),
        ("sum_then_normalize", "group") => {}
        ("sum_then_normalize", "batch") => recipe.word("advantage.estimator", "grpo_batch"),
        ("sum_then_normalize", "none") => recipe.set("advantage.norm_by_std", false),
        (how, scale) => {
            return Err(format!("aggregation {how:?} with `scale_rewards` {scale:?} is not known"));
        }
    }
    recipe.word("reward.components", "sum");
    advantages(recipe, config)
}

fn leave_one_out(config: &mut Config<'_>) -> Result<Setup, String> {
    let mut recipe = Overlay::new("trl_rloo");
    recipe.word("reward.components", "sum");
    if config.boolean("normalize_advantages")? == Some(true) {
        recipe.word("advantage.whiten", "trl");
        recipe.word("advantage.singleton", "leave_out");
    }
    if let Some(range) = config.numbers("reward_clip_range")? {
        recipe.set("reward.clip", format_args!("{range:?}"));
    }
    advantages(recipe, config)
}

/// A policy loss.
fn policy(op: &str, config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Setup, String> {
    let set = config.text("loss_type")?;
    let loss_type = match op {
        "policy_loss_gmpo" => "gmpo",
        "policy_loss_rloo" => "rloo",
        _ => set.unwrap_or("dapo"),
    };
    let preset = LOSSES.iter().find(|(name, _)| *name == loss_type);
    let (_, preset) = preset.ok_or_else(|| format!("config `loss_type` is {loss_type:?}"))?;
    let mut to = Setup::new(Overlay::new(preset), Calls::Loss, POLICY, &["loss", "dloss_dlogp"]);
    gate(loss_type, config, &mut to)?;
    // Logarithms of binary32, of the correction's weights, enter a steep exponential.
    to.steep = loss_type == "vespo" && inputs.has("logp_rollout");
    to.exception = if loss_type == "sapo" { super::verl::saturated(inputs)? } else { None };

    let level = config.text("importance_sampling_level")?.unwrap_or("token");
    // VESPO and the separate trainers do not read it.
    if !matches!(loss_type, "vespo" | "gmpo" | "rloo") {
        to.recipe.word("ratio.level", level);
    }
    let weighted = config.boolean("use_bias_correction_kl")?.unwrap_or(true) && loss_type != "gmpo";
    if let Some(beta) = config.number("beta")?.filter(|beta| *beta != 0.0) {
        let ratio =
            if weighted { ", importance_weighted = \"through_ratio\", ratio = \"policy\"" } else { "" };
        to.recipe.set("kl", format_args!("{{ estimator = \"k3\", coef = {beta:?}{ratio} }}"));
        to.expects.push("metrics.kl");
    }
    if config.boolean("use_vllm")? == Some(true) {
        correction(config, &mut to)?;
    } else if loss_type == "vespo" {
        to.recipe.word("correction", "none");
    }
    // Says whether the case has the sampler's log-probabilities, which its inputs show anyway.
    config.ignore(&["opsm_uses_sampling_logps"]);
    if let Some(threshold) = config.number("off_policy_mask_threshold")? {
        to.recipe.number("mask.opsm_delta", threshold);
        let against = if inputs.has("logp_rollout") { "rollout" } else { "old" };
        to.recipe.word("mask.opsm_against", against);
    }
    let quantile = config.number("top_entropy_quantile")?.filter(|quantile| *quantile < 1.0);
    if quantile.is_some() {
        to.recipe.number("mask.top_entropy", quantile);
        to.recipe.word("mask.quantile", "torch");
        to.expects.push("entropy_mask");
    }
    let longest = config.number("max_completion_length")?;
    to.recipe.number("aggregation.horizon", longest.filter(|_| loss_type == "dr_grpo"));

    let accumulated = config.number("gradient_accumulation_steps")?.unwrap_or(1.0);
    let a_generation = config.number("steps_per_generation")?.unwrap_or(1.0);
    let processes = config.number("num_processes")?.unwrap_or(1.0);
    let items = config.number("num_items_in_batch")?;
    let by_tokens = matches!(loss_type, "dapo" | "cispo" | "vespo");
    to.scale = if by_tokens { processes * a_generation / accumulated } else { 1.0 / accumulated };
    to.counts[0] = items.filter(|_| by_tokens).map(|items| items.max(1.0) as u64);
    to.logged_unscaled = !by_tokens;
    if let Some(coef) = config.number("entropy_coef")? {
        // The bonus is divided only for accumulation, whatever divides the policy loss.
        to.recipe.number("entropy.coef", coef / accumulated / to.scale);
        to.recipe.word("entropy.aggregation.mode", "token-mean");
        to.recipe.word("entropy.over", "call");
        to.recipe.word("entropy.of", if quantile.is_some() { "kept" } else { "live" });
        let logged = ["metrics.entropy", "metrics.entropy_coef", "metrics.policy_loss"];
        to.expects.extend(["dloss_dentropy"].into_iter().chain(logged));
    }
    Ok(to)
}

/// The gate of a loss type, and its metrics. Bounds that a loss does not read are ignored, as in TRL.
fn gate(loss_type: &str, config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    let low = config.number("epsilon")?.unwrap_or(0.2);
    let high = config.number("epsilon_high")?.unwrap_or(low);
    let delta = config.number("delta")?.filter(|_| loss_type != "rloo");
    match loss_type {
        "sapo" => {
            let keys = [("sapo_temperature_pos", "gate.tau_pos"), ("sapo_temperature_neg", "gate.tau_neg")];
            return to.recipe.copy(config, &keys);
        }
        // A bound on the weight itself.
        "cispo" => {
            to.recipe.number("gate.high", high);
            to.expects.push("metrics.cispo_clip_ratio");
            return Ok(());
        }
        "vespo" => {
            to.expects.push("metrics.vespo/phi_seq_mean");
            let keys = ["k_pos", "lambda_pos", "k_neg", "lambda_neg"];
            let keys = keys.map(|key| (format!("vespo_{key}"), format!("gate.{key}")));
            return to.recipe.copy(config, &keys.each_ref().map(|(from, to)| (from.as_str(), to.as_str())));
        }
        "gmpo" => {
            to.recipe.number("gate.clip_log_low", low);
            to.recipe.number("gate.clip_log_high", high);
        }
        _ => match delta {
            None => {
                to.recipe.number("gate.clip_ratio_low", low);
                to.recipe.number("gate.clip_ratio_high", high);
            }
            // min(min(r, δ)·A, clip(r)·A): the smaller of δ and 1 + ε bounds r where A > 0, the larger where
            // A < 0.
            Some(delta) => {
                let (upper, largest) = (high.min(delta - 1.0), delta.max(1.0 + high));
                if to.recipe.preset() == "trl_grpo" {
                    to.recipe.extend("trl_two_sided");
                }
                let bounds =
                    format!("clip_ratio_low = {low:?}, clip_ratio_high = {upper:?}, delta = {largest:?}");
                to.recipe.set("gate", format_args!("{{ kind = \"two_sided\", {bounds} }}"));
                if delta < 1.0 + high {
                    let hidden = CLIPPED.iter().filter(|name| !name.contains("low"));
                    to.skips.extend(
                        hidden.map(|name| (*name, "counted after the clamp by delta, which hides it")),
                    );
                }
            }
        },
    }
    to.expects.extend(CLIPPED);
    Ok(())
}

/// The correction for the sampler, and the weights that the file has for it.
fn correction(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    let mode = config.text("vllm_importance_sampling_mode")?.unwrap_or("sequence_mask");
    let (level, rule) = mode.split_once('_').ok_or_else(|| format!("mode {mode:?} is not known"))?;
    let low = config.number("vllm_importance_sampling_clip_min")?;
    let low = low.map_or_else(String::new, |low| format!("low = {low:?}, "));
    // `null` means unbounded.
    let high = config.number("vllm_importance_sampling_clip_max")?.unwrap_or(f64::INFINITY);
    let band = format!("{low}high = {high:?}, denominator = \"before\", nan_rollout = \"one\"");
    to.recipe.set("correction", format_args!("{{ level = {level:?}, rule = {rule:?}, {band} }}"));
    // The file's advantages pass through.
    to.recipe.word("advantage.estimator", "reward");
    to.expects.push(if level == "token" { "is_weights" } else { "seq_is_weights" });
    Ok(())
}
