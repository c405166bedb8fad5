//! ROLL's policy losses, advantages, rewards, KL and aggregation.
//!
//! **Counts** come from outside: tokens and samples of the whole batch. `token-mean` ignores the mask, so
//! filters do not affect its policy term.

use super::over_tokens::{EQUAL, ROUNDED, Tokens, equal, gae, numbers, offset};
use super::roll_sampler::{Sampler, clipped_ratio, correction, counts, segments};
use crate::inputs::{Inputs, Shape};
use crate::numbers::{Got, widen};
use crate::outcome::{Calls, Exception, Outcome, Setup, text};
use crate::settings::{Config, Overlay};
use crate::sources::{KL, Plan, Request};
use crate::terms::largest;
use lockstep::core::advantage::Divisor;
use lockstep::ops::turns::{Turns, spread};
use lockstep::ops::whiten::{Weighting, WhitenParams};
use lockstep::ops::{self, whiten};
use lockstep::recipe::GateChoice;
use lockstep::{Advantage, Batch, Credit, Device, Recipe, Rollouts};

#[rustfmt::skip]
const POLICY: &[&str] = &[
    "cu_seqlens", "cu_groups", "loss_mask", "logp_new", "logp_old", "logp_ref", "logp_rollout", "entropy",
    "seq_advantages", "token_advantages", "difficulty",
];

/// The ops that this table covers.
#[rustfmt::skip]
pub(crate) const OPS: &[&str] = &[
    "advantage", "agg_loss", "kl", "policy_loss_cispo", "policy_loss_kimi15", "policy_loss_kl_entropy",
    "policy_loss_ppo", "policy_loss_ppo_dual_clip", "policy_loss_ppo_segment_ratio",
    "policy_loss_rlvr_sample_weights", "policy_loss_tis", "policy_loss_topr",
    "policy_loss_train_infer_filter", "policy_loss_train_infer_is_weight", "policy_loss_vanilla",
    "reward_norm", "train_infer_correction",
];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, device }: Request<'_, '_>) -> Result<Plan, String> {
    // A label from the generator.
    config.ignore(&["batch"]);
    match op {
        "advantage" => advantages(config, inputs, device),
        "agg_loss" => aggregated(config, inputs).map(Plan::recipe),
        "kl" => kl(config).map(Plan::recipe),
        "reward_norm" => rewards(config, inputs, device),
        "train_infer_correction" => correction(config, inputs, device),
        _ => policy(config, inputs, device),
    }
}

/// How losses are reduced: ROLL's `seq-mean-token-sum-norm` divides by the width alone.
struct Mean {
    mode: &'static str,
    scale: f64,
    counts: [Option<u64>; 3],
    width: Option<f64>,
}

fn mean(config: &mut Config<'_>) -> Result<Mean, String> {
    let name = config.required_text("loss_agg_mode")?;
    let width = config.number("horizon")?;
    let tokens = config.number("batch_num_tokens")?.map(|n| n as u64);
    let counts = [tokens, config.number("global_valid_samples")?.map(|n| n as u64), None];
    let mode = match name {
        "token-mean" => "token-mean",
        "seq-mean-token-sum" => "seq-mean-token-sum",
        "seq-mean-token-mean" => "seq-mean-token-mean",
        "seq-mean-token-sum-norm" => {
            let scale = 1.0 / width.ok_or("config `horizon` is missing")?;
            return Ok(Mean { mode: "token-sum", scale, counts, width });
        }
        _ => return Err(format!("config `loss_agg_mode` is {name:?}")),
    };
    Ok(Mean { mode, scale: 1.0, counts, width })
}

/// Losses −A·logp of a gate without a ratio, with logp = −1; without counts from outside, all samples count.
fn aggregated(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Setup, String> {
    let names = &["cu_seqlens", "cu_groups", "loss_mask"];
    let mut to = Setup::new(Overlay::new("roll"), Calls::Loss, names, &["loss"]);
    let mean = mean(config)?;
    to.recipe.word("aggregation.mode", mean.mode);
    to.recipe.set("gate", "{ kind = \"reinforce\" }");
    (to.scale, to.counts) = (mean.scale, mean.counts);
    let samples = inputs.shape()?.spans.len() as u64;
    to.counts[1] = to.counts[1].or(Some(samples));
    to.prepare = Some(Box::new(|inputs, columns, credit| {
        *credit = Credit::per_token(inputs.floats("x")?);
        columns.logp = Some(vec![-1.0; credit.advantage.len()]);
        let weights = inputs.optional("weights", Inputs::floats)?;
        credit.weights = weights.map(|weights| on_tokens(&weights, &inputs.shape()?)).transpose()?;
        Ok(())
    }));
    // The weight of each token's loss. `token-mean` gives masked tokens one too, where x is 0.
    to.own("dloss_dx", |o| {
        let credit = Credit { advantage: vec![-1.0; o.credit.advantage.len()], ..o.credit.clone() };
        let loss = o.recipe.loss(o.device, &o.columns.view(), &credit).map_err(text)?;
        Ok(Got::Live(widen(&loss.coef).into_iter().map(|x| x * o.setup.scale).collect()))
    });
    Ok(to)
}

fn on_tokens(values: &[f32], shape: &Shape) -> Result<Vec<f32>, String> {
    if values.len() != shape.spans.len() {
        return Err("not one number for each sequence".into());
    }
    Ok(shape.spans.iter().zip(values).flat_map(|(span, x)| vec![*x; span.len()]).collect())
}

/// The KL term alone. ROLL clamps k3 at 10.
fn kl(config: &mut Config<'_>) -> Result<Setup, String> {
    let name = config.required_text("kl_penalty")?;
    let clamp = if name == "k3" { ", clamp_out = 10.0" } else { "" };
    let mut to = Setup::new(Overlay::new("roll"), Calls::Loss, KL, &["kl", "dkl_dlogp"]);
    to.recipe.set("kl", format_args!("{{ estimator = {name:?}, coef = 1.0{clamp} }}"));
    to.recipe.word("aggregation.mode", "token-sum");
    Ok(to)
}

/// Rewards minus a mean, divided by a deviation + 1e-6, over the samples of a prompt or over all.
fn rewards(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let (mean, std) = (config.text("norm_mean_type")?, config.text("norm_std_type")?);
    let samples = config.required("n_sample")? as usize;
    let rewards = inputs.floats("rewards")?;
    if mean == Some("running") || std == Some("running") {
        return Ok(Plan::Missing("running moments of rewards"));
    }
    if (mean, std) == (None, Some("batch")) {
        inputs.ignore(&["cu_groups"]);
        let (divisor, eps) = (Divisor::Outside, 1e-6);
        let params = WhitenParams { weighting: Weighting::Sequences, centre: false, divisor, ddof: 1, eps };
        let offsets: Vec<u32> = (0..=rewards.len() as u32).collect();
        let batch = Batch::new(&offsets, &offsets, None).map_err(text)?;
        let scaled = whiten(device, &batch, Advantage::PerSequence(&rewards), &params).map_err(text)?;
        let got = vec![("rewards", Got::All(widen(&scaled)))];
        let constant = rewards.iter().all(|reward| *reward == rewards[0]);
        let exception = constant.then_some(Exception::Differs("a constant over 1e-6; ours is 0"));
        return Ok(Plan::Numbers("ops::whiten", got, exception));
    }
    let total = rewards.len();
    let mut to = Setup::new(Overlay::new("roll"), Calls::Advantages, &["rewards"], &[]);
    let members = match (mean, std) {
        (Some("group"), Some("group") | None) => samples,
        (Some("group"), Some("batch")) => {
            to.recipe.word("advantage.estimator", "grpo_batch");
            samples
        }
        // One group.
        (Some("batch"), Some("batch") | None) => total,
        (None, None) => {
            to.recipe.word("advantage.estimator", "reward");
            samples
        }
        // A deviation per group with a mean over something else: ROLL's shapes do not match.
        _ => return Err(format!("config `norm_mean_type` is {mean:?} with `norm_std_type` {std:?}")),
    };
    if mean.is_some() && std != Some("batch") || mean == Some("batch") {
        to.recipe.set("advantage.norm_by_std", std.is_some());
    }
    to.prepare = Some(Box::new(move |inputs, columns, _| {
        inputs.ignore(&["cu_groups"]);
        columns.cu_groups = Some((0..=total).step_by(members.max(1)).map(|at| at as u32).collect());
        Ok(())
    }));
    to.own("rewards", |o| Ok(Got::All(widen(&o.credit.advantage))));
    let deviate = if std == Some("group") { members } else { total };
    if std.is_some() && deviate == 1 {
        to.exception = Some(Exception::Differs(
            "the released code gives NaN for a group of one (torch's std of one sample); ours gives 0",
        ));
    }
    Ok(Plan::recipe(to))
}

/// Token advantages; time runs through masked tokens.
fn advantages(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let name = config.required_text("adv_estimator")?;
    let gamma = config.number("gamma")?.unwrap_or(1.0);
    let lambda = config.number("lambd")?.unwrap_or(1.0);
    let limit = config.number("advantage_clip")?;
    let (tokens, shape) = (Tokens::read(inputs)?, inputs.shape()?);
    let (all, live) = (tokens.unmasked()?, tokens.batch()?);
    // A deviation needs two tokens.
    let enough = shape.live.iter().filter(|live| **live).count() > 1;
    let whitened = |on: Option<bool>, values: Vec<f32>| {
        if !(enough && on == Some(true)) {
            return Ok(values);
        }
        whiten(device, &live, Advantage::PerToken(&values), &WhitenParams::VERL).map_err(text)
    };
    let read = |name: &str| {
        let values = inputs.floats(name)?.into_iter().zip(&shape.live);
        Ok::<_, String>(values.map(|(x, live)| if *live { x } else { 0.0 }).collect::<Vec<_>>())
    };
    let (rewards, whitens) = (read("token_rewards")?, config.boolean("whiten_rewards")?);
    let residue = enough && whitens == Some(true) && equal(&rewards, &tokens.mask);
    let mut exception = residue.then_some(EQUAL);
    let rewards = whitened(whitens, rewards)?;
    let mut value = 0.0;
    let (ours, advantages, returns) = match name {
        "gae" => {
            let values = read("values")?;
            value = largest(&values);
            let [advantages, returns] = gae(device, &all, [&rewards, &values], [gamma, lambda])?;
            ("ops::gae", advantages, returns)
        }
        "reinforce" | "grpo" | "gigpo" | "step_reinforce" => {
            let returns = ops::discounted_return(device, &all, &rewards, gamma).map_err(text)?;
            ("ops::discounted_return", returns.clone(), returns)
        }
        // A segment is a turn; its reward is that of its last token.
        "agentic_reinforce" => {
            let turns = segments(&shape);
            let last = |row: &[u32]| (row[0] as usize..row[1] as usize).rev().find(|i| shape.live[*i]);
            let of_turns: Vec<f32> =
                turns.windows(2).map(|row| last(row).map_or(0.0, |i| rewards[i])).collect();
            let roles = vec![0; of_turns.len()];
            let input = Turns { cu_turns: &turns, rewards: &of_turns, roles: &roles };
            let returns = ops::turn_return(device, &all, &input, gamma).map_err(text)?;
            let returns = spread(&live, &turns, &returns).map_err(text)?;
            ("ops::turn_return", returns.clone(), returns)
        }
        _ => return Err(format!("estimator {name:?} is not known")),
    };
    let whitens = config.boolean("whiten_advantages")?;
    if enough && whitens == Some(true) && offset(device, &live, &advantages, 3.0)? {
        exception = Some(if equal(&advantages, &tokens.mask) { EQUAL } else { ROUNDED });
    }
    let mut advantages = whitened(whitens, advantages)?;
    // The rounding to binary32 has the size of the values before the clip.
    let before = largest(&advantages);
    if let Some(limit) = limit {
        ops::limit(&mut advantages, [-limit as f32, limit as f32]).map_err(text)?;
    }
    let mut got = numbers([&advantages, &returns], value);
    got[0].1 = Got::Cancelling(Box::new(got[0].1.clone()), before);
    Ok(Plan::Numbers(ours, got, exception))
}

fn policy(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let length = config.boolean("length_loss_weight")? == Some(true);
    // Without the column the code ignores difficulty.
    let difficulty = config.boolean("difficulty_loss_weight")? == Some(true) && inputs.has("difficulty");
    let mut sampler = Sampler::read(config)?;
    let mut to = Setup::new(Overlay::new("roll"), Calls::Loss, POLICY, &[]);
    let mean = mean(config)?;
    (to.scale, to.counts, sampler.width) = (mean.scale, mean.counts, mean.width);
    let variant = config.text("pg_variant")?.unwrap_or("vanilla");
    let masked = gate(variant, config, &mut to)?;
    if variant == "topr" {
        topr(config, inputs, &mut to)?;
    } else {
        to.expects.extend(["loss", "dloss_dlogp"]);
    }

    let with_kl = config.boolean("use_kl_loss")? == Some(true);
    let coef = config.number("kl_loss_coef")?.unwrap_or(0.0);
    if with_kl {
        to.recipe.set("kl", format_args!("{{ estimator = \"k3\", coef = {coef:?}, clamp_out = 10.0 }}"));
    }
    let entropy = config.number("entropy_loss_coef")?.filter(|coef| *coef > 0.0);
    if let Some(coef) = entropy {
        to.recipe.set("entropy", format_args!("{{ coef = {coef:?} }}"));
        to.expects.push("dloss_dentropy");
    }

    if variant == "kimi15" && with_kl || variant == "topr" && (with_kl || entropy.is_some()) {
        return Ok(Plan::Missing("DRO beside a KL term, TOPR's two losses beside another one"));
    }
    // Filters do not affect the policy term of `token-mean`, but do affect its KL term.
    let filtered = mean.mode != "token-mean";
    if with_kl && sampler.rejects() && !filtered {
        return Ok(Plan::Missing("a filtered KL term beside a policy term that is not"));
    }
    let table = sampler.table(filtered);
    if sampler.corrects() {
        sampler.metrics(&mut to, inputs, device)?;
        if let Some(table) = &table {
            to.recipe.set("correction", table);
            // The file's advantages pass through.
            to.recipe.word("advantage.estimator", "reward");
        }
    }
    if length || difficulty {
        // TOPR's two losses are two calls.
        if variant == "topr" {
            return Ok(Plan::Missing("weights of samples with TOPR"));
        }
        if length {
            to.recipe.set("reward.weights.length", "[1.5, 0.5]");
        }
        if difficulty {
            to.recipe.set("reward.weights.difficulty", "[0.5, 2.0]");
        }
        // With a correction it is already set.
        if !(sampler.corrects() && table.is_some()) {
            to.recipe.word("advantage.estimator", "reward");
        }
    }
    let by_segments = config.text("ratio_type")? == Some("segment");
    if masked.is_some() && (by_segments || sampler.corrects()) {
        return Ok(Plan::Missing("CISPO under PPO's mask, beside weights or segments"));
    }
    if by_segments && sampler.rejects() {
        return Ok(Plan::Missing("a ratio of segments, beside filters"));
    }
    to.recipe.word("aggregation.mode", mean.mode);
    if by_segments {
        to.recipe.extend("roll_segment");
    }
    let device = device.clone();
    to.prepare = Some(Box::new(move |inputs, columns, credit| {
        let shape = inputs.shape()?;
        if let Some(band) = masked {
            credit.weights = Some(clipped_ratio(&device, &columns.view(), &shape, band)?);
            columns.logp_rollout = columns.logp.clone();
        }
        if sampler.corrects() && table.is_none() {
            credit.weights = Some(sampler.weights(&device, &columns.view(), &shape)?.weights);
            let kept = filtered.then(|| sampler.kept(&device, &columns.view(), &shape));
            credit.loss_mask = kept.transpose()?;
        }
        Ok(())
    }));
    Ok(Plan::recipe(to))
}

/// The policy term of a variant. CISPO under PPO's mask is MiniRL weighted by a clipped ratio; returns that
/// ratio's band.
fn gate(variant: &str, config: &mut Config<'_>, to: &mut Setup) -> Result<Option<[f32; 2]>, String> {
    let mut number = |key: &str, default: f64| config.number(key).map(|x| x.unwrap_or(default));
    let cispo = |low: f64, high: f64| format!("{{ kind = \"cispo\", low = {low:?}, high = {high:?} }}");
    match variant {
        "vanilla" => to.recipe.set("gate", "{ kind = \"reinforce\" }"),
        "kimi15" => {
            let tau = number("kimi15_tau", 0.1)?;
            to.recipe.set("gate", format_args!("{{ kind = \"dro\", beta = {tau:?} }}"));
        }
        "topr" => to.recipe.set("gate", cispo(0.0, 1.0)),
        "tis" => {
            let [low, high] = [number("tis_lower_bound", 0.0)?, number("tis_upper_bound", 1.0)?];
            to.recipe.set("gate", cispo(low, high));
        }
        "cispo" => {
            let [below, above] = [number("cispo_epsilon_low", 0.1)?, number("cispo_epsilon_high", 0.1)?];
            let [low, high] = [(1.0 - below).max(0.0), 1.0 + above];
            if config.boolean("cispo_use_unified_mask")? == Some(true) {
                let clip = format!("clip_ratio_low = {:?}, clip_ratio_high = {above:?}", below.min(1.0));
                to.recipe.set("gate", format_args!("{{ kind = \"minirl\", {clip} }}"));
                return Ok(Some([low as f32, high as f32]));
            }
            to.recipe.set("gate", cispo(low, high));
        }
        "ppo" => {
            let both = number("pg_clip", 0.2)?;
            let range = [number("pg_clip_low", 0.2)?, number("pg_clip_high", 0.2)?];
            let by_range = config.boolean("use_pg_clip_range")? == Some(true);
            let [low, high] = if by_range { range } else { [both; 2] };
            to.recipe.number("gate.clip_ratio_low", low.min(1.0));
            to.recipe.number("gate.clip_ratio_high", high);
            if config.boolean("dual_clip_loss")? == Some(true) {
                to.recipe.number("gate.clip_ratio_c", 1.0 + 2.0 * both);
            }
            to.own("metrics.ppo_ratio_high_clipfrac", |o| Ok(Got::Number(beyond(o)?[0], 0.0)));
            to.own("metrics.ppo_ratio_low_clipfrac", |o| Ok(Got::Number(beyond(o)?[1], 0.0)));
            to.own("metrics.ppo_ratio_clipfrac", |o| Ok(Got::Number(beyond(o)?.iter().sum(), 0.0)));
        }
        _ => return Err(format!("variant {variant:?} is not known")),
    }
    Ok(None)
}

/// ROLL counts ratios beyond a bound regardless of the advantage, including those that filters drop: computed
/// as if all tokens had gained, and as if all had lost.
fn beyond(o: &Outcome<'_>) -> Result<[f64; 2], String> {
    let recipe = Recipe { kl: None, entropy: None, ..o.recipe.clone() };
    let one = |advantage: f32| {
        let credit = Credit::per_token(vec![advantage; o.shape.live.len()]);
        let rollouts = Rollouts { counts: None, ..o.columns.view() };
        let loss = recipe.loss(o.device, &rollouts, &credit).map_err(text)?;
        loss.metrics.ok_or_else(|| "no metrics came back".to_string())
    };
    let (gained, lost) = (one(1.0)?, one(-1.0)?);
    let share = gained.tokens as f64 / counts(o)?.tokens as f64;
    Ok([gained.clip_fraction_high * share, lost.clip_fraction_low * share])
}

/// Two losses: one without a ratio for samples that scored, one for the others with each token's ratio, at
/// most 1.
fn topr(config: &mut Config<'_>, inputs: &Inputs<'_>, to: &mut Setup) -> Result<(), String> {
    let good = config.number("topr_positive_weight")?.unwrap_or(1.0);
    let bad = config.number("topr_negative_weight")?.unwrap_or(1.0);
    let scored = inputs.floats("scores")?.iter().map(|score| f32::from(*score > 0.0)).collect::<Vec<_>>();
    let scored = on_tokens(&scored, &inputs.shape()?)?;
    let both = move |o: &Outcome<'_>| {
        let view = o.columns.view();
        let left = o.credit.loss_mask.as_deref().or(view.loss_mask).unwrap_or_default();
        let part = |gate, weight: f64, own: f32| {
            let mask = left.iter().zip(&scored).map(|(left, scored)| left & u8::from(*scored == own));
            let credit = Credit { loss_mask: Some(mask.collect()), ..o.credit.clone() };
            let loss = Recipe { gate, ..o.recipe.clone() }.loss(o.device, &view, &credit).map_err(text)?;
            Ok::<_, String>((weight * o.setup.scale, loss))
        };
        Ok::<_, String>([part(GateChoice::Reinforce {}, good, 1.0)?, part(o.recipe.gate, bad, 0.0)?])
    };
    let gradients = both.clone();
    to.own("loss", move |o| {
        let parts = both(o)?;
        let terms = parts.iter().map(|(w, part)| w * part.row_loss.iter().map(|l| l.abs()).sum::<f64>());
        let sum = parts.iter().map(|(w, part)| part.loss.map_or(f64::NAN, |loss| w * loss));
        Ok(Got::Number(sum.sum(), terms.sum()))
    });
    to.own("dloss_dlogp", move |o| {
        let [a, b] = gradients(o)?.map(|(w, part)| widen(&part.coef).into_iter().map(move |x| w * x));
        Ok(Got::All(a.zip(b).map(|(a, b)| a + b).collect()))
    });
    Ok(())
}
