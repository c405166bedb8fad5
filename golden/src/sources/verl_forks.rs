//! Losses from papers' forks of verl: Entropy-Mechanism, DARS and Stable-RL's DPPO; also DARS's schedule.
//!
//! Their `seq-mean-token-sum-norm` divides only by the horizon: a sum over tokens, and a scale.

use super::openrlhf::between;
use crate::inputs::Inputs;
use crate::numbers::{self, Got, metrics};
use crate::outcome::{Calls, Exception, Setup};
use crate::settings::{Config, Overlay};
use crate::sources::{OUTCOME, Plan, Request};
use lockstep::schedule::dars::{Dars, Deviation, Treatment};

#[rustfmt::skip]
const POLICY: &[&str] = &[
    "cu_seqlens", "cu_groups", "loss_mask", "logp_new", "logp_old", "logp_rollout", "seq_advantages",
    "is_weights",
];
const LOSS: &[&str] = &["loss", "dloss_dlogp"];

/// The ops of Entropy-Mechanism.
pub(crate) const ENTROPY: &[&str] =
    &["policy_loss_clip_cov", "policy_loss_kl_cov", "policy_loss_ppo_clip_higher"];

/// The ops of DARS.
pub(crate) const DARS: &[&str] = &["advantage_dars", "policy_loss_dars", "schedule"];

/// The ops of VESPO.
pub(crate) const VESPO: &[&str] = &["policy_loss_vespo"];

/// The ops of Stable-RL.
#[rustfmt::skip]
pub(crate) const DPPO: &[&str] = &[
    "policy_loss_dppo_binary_kl", "policy_loss_dppo_binary_kl_recompute", "policy_loss_dppo_binary_tv",
    "policy_loss_dppo_binary_tv_recompute", "policy_loss_dppo_topk_kl", "policy_loss_dppo_topk_tv",
    "policy_loss_pg_no_mask", "policy_loss_ppo", "policy_loss_ppo_recompute",
];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, .. }: Request<'_, '_>) -> Result<Plan, String> {
    let new = |preset| Setup::new(Overlay::new(preset), Calls::Loss, POLICY, LOSS);
    let mut to = match op {
        "schedule" => return schedule(config, inputs),
        "advantage_dars" => return advantage(config, inputs),
        "policy_loss_kl_cov" => {
            let mut to = new("kl_cov");
            // The code uses the smaller of the percentage and the number of tokens.
            let tokens = inputs.shape()?.live.iter().filter(|live| **live).count() as f64;
            to.recipe.number("gate.kl_cov_ratio", config.number("k_percent")?.map(|k| k.min(tokens) / 100.0));
            to.recipe.copy(config, &[("ppo_kl_coef", "gate.ppo_kl_coef")])?;
            to.own("ppo_kl_abs", |o| numbers::get(o, "metrics.ppo_kl"));
            to
        }
        "policy_loss_clip_cov" => {
            let mut to = new("clip_cov");
            let keys = [("clip_ratio", "gate.clip_cov_ratio"), ("clip_cov_lb", "gate.clip_cov_lb")];
            to.recipe.copy(config, &keys)?;
            to.recipe.copy(config, &[("clip_cov_ub", "gate.clip_cov_ub")])?;
            clipped(config, &mut to)?;
            to.skips.push(("pg_clipfrac", "the share of tokens without a gradient, and these are compared"));
            // Everything that may be drawn is taken.
            to.prepare = Some(Box::new(|_, columns, _| {
                columns.seed = Some(vec![0]);
                Ok(())
            }));
            to
        }
        "policy_loss_vespo" => {
            let mut to = new("vespo");
            // Correction weights enter the exponent, as the sampler does.
            to.recipe.word("gate.against", "old");
            // Logarithms of binary32 enter λ + k·ln W − λ·W, with W up to 1e8.
            to.steep = inputs.has("is_weights");
            let keys = [("k_pos", "gate.k_pos"), ("k_neg", "gate.k_neg")];
            to.recipe.copy(config, &keys)?;
            let keys = [("lambda_pos", "gate.lambda_pos"), ("lambda_neg", "gate.lambda_neg")];
            to.recipe.copy(config, &keys)?;
            to
        }
        "policy_loss_ppo_clip_higher" | "policy_loss_dars" => {
            let mut to = new("verl");
            to.recipe.word("gate.clip_ratio_c", "none");
            to.recipe.word("ratio.guard", "none");
            clipped(config, &mut to)?;
            to
        }
        _ => return stable(config),
    };
    let sequences = match op {
        "policy_loss_vespo" => Some("nonempty"),
        "policy_loss_clip_cov" | "policy_loss_kl_cov" | "policy_loss_ppo_clip_higher" => Some("all"),
        _ => None,
    };
    aggregation(config, &mut to, sequences)?;
    Ok(Plan::recipe(to))
}

fn clipped(config: &mut Config<'_>, to: &mut Setup) -> Result<(), String> {
    let keys = [("cliprange_low", "gate.clip_ratio_low"), ("cliprange_high", "gate.clip_ratio_high")];
    to.recipe.copy(config, &keys)?;
    to.own("pg_clipfrac", |o| Ok(Got::Number(metrics(o)?.clip_fraction, 0.0)));
    to.own("ppo_kl", |o| numbers::get(o, "metrics.ppo_kl"));
    Ok(())
}

/// `sequences` are those that a mean over sequences counts, if they are not the preset's.
fn aggregation(config: &mut Config<'_>, to: &mut Setup, sequences: Option<&str>) -> Result<(), String> {
    let horizon = config.number("horizon")?;
    let mode = match (config.text("aggregation")?, config.boolean("use_token_level_loss")?) {
        (Some(mode), None) => mode,
        (None, Some(true)) => "seq-mean-token-sum-norm",
        (None, Some(false)) => {
            to.recipe.word("aggregation.length", "at-least-one");
            to.recipe.word("aggregation.sequences", "all");
            "seq-mean-token-mean"
        }
        _ => return Err("config `aggregation` is missing".into()),
    };
    if mode == "seq-mean-token-sum-norm" {
        to.recipe.word("aggregation.mode", "token-sum");
        to.scale = 1.0 / horizon.ok_or("config `horizon` is missing")?;
    } else {
        to.recipe.word("aggregation.mode", mode);
    }
    // VESPO's fork leaves empty sequences out of both means.
    let other =
        mode == "seq-mean-token-sum" || (sequences, mode) == (Some("nonempty"), "seq-mean-token-mean");
    if let Some(sequences) = sequences.filter(|_| other) {
        to.recipe.word("aggregation.sequences", sequences);
    }
    Ok(())
}

/// DPPO: weight and test are relative to the sampling policy; the `_recompute` modes test against `logp_old`.
fn stable(config: &mut Config<'_>) -> Result<Plan, String> {
    let mode = config.required_text("loss_mode")?;
    let (preset, bounded) = match mode {
        "dppo_binary_tv" => ("dppo_tv", true),
        "dppo_binary_kl" => ("dppo_kl", true),
        "dppo_binary_tv_recompute" => ("dppo_tv_recompute", true),
        "dppo_binary_kl_recompute" => ("dppo_kl_recompute", true),
        "dppo_topk_tv" => ("dppo_topk_tv", true),
        "dppo_topk_kl" => ("dppo_topk_kl", true),
        "pg_no_mask" => ("cispo", false),
        // PPO's clip as a mask with a truncated weight relative to the sampler: MiniRL's gate.
        "ppo" | "ppo_recompute" => ("minirl", true),
        _ => return Err(format!("config `loss_mode` is {mode:?}")),
    };
    let tests_old = mode.ends_with("_recompute");
    let given = if mode.starts_with("dppo_topk") { mode.strip_prefix("dppo_") } else { None };
    let given = given.map(String::from);
    let mut to = Setup::new(Overlay::new(preset), Calls::Loss, POLICY, LOSS);
    let (low, high, c) =
        (config.number("clip_ratio_low")?, config.number("clip_ratio_high")?, config.number("clip_ratio_c")?);
    to.recipe.word("ratio.guard", "none");
    if bounded {
        to.recipe.number("gate.clip_ratio_low", low);
        to.recipe.number("gate.clip_ratio_high", high);
        to.recipe.number("gate.clip_ratio_c", c);
    } else {
        to.recipe.number("gate.high", c);
    }
    to.expects.extend(["token_kept", "metrics.pg_clipfrac", "metrics.pg_clipfrac_lower"]);
    to.skips.extend([
        ("token_kept", "where it is 0 the gradient is, and that is compared"),
        ("metrics.pg_clipfrac", "a fraction of what a test drops or a bound truncates, of one sign alone"),
        ("metrics.pg_clipfrac_lower", "the same of the other"),
    ]);
    // The code measures the distance to the sampler, after limiting log-ratios to at most 20.
    to.own("metrics.ppo_kl", |o| {
        let [new, rollout] =
            [&o.columns.logp, &o.columns.logp_rollout].map(|logp| logp.as_deref().unwrap_or_default());
        let limited: Vec<f32> =
            new.iter().zip(rollout).map(|(new, rollout)| new.min(rollout + 20.0)).collect();
        between(o, [&limited, rollout])
    });
    to.prepare = Some(Box::new(move |inputs, columns, _| {
        if !tests_old {
            columns.logp_old.clone_from(&columns.logp_rollout);
        }
        columns.divergence = given.as_deref().map(|name| inputs.floats(name)).transpose()?;
        Ok(())
    }));
    aggregation(config, &mut to, None)?;
    Ok(Plan::recipe(to))
}

/// A group of one gets 0, or the reward itself if every group has one member.
fn advantage(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let mut to = Setup::new(Overlay::new("grpo"), Calls::Advantages, OUTCOME, &["advantages"]);
    to.recipe.copy(config, &[("use_std", "advantage.norm_by_std"), ("epsilon", "advantage.eps")])?;
    let groups: Vec<u32> = inputs.whole("cu_groups")?;
    let alone = groups.windows(2).all(|group| group[1] - group[0] == 1);
    to.recipe.word("advantage.singleton", if alone { "raw_reward" } else { "zero" });
    Ok(Plan::recipe(to))
}

fn schedule(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let dars = Dars {
        rollouts: config.required("N")? as u32,
        most: config.required("N_max")? as u32,
        deviation: if config.boolean("std")? == Some(true) { Deviation::With } else { Deviation::Without },
        treatment: match config.text("function")? {
            Some("schedule_ET") => Treatment::Equal,
            Some("schedule_HW") => Treatment::HardnessWeighted,
            other => return Err(format!("config `function` is {other:?}")),
        },
    };
    let extra = inputs.numbers("accuracy")?.into_iter().map(|a| dars.extra(a).map(f64::from));
    let extra: Result<Vec<f64>, _> = extra.collect();
    let extra = extra.map_err(|e| e.to_string())?;
    let numbers = vec![("extra_rollouts", Got::All(extra))];
    let why = "fewer rollouts at most than there are: the code asks for a negative number, ours for none";
    let exception = (dars.most < dars.rollouts).then_some(Exception::Differs(why));
    Ok(Plan::Numbers("schedule::dars::Dars", numbers, exception))
}
