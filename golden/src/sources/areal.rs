//! AReaL's policy losses except those that reject sequences, its KL and its value loss.
//!
//! `logp_old` is the proximal policy and `logp_rollout` the sampling one; without rejection it enters no
//! weight.

use crate::inputs::Inputs;
use crate::numbers::{self, Got, metrics};
use crate::outcome::{Calls, Setup};
use crate::settings::{Config, Overlay};
use crate::sources::{KL, POLICY, Plan, Request, VALUE};
use serde_json::Value;

/// The ops that this table covers.
#[rustfmt::skip]
pub(crate) const OPS: &[&str] = &[
    "kl", "policy_loss_decoupled", "policy_loss_gspo", "policy_loss_m2po", "policy_loss_ppo",
    "policy_loss_sapo", "value_loss",
];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, .. }: Request<'_, '_>) -> Result<Plan, String> {
    // A label from the generator.
    config.ignore(&["batch"]);
    match op {
        "kl" => kl(config),
        "value_loss" => value(config),
        _ => policy(op, config, inputs),
    }
}

/// The KL term alone, in the direction of the code's k3: e^u − 1 − u with u = logp_ref − logp.
fn kl(config: &mut Config<'_>) -> Result<Plan, String> {
    let name = config.required_text("kl_estimator")?;
    let clamp = if config.boolean("apply_clamp")? == Some(true) { ", clamp_out = 10.0" } else { "" };
    let mut to = Setup::new(Overlay::new("areal"), Calls::Loss, KL, &[]);
    to.recipe.word("correction", "none");
    to.recipe.set("kl", format_args!("{{ estimator = {name:?}, coef = 1.0{clamp} }}"));
    to.recipe.word("aggregation.mode", "token-sum");
    // In binary32 the code's k3 consists of cancellation error.
    to.own("kl", |o| numbers::get(o, "kl").map(Got::double));
    to.own("dkl_dlogp", |o| numbers::get(o, "dkl_dlogp").map(Got::double));
    Ok(Plan::recipe(to))
}

fn policy(op: &str, config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let sequences = config.text("importance_sampling_level")? == Some("sequence");
    let sapo = op == "policy_loss_sapo";
    let moment = config.number("m2_threshold")?;
    let preset = match (sapo, sequences) {
        _ if moment.is_some() => "m2po",
        (true, _) => "areal_sapo",
        (false, true) => "areal_gspo",
        (false, false) => "areal",
    };
    let mut to = Setup::new(Overlay::new(preset), Calls::Loss, POLICY, &["loss", "dloss_dlogp"]);
    let how = match moment {
        Some(moment) => format!("m2_threshold = {moment:?}"),
        None => "denominator = \"before\"".into(),
    };
    match config.take("rejection_sampling") {
        Some(rejection) => corrected(rejection, &how, &mut to)?,
        None if moment.is_some() => {
            to.recipe.set("correction", format_args!("{{ level = \"one\", rule = \"plain\", {how} }}"));
            passes_through(&mut to);
        }
        None if preset == "areal" => to.recipe.extend("areal_decoupled"),
        None => to.recipe.word("correction", "none"),
    }
    if moment.is_some() {
        let why = "of the tokens that M2PO leaves; ours is of all";
        to.skips.push(("metrics.filtered_fraction", why));
        to.own("m2po_loss_mask", |o| {
            let kept = o.credit.loss_mask.as_ref().ok_or("no loss mask came back")?;
            Ok(Got::Live(kept.iter().map(|kept| f64::from(*kept)).collect()))
        });
    }
    if sequences {
        to.recipe.word("ratio.level", "sequence");
        to.recipe.word("ratio.gradient", "mean");
        if inputs.has("token_advantages") {
            to.recipe.word("ratio.advantage", "sequence_mean");
        }
    }
    if sapo {
        config.ignore(&["use_sapo_loss"]);
        let keys = [("sapo_tau_pos", "gate.tau_pos"), ("sapo_tau_neg", "gate.tau_neg")];
        to.recipe.copy(config, &keys)?;
        to.exception = super::verl::saturated(inputs)?;
        return Ok(Plan::recipe(to));
    }
    config.ignore(&["use_decoupled_loss"]);
    let low = config.number("eps_clip")?;
    to.recipe.number("gate.clip_ratio_low", low);
    to.recipe.number("gate.clip_ratio_high", config.number("eps_clip_higher")?.or(low));
    to.recipe.copy(config, &[("c_clip", "gate.clip_ratio_c")])?;
    to.own("metrics.clip_ratio", |o| Ok(Got::Number(metrics(o)?.clip_fraction, 0.0)));
    to.own("metrics.dual_clip_ratio", |o| Ok(Got::Number(metrics(o)?.clip_fraction_dual, 0.0)));
    Ok(Plan::recipe(to))
}

/// Passes the file's advantages through.
fn passes_through(to: &mut Setup) {
    to.recipe.word("advantage.estimator", "reward");
    to.recipe.word("advantage.whiten", "none");
}

/// Token-level weights relative to the sampler, within a band of the ratio.
fn corrected(rejection: &Value, how: &str, to: &mut Setup) -> Result<(), String> {
    let word = |key: &str| rejection[key].as_str().unwrap_or_default();
    if word("level") != "token" || word("metric") != "ratio" {
        return Err(format!("config `rejection_sampling` is {rejection}: expected tokens by their ratio"));
    }
    let rule = if word("action") == "mask" { "mask" } else { "truncate" };
    if rule == "mask" {
        let why = "of the tokens that are kept; ours counts those of weight 0 too";
        to.skips.extend([("metrics.clip_ratio", why), ("metrics.dual_clip_ratio", why)]);
    }
    let bound = |key: &str, name: &str| {
        rejection[key].as_f64().map_or_else(String::new, |bound| format!("{name} = {bound:?}, "))
    };
    let band = bound("lower", "low") + &bound("upper", "high");
    to.recipe.set("correction", format_args!("{{ level = \"token\", rule = {rule:?}, {band}{how} }}"));
    passes_through(to);
    to.own("behave_imp_weight", |o| numbers::get(o, "is_weights"));
    to.own("metrics.filtered_fraction", |o| numbers::get(o, "metrics.rollout_is_oob_ratio"));
    Ok(())
}

fn value(config: &mut Config<'_>) -> Result<Plan, String> {
    // mse or huber; only huber has a δ.
    config.ignore(&["loss_fn_type"]);
    let mut to =
        Setup::new(Overlay::new("areal"), Calls::Loss, VALUE, &["loss", "dloss_dvalue", "clip_mask"]);
    to.recipe.word("correction", "none");
    to.recipe.copy(config, &[("value_eps_clip", "value.cliprange_value")])?;
    to.recipe.copy(config, &[("huber_delta", "value.huber_delta")])?;
    to.skips.push(("clip_mask", "where it is 1 the gradient is 0, and that is compared"));
    Ok(Plan::recipe(to))
}
