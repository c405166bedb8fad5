//! NeMo RL's ops and settings, as recipes.
//!
//! `global_valid_toks` and `global_valid_seqs` become the column `counts`. NeMo's denominators are larger by
//! 1e-8. A `sample_mask` hides sequences, which then count nowhere.

use super::nemo_advantages::{gae, gdpo, grpo, raw_reward, reinforce_plus_plus};
use super::nemo_metrics::{Logged, Parts, live, metrics, moments};
use super::slime::steep_k3;
use crate::inputs::Inputs;
use crate::numbers::{self, Got, widen};
use crate::outcome::{Calls, Outcome, Setup, text};
use crate::settings::{Config, Overlay};
use crate::sources::{KL, Plan, Request, VALUE};
use lockstep::RolloutsBuf;
use lockstep::ops::moments::Moments;

#[rustfmt::skip]
const POLICY: &[&str] = &[
    "cu_seqlens", "cu_groups", "loss_mask", "logp_new", "logp_old", "logp_rollout", "logp_ref",
    "seq_advantages", "token_advantages",
];

/// The ops that this table covers.
#[rustfmt::skip]
pub(crate) const OPS: &[&str] = &[
    "advantage_gae", "advantage_gdpo", "advantage_grpo", "advantage_raw_reward",
    "advantage_reinforce_plus_plus", "kl", "policy_loss_cispo", "policy_loss_clipped_pg",
    "policy_loss_clipped_pg_dual_clip", "policy_loss_clipped_pg_on_policy",
    "policy_loss_clipped_pg_sequence_ratios", "policy_loss_icepop", "policy_loss_kl",
    "policy_loss_kl_no_clamp", "policy_loss_kl_on_policy_approx", "policy_loss_seq_mask_tis",
    "policy_loss_tis", "policy_loss_vapo_nll", "value_loss",
];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, device }: Request<'_, '_>) -> Result<Plan, String> {
    // A label from the generator.
    config.ignore(&["batch"]);
    match op {
        "advantage_grpo" => grpo(config),
        "advantage_gdpo" => gdpo(config, inputs, device),
        "advantage_raw_reward" => raw_reward(config),
        "advantage_reinforce_plus_plus" => reinforce_plus_plus(config, inputs, device),
        "advantage_gae" => gae(config, inputs, device),
        "kl" => kl(config, inputs),
        "value_loss" => value(config),
        _ if op.starts_with("policy_loss_") => policy(config, inputs),
        _ => Err(format!("op {op} is not in the table of NeMo RL")),
    }
}

/// A KL term as a recipe table.
fn kl_table(name: &str, coef: f64, clamps: [Option<f64>; 2], weighted: &str) -> String {
    let [low, high] = clamps;
    let key =
        |name: &str, clamp: Option<f64>| clamp.map_or_else(String::new, |x| format!(", {name} = {x:?}"));
    let clamps = key("clamp_in", low) + &key("clamp_out", high);
    format!("{{ estimator = {name:?}, coef = {coef:?}{clamps}, importance_weighted = {weighted:?} }}")
}

/// The KL term alone: advantages are 0.
fn kl(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let name = config.text("kl_type")?.unwrap_or("k3");
    let clamps = [config.number("input_clamp_value")?, config.number("output_clamp_value")?];
    let weighted = config.text("importance_sampling_weights")?.is_some();
    let weighting = if weighted { "through_ratio" } else { "none" };
    let table = kl_table(name, 1.0, clamps, weighting);
    let mut to = Setup::new(Overlay::new("nemo"), Calls::Loss, KL, &["kl", "dkl_dlogp"]);
    to.recipe.set("kl", table);
    to.exception = steep_k3(&to.recipe.recipe()?, inputs)?;
    to.recipe.word("aggregation.mode", "token-sum");
    to.prepare = Some(Box::new(move |inputs, columns, _| {
        // The weights are relative to the sampler.
        columns.logp_old = inputs.optional("logp_rollout", Inputs::floats)?.filter(|_| weighted);
        Ok(())
    }));
    Ok(Plan::recipe(to))
}

/// Half the square, times a scale; the metrics are means over the batch's tokens.
fn value(config: &mut Config<'_>) -> Result<Plan, String> {
    let tokens = config.required("global_valid_toks")? as u64;
    let scale = config.number("scale")?.unwrap_or(1.0);
    let mut to = Setup::new(Overlay::new("nemo"), Calls::Loss, VALUE, &["loss", "dloss_dvalue"]);
    to.counts[0] = Some(tokens);
    to.recipe.set("value.aggregation", "{ mode = \"token-mean\" }");
    to.recipe.number("value.coef", scale);
    to.recipe.copy(config, &[("cliprange", "value.cliprange_value")])?;
    let share = move |o: &Outcome<'_>| live(o) / tokens as f64;
    to.own("metrics.vf_clipfrac", move |o| {
        Ok(Got::Number(numbers::critic(o)?.clip_fraction * share(o), 0.0))
    });
    // The squares themselves without clipping, both as they are and about a value of 0.
    let squares = move |o: &Outcome<'_>, columns: &RolloutsBuf| {
        let mut recipe = o.recipe.clone();
        let value = recipe.value.as_mut().ok_or("the recipe has no value loss")?;
        (value.coef, value.cliprange_value) = (2.0, None);
        let loss = recipe.loss(o.device, &columns.view(), &o.credit).map_err(text)?;
        Ok::<_, String>(Got::Number(loss.value.ok_or("no value loss came back")?.loss, 0.0))
    };
    to.own("metrics.residual_sq_mean", move |o| squares(o, &o.columns));
    to.own("metrics.returns_sq_mean", move |o| {
        let values = o.columns.values.as_ref().map(|values| vec![0.0; values.len()]);
        squares(o, &RolloutsBuf { values, ..o.columns.clone() })
    });
    let mean: fn(Moments) -> f64 = |m| m.mean;
    for (name, returns, of) in [
        ("metrics.returns_mean", true, mean),
        ("metrics.values_mean", false, mean),
        ("metrics.values_min", false, |m| m.low),
        ("metrics.values_max", false, |m| m.high),
    ] {
        to.own(name, move |o| {
            let values = o.columns.values.as_deref().unwrap_or_default();
            let share = if name.ends_with("mean") { share(o) } else { 1.0 };
            moments(o, if returns { &o.credit.returns } else { values }, |m| of(m) * share)
        });
    }
    to.own("metrics.num_valid_samples", |o| Ok(Got::Number(o.spans().len() as f64, 0.0)));
    Ok(Plan::recipe(to))
}

/// Which sequences `sample_mask` keeps.
fn samples(inputs: &Inputs<'_>) -> Result<Vec<bool>, String> {
    let mask = inputs.optional("sample_mask", Inputs::whole::<u8>)?;
    let all = vec![true; inputs.shape()?.spans.len()];
    Ok(mask.map_or(all, |mask| mask.iter().map(|keep| *keep != 0).collect()))
}

fn policy(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let mut flag = |key: &str| Ok::<_, String>(config.boolean(key)? == Some(true));
    let (on_policy, by_sequence) =
        (flag("force_on_policy_ratio")?, flag("sequence_level_importance_ratios")?);
    let (cispo, reinforce) = (flag("use_cispo")?, flag("disable_ppo_ratio")?);
    let to_sampler = flag("use_on_policy_kl_approximation")?;
    let by_tokens = config.boolean("token_level_loss")? != Some(false);
    // No ratio is below 0.
    let low = config.required("ratio_clip_min")?.min(1.0);
    let high = config.required("ratio_clip_max")?;
    // CISPO's bounds apply to the weight itself.
    let weight = format!("{{ kind = \"cispo\", low = {:?}, high = {:?} }}", 1.0 - low, 1.0 + high);

    let preset = if on_policy { "mlperf_v6_1" } else { "nemo" };
    let mut to = Setup::new(Overlay::new(preset), Calls::Loss, POLICY, &[]);
    let aggregation = if by_tokens { "token-mean" } else { "seq-mean-token-mean" };
    to.recipe.word("aggregation.mode", aggregation);
    if cispo {
        to.recipe.set("gate", &weight);
    } else if reinforce && !on_policy {
        // Its bound is for ratios, and what it would bound here is below 0.
        config.ignore(&["ratio_clip_c"]);
        to.recipe.set("gate", "{ kind = \"reinforce\" }");
    } else {
        to.recipe.number("gate.clip_ratio_low", low);
        to.recipe.number("gate.clip_ratio_high", high);
        to.recipe.copy(config, &[("ratio_clip_c", "gate.clip_ratio_c")])?;
    }
    if by_sequence && !on_policy && !reinforce {
        to.recipe.word("ratio.level", "sequence");
        to.recipe.word("ratio.gradient", "mean");
    }
    let kept = samples(inputs)?;
    let (tokens, sequences) =
        (config.required("global_valid_toks")? as u64, config.required("global_valid_seqs")? as u64);
    to.counts = [Some(tokens), Some(sequences), Some(sequences.max(kept.len() as u64))];
    let used = config.boolean("use_importance_sampling_correction")? == Some(true);
    let kind = config.text("truncated_importance_sampling_type")?;
    let mut corrected = Overlay::new("nemo");
    for recipe in [&mut corrected, &mut to.recipe] {
        // The file's advantages pass through.
        recipe.word("advantage.estimator", "reward");
    }
    let correction = correction(config, kind, by_sequence)?;
    corrected.set("correction", &correction);
    if used {
        to.recipe.set("correction", &correction);
    } else {
        to.recipe.word("correction", "none");
    }

    let name = config.text("reference_policy_kl_type")?.unwrap_or("k3").to_owned();
    let coef = config.number("reference_policy_kl_penalty")?.unwrap_or(0.0);
    let coef = if config.boolean("use_kl_in_reward")? == Some(true) { 0.0 } else { coef };
    let mut clamp = |key: &str, default: f64| {
        if config.has(key) { config.number(key) } else { Ok(Some(default)) }
    };
    let clamps = [clamp("kl_input_clamp_value", 20.0)?, clamp("kl_output_clamp_value", 10.0)?];
    let weighting = if to_sampler { "through_ratio" } else { "score" };
    // Parts with their own ratio, tokens or counts are separate calls: rejection spares the KL.
    let apart = coef != 0.0 && (to_sampler || kind == Some("seq-mask-tis"));
    let mut part = Overlay::new("nemo");
    part.word("aggregation.mode", aggregation);
    if coef != 0.0 {
        let table = kl_table(&name, coef, clamps, weighting);
        part.set("kl", &table);
        if !apart {
            to.recipe.set("kl", table);
        }
    }
    let nll = config.number("positive_example_nll_weight")?.unwrap_or(0.0);
    let parts = Parts { kl: part.recipe()?, apart, to_sampler, nll };

    let of_sample = kept.clone();
    to.prepare = Some(Box::new(move |inputs, columns, _| {
        // The correction, too, is relative to the current policy.
        if on_policy {
            columns.logp_old = columns.logp.clone();
            inputs.ignore(if inputs.has("logp_old") { &["logp_old"] } else { &[] });
        }
        let rewards = inputs.optional("rewards", Inputs::floats)?;
        columns.rewards = Some(rewards.unwrap_or_else(|| vec![0.0; of_sample.len()]));
        for (span, _) in inputs.shape()?.spans.iter().zip(&of_sample).filter(|(_, kept)| !**kept) {
            columns.loss_mask.as_mut().ok_or("input `loss_mask` is missing")?[span.clone()].fill(0);
        }
        Ok(())
    }));
    for name in ["loss", "metrics.loss"] {
        let whole = parts.clone();
        to.own(name, move |o| whole.loss(o));
    }
    let whole = parts.clone();
    to.own("dloss_dlogp", move |o| {
        let mut sum = widen(&numbers::loss(o)?.coef);
        for part in whole.losses(o)? {
            sum.iter_mut().zip(&part.coef).for_each(|(sum, x)| *sum += f64::from(*x));
        }
        Ok(Got::All(sum))
    });
    let mut measure = Overlay::new("nemo");
    measure.set("kl", format_args!("{{ estimator = {name:?}, coef = 0.0 }}"));
    let mut ratio = Overlay::new("nemo");
    ratio.set("gate", weight);
    let mut open = Overlay::new("nemo");
    open.set("gate", "{ kind = \"cispo\", high = 1e38 }");
    for recipe in [&mut ratio, &mut open] {
        recipe.word("aggregation.mode", "token-sum");
    }
    if by_sequence && !on_policy && !reinforce {
        ratio.word("ratio.level", "sequence");
    }
    let logged = Logged {
        parts,
        kl: measure.recipe()?,
        weights: [ratio.recipe()?, open.recipe()?],
        correction: corrected.recipe()?,
        kind: kind.map(str::to_owned),
        counts: [tokens as f64, sequences as f64],
        kept,
        reinforce: reinforce && !on_policy,
    };
    metrics(&mut to, logged);
    Ok(Plan::recipe(to))
}

/// The weights on the losses, which NeMo logs as such even where they do not apply.
fn correction(config: &mut Config<'_>, kind: Option<&str>, by_sequence: bool) -> Result<String, String> {
    let high = config.number("truncated_importance_sampling_ratio")?.unwrap_or(f64::INFINITY);
    let low = config.number("truncated_importance_sampling_ratio_min")?.unwrap_or(0.0);
    let band = format!("low = {low:?}, high = {high:?}");
    let rule = match kind {
        None | Some("seq-mask-tis") => "rule = \"plain\"".into(),
        Some("tis") => format!("rule = \"truncate\", {band}"),
        Some("icepop") => format!("rule = \"mask\", {band}"),
        Some(kind) => return Err(format!("truncation {kind:?} is not known")),
    };
    let level = if by_sequence { "sequence" } else { "token" };
    let reject = match kind {
        Some("seq-mask-tis") => format!("{{ statistic = \"seq_mean_k1\", {band} }}"),
        _ => String::new(),
    };
    Ok(format!("{{ level = {level:?}, denominator = \"before\", {rule}, reject = [{reject}] }}"))
}
