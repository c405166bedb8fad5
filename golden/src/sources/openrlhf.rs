//! OpenRLHF's ops and settings, as recipes; its advantages as the ops they consist of.

use super::over_tokens::{ROUNDED, Tokens, gae, numbers as both, offset, penalised};
use crate::inputs::Inputs;
use crate::numbers::{self, Got};
use crate::outcome::{Calls, Exception, Outcome, Setup, text};
use crate::settings::{Config, Overlay};
use crate::sources::{KL, POLICY, Plan, Request, VALUE};
use crate::terms::largest;
use lockstep::core::advantage::Divisor;
use lockstep::core::kl::{Kl, KlFormula};
use lockstep::ops::correction::{mean_abs_log_ratio, mismatch_stats};
use lockstep::ops::whiten::WhitenParams;
use lockstep::ops::{self, whiten};
use lockstep::{Advantage, Device, Rollouts};

const REWARDS: &[&str] = &["cu_seqlens", "cu_groups", "loss_mask", "rewards", "logp_old", "logp_ref"];

/// The ops that this table covers.
#[rustfmt::skip]
pub(crate) const OPS: &[&str] = &[
    "advantage_dr_grpo", "advantage_gae", "advantage_group_norm", "advantage_reinforce",
    "advantage_reinforce_baseline", "advantage_rloo", "kl", "policy_loss_gspo", "policy_loss_ppo",
    "policy_loss_ppo_dual_clip", "policy_loss_ppo_vllm_icepop", "policy_loss_ppo_vllm_seq_mask_tis",
    "policy_loss_ppo_vllm_tis", "value_loss",
];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, device }: Request<'_, '_>) -> Result<Plan, String> {
    // A label from the generator.
    config.ignore(&["batch"]);
    match op {
        "kl" => kl(config),
        "value_loss" => value(config).map(Plan::recipe),
        _ if op.starts_with("policy_loss_") => policy(config).map(Plan::recipe),
        _ if op.starts_with("advantage_") => advantages(config, inputs, device),
        _ => Err(format!("op {op} is not in the table of OpenRLHF")),
    }
}

/// The KL term alone (advantages are 0), clamped under every name. Near 0, OpenRLHF's k3 is what binary32
/// leaves of e^u − 1 − u, and its gradient what it leaves of 1 − e^u.
fn kl(config: &mut Config<'_>) -> Result<Plan, String> {
    let name = config.text("kl_estimator")?.unwrap_or("k1");
    let mut to = Setup::new(Overlay::new("openrlhf"), Calls::Loss, KL, &[]);
    to.recipe.set("kl", format_args!("{{ estimator = {name:?}, coef = 1.0, clamp_out = 10.0 }}"));
    to.recipe.word("aggregation.mode", "token-sum");
    to.own("kl", |o| numbers::get(o, "kl").map(Got::double));
    to.own("dkl_dlogp", |o| numbers::get(o, "dkl_dlogp").map(Got::double));
    Ok(Plan::recipe(to))
}

/// Sets the mode under `key`, and the trainer's counts in place of the batch's own. Returns its factor.
fn aggregation(config: &mut Config<'_>, to: &mut Setup, key: &str, of_tokens: bool) -> Result<f64, String> {
    let ranks = config.number("dp_size")?.unwrap_or(1.0);
    let (tokens, samples) = (config.number("batch_num_tokens")?, config.number("global_batch_size")?);
    to.recipe.word(key, if of_tokens { "token-mean" } else { "seq-mean-token-mean" });
    let count = if of_tokens { tokens } else { samples };
    to.counts[usize::from(!of_tokens)] = count.map(|count| count as u64);
    Ok(if count.is_some() { ranks } else { 1.0 })
}

fn policy(config: &mut Config<'_>) -> Result<Setup, String> {
    let by_sequence = config.text("policy_loss_type")? == Some("gspo");
    let preset = if by_sequence { "openrlhf_gspo" } else { "openrlhf" };
    let mut to = Setup::new(Overlay::new(preset), Calls::Loss, POLICY, &["loss", "dloss_dlogp"]);
    // A ratio is never below 0.
    to.recipe.number("gate.clip_ratio_low", config.number("clip_eps_low")?.map(|low| low.min(1.0)));
    to.recipe
        .copy(config, &[("clip_eps_high", "gate.clip_ratio_high"), ("dual_clip", "gate.clip_ratio_c")])?;
    let of_tokens = config.boolean("token_level_loss")?.unwrap_or(true) && !by_sequence;
    to.scale = aggregation(config, &mut to, "aggregation.mode", of_tokens)?;

    let corrected = config.boolean("enable_vllm_is_correction")? == Some(true);
    let band = config.numbers("vllm_is_truncated_threshold")?;
    let kind = config.text("vllm_is_correction_type")?.unwrap_or("tis");
    let mut against_rollout = false;
    if by_sequence {
        // Not clamped, and differentiated as is; with a correction it is the ratio to the sampler.
        to.recipe.word("ratio.guard", "none");
        to.recipe.word("ratio.gradient", "mean");
        against_rollout = corrected;
    } else if corrected {
        let Some([low, high]) = band.as_deref() else {
            return Err("config `vllm_is_truncated_threshold` is not two numbers".into());
        };
        let weights = match kind {
            "tis" => format!("rule = \"truncate\", low = {low:?}, high = {high:?}"),
            "icepop" => format!("rule = \"mask\", low = {low:?}, high = {high:?}"),
            "seq-mask-tis" => {
                to.recipe.extend("openrlhf_seq_mask_tis");
                let band = format!("low = {low:?}, high = {high:?}");
                format!("rule = \"plain\", reject = [{{ statistic = \"seq_mean_k1\", {band} }}]")
            }
            _ => return Err(format!("config `vllm_is_correction_type` is {kind:?}")),
        };
        to.recipe
            .set("correction", format_args!("{{ level = \"token\", {weights}, denominator = \"before\" }}"));
        // The file's advantages pass through.
        to.recipe.word("advantage.estimator", "reward");
        to.own("metrics.vllm_kl", |o| distance(o, |view| [view.logp_old, view.logp_rollout]));
    }
    to.own("metrics.clip_ratio", |o| Ok(Got::Number(numbers::metrics(o)?.clip_fraction, 0.0)));
    if against_rollout {
        // The KL is still that of the update: its column must stay apart from the ratio's.
        to.prepare = Some(Box::new(|_, columns, _| {
            columns.logp_latest = columns.logp_old.take();
            columns.logp_old = columns.logp_rollout.clone();
            Ok(())
        }));
        to.own("metrics.ppo_kl", |o| distance(o, |view| [view.logp, view.logp_latest]));
    } else {
        // Not clamped, whatever the ratio.
        to.own("metrics.ppo_kl", |o| distance(o, |view| [view.logp, view.logp_old]));
    }
    Ok(to)
}

/// Mean of b − a over live tokens.
fn distance(
    o: &Outcome<'_>,
    of: impl for<'v> Fn(&Rollouts<'v>) -> [Option<&'v [f32]>; 2],
) -> Result<Got, String> {
    let view = o.columns.view();
    between(o, of(&view).map(Option::unwrap_or_default))
}

/// The same of any two policies.
pub(super) fn between(o: &Outcome<'_>, [a, b]: [&[f32]; 2]) -> Result<Got, String> {
    let batch = o.columns.batch().map_err(text)?;
    let kl = mismatch_stats(o.device, &batch, a, b, f32::INFINITY).map_err(text)?.kl_k1;
    Ok(Got::Number(kl, mean_abs_log_ratio(&batch, a, b).map_err(text)?))
}

fn value(config: &mut Config<'_>) -> Result<Setup, String> {
    let mut to = Setup::new(Overlay::new("openrlhf"), Calls::Loss, VALUE, &["loss", "dloss_dvalue"]);
    let of_tokens = config.boolean("token_level_loss")?.unwrap_or(true);
    let scale = aggregation(config, &mut to, "value.aggregation.mode", of_tokens)?;
    to.recipe.number("value.coef", scale);
    to.recipe.copy(config, &[("clip_eps", "value.cliprange_value")])?;
    Ok(to)
}

/// Group baselines, then the clip, the KL penalty, returns and whitening, one op after the other: no recipe
/// has this order. Masked tokens are time without rewards or values.
fn advantages(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let name = config.required_text("estimator")?;
    let of_group = !matches!(name, "gae" | "reinforce");
    // The trainer sets it to 1 for group estimators.
    let gamma = config.number("gamma")?.filter(|_| !of_group).unwrap_or(1.0);
    let lambda = config.number("lambd")?.unwrap_or(1.0);
    let coef = config.number("kl.init_coef")?.unwrap_or(0.0).max(0.0);
    let estimator = match config.text("kl.estimator")?.unwrap_or("k1") {
        "k1" => KlFormula::K1,
        "k2" => KlFormula::K2,
        "k3" => KlFormula::K3,
        other => return Err(format!("config `kl.estimator` is {other:?}")),
    };
    let kl = Kl { clamp_out: 10.0, ..Kl::new(estimator) };
    let clip = config.numbers("reward.clip_range")?;
    let by_std = config.boolean("no_std_norm")? != Some(true);
    let alone = config.number("n_samples_per_prompt")? == Some(1.0);

    let mut recipe = Overlay::new("openrlhf");
    match name {
        "gae" | "reinforce" => recipe.word("advantage.estimator", "reward"),
        "rloo" => recipe.word("advantage.estimator", "rloo"),
        "reinforce_baseline" | "dr_grpo" => {
            recipe.set("advantage.norm_by_std", false);
            recipe.word("advantage.singleton", "zero");
        }
        "group_norm" => {}
        _ => return Err(format!("estimator {name:?} is not known")),
    }
    if alone && matches!(name, "rloo" | "group_norm") {
        let mut to = Setup::new(recipe, Calls::Advantages, REWARDS, &["advantages", "returns"]);
        to.exception =
            Some(Exception::Refused("singleton", "NaN for a group of one, which Lockstep refuses"));
        return Ok(Plan::recipe(to));
    }
    let tokens = Tokens::read(inputs)?;
    let (all, live) = (tokens.unmasked()?, tokens.batch()?);
    let mut rewards = inputs.floats("rewards")?;
    let mut shaped = |recipe: &Overlay| -> Result<(), String> {
        let batch = tokens.rollouts(&rewards);
        rewards = recipe.recipe()?.advantages(device, &batch).map_err(text)?.advantage;
        Ok(())
    };
    if of_group {
        shaped(&recipe)?;
    }
    if let Some(clip) = clip {
        let mut clipped = Overlay::new("openrlhf");
        clipped.word("advantage.estimator", "reward");
        clipped.set("reward.clip", format_args!("{clip:?}"));
        shaped(&clipped)?;
    }
    let rewards = penalised(device, &live, inputs, tokens.on_last_live(&rewards), (kl, coef))?;
    let mut value = 0.0;
    let (ours, advantages, returns) = if name == "gae" {
        let values: Vec<f32> = inputs.floats("values")?;
        let values: Vec<f32> =
            values.iter().zip(&tokens.mask).map(|(v, live)| if *live != 0 { *v } else { 0.0 }).collect();
        let [advantages, returns] = gae(device, &all, [&rewards, &values], [gamma, lambda])?;
        value = largest(&values);
        ("ops::gae", advantages, returns)
    } else {
        let returns = ops::discounted_return(device, &all, &rewards, gamma).map_err(text)?;
        ("ops::discounted_return", returns.clone(), returns)
    };
    let centred = matches!(name, "gae" | "reinforce" | "reinforce_baseline");
    let rounded = centred && offset(device, &live, &advantages, 3.0)?;
    let advantages = if centred {
        let divisor = if by_std { Divisor::Floor } else { Divisor::One };
        let params = WhitenParams { divisor, ..WhitenParams::NEMO };
        whiten(device, &live, Advantage::PerToken(&advantages), &params).map_err(text)?
    } else {
        advantages
    };
    // The penalty is what binary32 cancellation leaves of k3.
    let penalty_cancels = coef > 0.0 && estimator == KlFormula::K3;
    let held = |got: Got| if penalty_cancels { got.double() } else { got };
    let got = both([&advantages, &returns], value).into_iter().map(|(name, got)| (name, held(got))).collect();
    Ok(Plan::Numbers(ours, got, rounded.then_some(ROUNDED)))
}
