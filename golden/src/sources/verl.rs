//! verl's ops and settings, as recipes.
//!
//! A KL term is isolated by an advantage of 0: under token-sum, a token's loss and gradient are then its own.

use super::over_tokens::{EQUAL, Tokens, equal};
use crate::inputs::Inputs;
use crate::numbers::{self, Got};
use crate::outcome::{Calls, Exception, Outcome, Setup, text};
use crate::settings::{Config, Overlay};
use crate::sources::{KL, OUTCOME, Plan, ROLLOUT, Request, VALUE};
use lockstep::{Device, Rollouts};

const OVER_TIME: &[&str] = &["cu_seqlens", "cu_groups", "loss_mask", "token_rewards", "values"];
#[rustfmt::skip]
const POLICY: &[&str] = &[
    "cu_seqlens", "cu_groups", "loss_mask", "logp_new", "logp_old", "seq_advantages", "token_advantages",
    "advantages", "is_weights",
];

const RETURNS: &[&str] = &["advantages", "returns"];
#[rustfmt::skip]
const GATED: &[&str] = &[
    "loss", "dloss_dlogp", "metrics.pg_clipfrac", "metrics.ppo_kl", "metrics.pg_clipfrac_lower",
];
#[rustfmt::skip]
const WEIGHTS: &[&str] = &[
    "weights", "metrics.rollout_is_mean", "metrics.rollout_is_std", "metrics.rollout_is_min",
    "metrics.rollout_is_max", "metrics.rollout_is_eff_sample_size", "metrics.rollout_is_ratio_fraction_high",
    "metrics.rollout_is_ratio_fraction_low", "metrics.rollout_is_seq_mean", "metrics.rollout_is_seq_std",
    "metrics.rollout_is_seq_min", "metrics.rollout_is_seq_max", "metrics.rollout_is_seq_max_deviation",
    "metrics.rollout_is_seq_fraction_high", "metrics.rollout_is_seq_fraction_low",
];

type Read = fn(&mut Config<'_>, &mut Setup) -> Result<(), String>;
type Op = (&'static str, &'static str, Calls, &'static [&'static str], &'static [&'static str], Read);

/// Op, preset, calls, inputs, results, reader of the settings.
#[rustfmt::skip]
const OPS: &[Op] = &[
    ("advantage_grpo", "verl", Calls::Advantages, OUTCOME, &["advantages"], advantage),
    ("advantage_grpo_passk", "pass_k", Calls::Advantages, OUTCOME, &["advantages"], advantage),
    ("advantage_rloo", "rloo", Calls::Advantages, OUTCOME, &["advantages"], |_, _| Ok(())),
    ("advantage_rloo_vectorized", "verl_rloo_vectorized", Calls::Advantages, OUTCOME, &["advantages"],
        |_, _| Ok(())),
    ("advantage_opo", "opo", Calls::Advantages, OUTCOME, &["advantages"], |_, _| Ok(())),
    ("advantage_gpg", "gpg", Calls::Advantages, OUTCOME, &["advantages"], gpg),
    ("advantage_reinforce_plus_plus", "reinforce_plus_plus", Calls::Advantages, OVER_TIME, RETURNS, returns),
    ("advantage_reinforce_plus_plus_baseline", "reinforce_plus_plus_baseline", Calls::Advantages, OUTCOME,
        &["advantages"], |_, _| Ok(())),
    ("advantage_gae", "gae", Calls::Advantages, OVER_TIME, RETURNS, gae),
    ("policy_loss_ppo_clip", "verl", Calls::Loss, POLICY, GATED, dual_clip),
    ("policy_loss_gspo", "gspo", Calls::Loss, POLICY, GATED, clip),
    ("policy_loss_cispo", "verl_cispo", Calls::Loss, POLICY, GATED, cispo),
    ("policy_loss_gpg", "gpg", Calls::Loss, POLICY, &["loss", "dloss_dlogp"], aggregation),
    ("policy_loss_dppo_tv", "dppo_tv", Calls::Loss, POLICY, GATED, dual_clip),
    ("policy_loss_dppo_kl", "dppo_kl", Calls::Loss, POLICY, GATED, dual_clip),
    ("policy_loss_sapo", "verl_sapo", Calls::Loss, POLICY, GATED, sapo),
    ("policy_loss_gmpo", "gmpo", Calls::Loss, POLICY, GATED, gmpo),
    ("policy_loss_kl_cov", "kl_cov", Calls::Loss, POLICY, &["loss", "dloss_dlogp", "metrics.ppo_kl"], kl_cov),
    ("policy_loss_dro", "dro", Calls::Loss, POLICY, &["loss", "dloss_dlogp", "metrics.ppo_kl"], dro),
    // `verl_tis_sequence` at level sequence.
    ("rollout_correction_is", "verl_tis_token", Calls::Advantages, ROLLOUT, WEIGHTS, weights),
    ("rollout_correction_reject", "verl_geo_rs", Calls::Advantages, ROLLOUT, &["loss_mask"], reject),
    ("kl", "verl", Calls::Loss, KL, &["kl", "dkl_dlogp"], kl),
    ("value_loss", "verl", Calls::Loss, VALUE, &["loss", "dloss_dvalue", "clipfrac"], value),
];

/// The ops that this table covers.
pub(crate) const NAMES: [&str; OPS.len()] = {
    let (mut names, mut k) = ([""; OPS.len()], 0);
    while k < OPS.len() {
        names[k] = OPS[k].0;
        k += 1;
    }
    names
};

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, device }: Request<'_, '_>) -> Result<Plan, String> {
    let found = OPS.iter().find(|known| known.0 == op);
    let Some((_, preset, calls, names, expects, read)) = found else {
        return Err(format!("op {op} is not in the table of verl"));
    };
    let mut setup = Setup::new(Overlay::new(preset), *calls, names, expects);
    read(config, &mut setup)?;
    match op {
        "policy_loss_cispo" | "policy_loss_dppo_tv" | "policy_loss_dppo_kl" => zeros_count(&mut setup),
        "policy_loss_gmpo" if inputs.has("token_advantages") => {
            let why = "of the sign of each token's advantage; ours is of the sequence's, by which GMPO clips";
            setup.skips.extend(["metrics.pg_clipfrac", "metrics.pg_clipfrac_lower"].map(|name| (name, why)));
        }
        "advantage_gae" => setup.exception = equal_advantages(&setup, inputs, device)?,
        "policy_loss_sapo" => setup.exception = saturated(inputs)?,
        "rollout_correction_is" => {
            let shape = inputs.shape()?;
            let live = |span: &std::ops::Range<usize>| shape.live[span.clone()].contains(&true);
            if !shape.spans.iter().all(live) {
                let why = "verl counts a sequence without live tokens as one of weight 1; ours leaves it out";
                let by_sequence = ["seq_", "_is_min", "ratio_fraction"];
                let counted =
                    WEIGHTS.iter().filter(|name| by_sequence.iter().any(|part| name.contains(part)));
                setup.skips.extend(counted.map(|name| (*name, why)));
            }
        }
        _ => {}
    }
    Ok(Plan::recipe(setup))
}

/// The difference of whitened advantages that are equal.
fn equal_advantages(
    setup: &Setup,
    inputs: &Inputs<'_>,
    device: &Device,
) -> Result<Option<Exception>, String> {
    let mut recipe = setup.recipe.recipe()?;
    if recipe.advantage.whiten.take().is_none() {
        return Ok(None);
    }
    let tokens = Tokens::read(inputs)?;
    let (rewards, values) = (inputs.floats("token_rewards")?, inputs.floats("values")?);
    let batch = Rollouts {
        rewards: None,
        token_rewards: Some(&rewards),
        values_old: Some(&values),
        ..tokens.rollouts(&[])
    };
    let raw = recipe.advantages(device, &batch).map_err(text)?.advantage;
    Ok(equal(&raw, &tokens.mask).then_some(EQUAL))
}

/// The difference of a SAPO case that goes far above a ratio of 1, where p·(1 − p) of a sigmoid p is 0 in
/// binary64.
pub(super) fn saturated(inputs: &Inputs<'_>) -> Result<Option<Exception>, String> {
    let [new, old] = [inputs.numbers("logp_new")?, inputs.numbers("logp_old")?];
    let why = "far above 1 the code's gate is exactly 1 and its gradient 0; ours keeps its e^-z";
    Ok(new.iter().zip(old).any(|(new, old)| new - old > 2.0).then_some(Exception::Differs(why)))
}

/// verl counts clipped tokens whose advantage is 0 like those with a negative one; ours are not counted.
fn zeros_count(to: &mut Setup) {
    for name in ["metrics.pg_clipfrac", "metrics.pg_clipfrac_lower"] {
        let counted = move |o: &Outcome<'_>| {
            let mut credit = o.credit.clone();
            credit.advantage.iter_mut().filter(|a| **a == 0.0).for_each(|a| *a = -1.0);
            let loss = o.recipe.loss(o.device, &o.columns.view(), &credit).map_err(text)?;
            let metrics = loss.metrics.ok_or("no metrics came back")?;
            let lower = name.ends_with("lower");
            Ok(Got::Number(if lower { metrics.clip_fraction_dual } else { metrics.clip_fraction }, 0.0))
        };
        to.own.push((name, Box::new(counted)));
    }
}

fn advantage(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    if config.boolean("norm_adv_by_std_in_grpo")? == Some(false) {
        to.recipe.set("advantage.norm_by_std", false);
    }
    to.recipe.copy(config, &[("epsilon", "advantage.eps")])
}

fn gpg(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    to.recipe.copy(config, &[("f_norm", "advantage.f_norm")])
}

fn returns(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    to.recipe.copy(config, &[("gamma", "advantage.gamma")])
}

fn gae(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    if config.boolean("whiten")? == Some(false) {
        to.recipe.word("advantage.whiten", "none");
    }
    let keys = [("gamma", "advantage.over_time.gamma"), ("lam", "advantage.over_time.lambda")];
    to.recipe.copy(config, &keys)
}

fn aggregation(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    let horizon = config.number("horizon")?;
    let Some(mode) = config.text("aggregation")? else { return Ok(()) };
    to.recipe.word("aggregation.mode", mode);
    if mode == "seq-mean-token-sum-norm" && to.recipe.preset() == "verl" {
        to.recipe.extend("verl_dr_grpo");
    }
    match (mode, horizon) {
        ("seq-mean-token-sum-norm", Some(horizon)) => to.recipe.number("aggregation.horizon", horizon),
        // Without a constant verl uses the padded width.
        ("seq-mean-token-sum-norm", None) => to.recipe.word("aggregation.horizon", "longest"),
        _ => {}
    }
    Ok(())
}

/// Lower and upper bound, each defaulting to `clip_ratio`.
fn bounds(config: &mut Config<'_>) -> Result<[Option<f64>; 2], String> {
    let both = config.number("clip_ratio")?;
    Ok([config.number("clip_ratio_low")?.or(both), config.number("clip_ratio_high")?.or(both)])
}

fn clip(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    let [low, high] = bounds(config)?;
    // A ratio bound at or below 0 never binds: Lockstep spells that low = 1.
    to.recipe.number("gate.clip_ratio_low", low.map(|low| low.min(1.0)));
    to.recipe.number("gate.clip_ratio_high", high);
    aggregation(config, to)
}

fn dual_clip(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    to.recipe.copy(config, &[("clip_ratio_c", "gate.clip_ratio_c")])?;
    clip(config, to)
}

fn dro(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    to.recipe.word("ratio.guard", "none");
    to.recipe.copy(config, &[("dro_beta", "gate.beta")])?;
    aggregation(config, to)
}

/// verl's bounds are distances from 1; the recipe's apply to the weight itself.
fn cispo(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    let [low, high] = bounds(config)?;
    to.recipe.number("gate.low", low.map(|low| 1.0 - low));
    to.recipe.number("gate.high", high.map(|high| 1.0 + high));
    aggregation(config, to)
}

fn sapo(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    to.recipe.copy(config, &[("tau_pos", "gate.tau_pos"), ("tau_neg", "gate.tau_neg")])?;
    aggregation(config, to)
}

/// verl's GMPO takes its bounds as bounds on the logarithm, does not guard it, and ignores the aggregation:
/// one term per sequence.
fn gmpo(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    let [low, high] = bounds(config)?;
    to.recipe.number("gate.clip_log_low", low);
    to.recipe.number("gate.clip_log_high", high);
    to.recipe.word("ratio.guard", "none");
    config.ignore(&["aggregation", "horizon"]);
    Ok(())
}

fn kl_cov(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    to.recipe.copy(config, &[("kl_cov_ratio", "gate.kl_cov_ratio"), ("ppo_kl_coef", "gate.ppo_kl_coef")])?;
    aggregation(config, to)
}

/// verl clamps k3 under either name; a `+` selects k2's gradient.
fn kl(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    let name = config.required_text("estimator")?;
    let base = name.strip_suffix('+').unwrap_or(name);
    to.recipe.word("kl.estimator", if base == "k3" { "low_var_kl" } else { base });
    to.recipe.number("kl.coef", 1.0);
    to.recipe.set("kl.straight_through", base.len() < name.len());
    to.recipe.word("aggregation.mode", "token-sum");
    Ok(())
}

fn value(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    let keys = [("cliprange_value", "value.cliprange_value"), ("aggregation", "value.aggregation.mode")];
    to.recipe.copy(config, &keys)
}

/// verl writes a band as `low_high`; a single number is an upper bound.
fn band(spec: &str) -> Result<(Option<f64>, f64), String> {
    let number = |text: &str| text.trim().parse::<f64>().map_err(|e| format!("threshold `{text}`: {e}"));
    match spec.split_once('_') {
        Some((low, high)) => Ok((Some(number(low)?), number(high)?)),
        None => Ok((None, number(spec)?)),
    }
}

/// The setting `threshold`, a number or text.
fn threshold(config: &mut Config<'_>) -> Result<String, String> {
    let value = config.take("threshold").ok_or("config `threshold` is missing")?;
    Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn weights(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    let level = config.text("level")?;
    let (low, high) = band(&threshold(config)?)?;
    match (level, low) {
        (Some("token"), _) => {}
        (Some("sequence"), None) => to.recipe.extend("verl_tis_sequence"),
        (Some("sequence"), Some(_)) => to.recipe.extend("verl_mis_sequence"),
        _ => return Err(format!("config `level` is {level:?}: expected token or sequence")),
    }
    to.recipe.number("correction.low", low);
    to.recipe.number("correction.high", high);
    if low.is_some() {
        to.recipe.word("correction.rule", "mask");
        to.expects.push("metrics.rollout_is_oob_ratio");
    }
    if config.boolean("batch_normalize")? == Some(true) {
        to.recipe.set("correction.normalize", true);
        to.expects.push("metrics.rollout_is_batch_norm_factor");
    }
    to.recipe.word("advantage.estimator", "reward");
    if low.is_none() && high < 1.0 {
        let why =
            "below 1/high, which an upper threshold below 1 puts above it; ours is below the lower of both";
        to.skips.push(("metrics.rollout_is_ratio_fraction_low", why));
    }
    // verl adds 1e-8 to the count in E[w²] and in E[w], so that the deviation of equal weights is not 0, but
    // that of a single one is.
    let deviation = |o: &Outcome<'_>| {
        let tokens = o.shape.live.iter().filter(|live| **live).count() as f64;
        if tokens <= 1.0 {
            return Ok(Got::Number(0.0, 0.0));
        }
        let of = |name| match numbers::get(o, name)? {
            Got::Number(number, _) => Ok(number),
            _ => Err(format!("{name} is no number")),
        };
        let (mean, std) = (of("metrics.rollout_is_mean")?, of("metrics.rollout_is_std")?);
        let missing = 1e-8 / (tokens + 1e-8);
        Ok(Got::Number((std * std + missing * (2.0 * mean - (1.0 - missing))).max(0.0).sqrt(), 0.0))
    };
    to.own.push(("metrics.rollout_is_std", Box::new(deviation)));
    Ok(())
}

/// One statistic or several, comma-separated, with one threshold for all or as many; in verl's code k1's band
/// is on 1/ρ.
fn reject(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    let modes = config.required_text("mode")?;
    let thresholds = threshold(config)?;
    let mut rejections = Vec::new();
    let shared = if thresholds.contains(',') { 1 } else { modes.split(',').count() };
    let thresholds = vec![thresholds; shared].join(",");
    for (mode, threshold) in modes.split(',').zip(thresholds.split(',')) {
        let (low, high) = band(threshold)?;
        let (mode, low) = (mode.trim(), low.map_or_else(String::new, |low| format!("low = {low:?}, ")));
        rejections.push(format!("{{ statistic = {mode:?}, {low}high = {high:?}, band = \"inverse_rho\" }}"));
    }
    if modes.split(',').count() != thresholds.split(',').count() {
        return Err(format!("modes {modes:?} with thresholds {thresholds:?}"));
    }
    to.recipe.set("correction.reject", format_args!("[{}]", rejections.join(", ")));
    to.recipe.word("advantage.estimator", "reward");
    Ok(())
}
