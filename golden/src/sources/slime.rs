//! slime's ops and settings, as recipes; its token advantages as the ops they consist of.
//!
//! **Outside of a recipe.** A mean over samples is divided by `step_global_batch_size`, the column `counts`,
//! and multiplied by the number of micro-batches on all ranks, a scale. Metrics are sums over samples of
//! per-sample means, or sums over tokens: here those of one sample at a time. Samples of one rollout share a
//! denominator, so they are treated as one sequence.

use super::over_tokens::{Tokens, gae, numbers as both, offset, penalised};
use crate::inputs::Inputs;
use crate::numbers::{self, Got, total, widen};
use crate::outcome::{Calls, Exception, Outcome, Setup, text};
use crate::settings::{Config, Overlay};
use crate::sources::{OUTCOME, Plan, ROLLOUT, Request, VALUE};
use crate::terms::{self, largest};
use lockstep::core::kl::{Kl, KlFormula};
use lockstep::core::policy_loss::SequenceRule;
use lockstep::ops::correction::mean_abs_log_ratio;
use lockstep::ops::whiten::WhitenParams;
use lockstep::ops::{self, whiten};
use lockstep::recipe::{AggregationMode, KlChoice, KlEstimator, KlWeighting, WeightRule};
use lockstep::{Advantage, Batch, Credit, Device, Metrics, Recipe, Rollouts, RolloutsBuf};

#[rustfmt::skip]
const POLICY: &[&str] = &[
    "cu_seqlens", "cu_groups", "loss_mask", "logp_new", "logp_old", "logp_ref", "logp_rollout", "entropy",
    "seq_advantages", "token_advantages",
];
const KL: &[&str] = &["cu_seqlens", "cu_groups", "loss_mask", "logp_new", "logp_old", "logp_ref"];
const LOSS: &[&str] = &["loss", "dloss_dlogp"];

/// The ops that this table covers.
#[rustfmt::skip]
pub(crate) const OPS: &[&str] = &[
    "advantage_grpo_broadcast", "advantage_ppo_gae", "advantage_reinforce_plus_plus",
    "advantage_reinforce_plus_plus_baseline", "chunked_gae", "kl", "kl_unbiased", "off_policy_sequence_mask",
    "opsm_mask", "policy_loss_cispo", "policy_loss_dual_clip", "policy_loss_entropy", "policy_loss_grpo",
    "policy_loss_grpo_shared_rollouts", "policy_loss_gspo", "policy_loss_icepop", "policy_loss_kl_loss",
    "policy_loss_kl_loss_unbiased", "policy_loss_opsm", "policy_loss_rollout_logprobs", "policy_loss_tis",
    "policy_losses", "rewards_normalization", "tis_icepop", "value_loss",
];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, device }: Request<'_, '_>) -> Result<Plan, String> {
    // A label from the generator.
    config.ignore(&["batch"]);
    let setup = match op {
        "advantage_grpo_broadcast" => broadcast(config, inputs, device)?,
        "rewards_normalization" => group_rewards(config, inputs)?,
        "kl" | "kl_unbiased" => return kl(config, inputs),
        "policy_losses" => token_losses(config)?,
        "tis_icepop" => weights(config)?,
        "value_loss" => value(config)?,
        "chunked_gae" => return chunked_gae(config, inputs, device),
        "off_policy_sequence_mask" | "opsm_mask" => return sequence_mask(op, config, inputs, device),
        _ if op.starts_with("advantage_") => return advantages(config, inputs, device),
        _ if op.starts_with("policy_loss_") => return policy(config, inputs),
        _ => return Err(format!("op {op} is not in the table of slime")),
    };
    Ok(Plan::recipe(setup))
}

/// slime whitens by E[x²] − E[x]² in binary32.
const CANCELS: Exception = Exception::Differs(
    "slime's variance, E[x²] − E[x]² in binary32, cancels: the mean is beyond a deviation",
);

/// Rewards, already normalised, for all tokens of a response.
fn broadcast(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Setup, String> {
    // This estimator has no penalty, whatever the coefficient.
    config.ignore(&["advantage_estimator", "kl_coef"]);
    let mut to = Setup::new(Overlay::new("slime"), Calls::Advantages, OUTCOME, &["advantages"]);
    to.recipe.word("advantage.estimator", "reward");
    if config.boolean("normalize_advantages")? == Some(true) {
        to.recipe.word("advantage.whiten", "verl");
        let tokens = Tokens::read(inputs)?;
        let each = tokens.on_all(&inputs.floats("rewards")?);
        to.exception = offset(device, &tokens.batch()?, &each, 1.0)?.then_some(CANCELS);
    }
    to.prepare = Some(Box::new(|inputs, _, _| {
        inputs.ignore(&["logp_old", "logp_ref"]);
        Ok(())
    }));
    to.own("returns", |o| {
        let mut recipe = o.recipe.clone();
        recipe.advantage.whiten = None;
        let credit = recipe.advantages(o.device, &o.columns.view()).map_err(text)?;
        let each = o.spans().iter().zip(credit.advantage);
        Ok(Got::Live(each.flat_map(|(span, x)| vec![f64::from(x); span.len()]).collect()))
    });
    Ok(to)
}

/// `n_samples_per_prompt` consecutive rewards form a group if it divides their number; otherwise all form
/// one.
fn group_rewards(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Setup, String> {
    let by_std = config.boolean("grpo_std_normalization")?.unwrap_or(true);
    let with_std = config.text("advantage_estimator")? != Some("reinforce_plus_plus_baseline") && by_std;
    let members = config.required("n_samples_per_prompt")?;
    let prompts = config.required("rollout_batch_size")?;
    let rewards = inputs.floats("rewards")?.len();
    let whole = rewards as f64 == members * prompts;
    let members = if whole { members as usize } else { rewards };

    let mut to = Setup::new(Overlay::new("slime"), Calls::Advantages, &["rewards"], &[]);
    to.recipe.set("advantage.norm_by_std", with_std);
    to.prepare = Some(Box::new(move |inputs, columns, _| {
        inputs.ignore(&["cu_groups"]);
        columns.cu_groups = Some((0..=rewards).step_by(members.max(1)).map(|at| at as u32).collect());
        Ok(())
    }));
    to.own("rewards", |o| Ok(Got::All(widen(&o.credit.advantage))));
    if members == 1 && with_std {
        to.exception = Some(Exception::Differs(
            "NaN for a group of one, whose deviation slime's arguments turn off: that gives 0",
        ));
    }
    Ok(to)
}

/// slime clamps under a single name only: the estimate rather than the log-ratio, and after an importance
/// weight.
fn estimator(name: &str) -> Result<Kl, String> {
    Ok(match name {
        "k1" => Kl::new(KlFormula::K1),
        "k2" => Kl::new(KlFormula::K2),
        "k3" => Kl::new(KlFormula::K3),
        "low_var_kl" => Kl { clamp_out: Kl::K3_OUT, ..Kl::new(KlFormula::K3) },
        _ => return Err(format!("config `kl_loss_type` is {name:?}")),
    })
}

/// The estimator as a recipe table.
fn kl_table(config: &mut Config<'_>, coef: f64) -> Result<String, String> {
    let name = config.text("kl_loss_type")?.unwrap_or("k1");
    let kl = estimator(name)?;
    let name = if kl.estimator == KlFormula::K3 { "k3" } else { name };
    let clamp =
        if kl.clamp_out.is_finite() { format!(", clamp_out = {:?}", kl.clamp_out) } else { String::new() };
    let unbiased = config.boolean("use_unbiased_kl")? == Some(true);
    let weighted = if unbiased { ", importance_weighted = \"through_ratio\"" } else { "" };
    Ok(format!("{{ estimator = {name:?}, coef = {coef:?}{clamp}{weighted} }}"))
}

/// The KL term alone: advantages are 0. Near 0, slime's k3 is what binary32 leaves of e^u − 1 − u, and its
/// gradient what it leaves of 1 − e^u.
fn kl(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let table = kl_table(config, 1.0)?;
    let mut to = Setup::new(Overlay::new("slime"), Calls::Loss, KL, &[]);
    to.recipe.set("kl", table);
    to.exception = steep_k3(&to.recipe.recipe()?, inputs)?;
    to.recipe.word("aggregation.mode", "token-sum");
    to.own("kl", |o| numbers::get(o, "kl").map(Got::double));
    to.own("dkl_dlogp", |o| numbers::get(o, "dkl_dlogp").map(Got::double));
    Ok(Plan::recipe(to))
}

/// The difference of a k3 far above 0, without clamps, whose gradient flows through the ratio too.
pub(super) fn steep_k3(recipe: &Recipe, inputs: &Inputs<'_>) -> Result<Option<Exception>, String> {
    let through_ratio = |kl: &KlChoice| {
        let clamped = kl.clamp_in.or(kl.clamp_out).is_some();
        !clamped && (kl.estimator, kl.importance_weighted) == (KlEstimator::K3, KlWeighting::ThroughRatio)
    };
    if !recipe.kl.as_ref().is_some_and(through_ratio) {
        return Ok(None);
    }
    let [new, reference] = [inputs.numbers("logp_new")?, inputs.numbers("logp_ref")?];
    let live = inputs.shape()?.live;
    let steep =
        new.iter().zip(reference).zip(live).any(|((new, reference), live)| live && reference - new > 25.0);
    let why =
        "autograd's r·k3 + r·(1 − e^u) loses the −r·u that is left above a log-ratio u of 25; ours has it";
    Ok(steep.then_some(Exception::Differs(why)))
}

/// The gate for an estimator.
fn gated(name: &str, config: &mut Config<'_>) -> Result<Overlay, String> {
    let low = config.number("eps_clip")?.unwrap_or(0.2);
    let high = config.number("eps_clip_high")?.unwrap_or(low);
    let dual = config.number("eps_clip_c")?;
    let mut recipe = Overlay::new(match name {
        "gspo" => "slime_gspo",
        "cispo" => "slime_cispo",
        "grpo" | "ppo" | "reinforce_plus_plus" | "reinforce_plus_plus_baseline" => "slime",
        _ => return Err(format!("estimator {name:?} is not known")),
    });
    if name == "cispo" {
        // slime's bounds are distances from 1; the recipe's apply to the weight itself.
        recipe.number("gate.low", 1.0 - low);
        recipe.number("gate.high", 1.0 + high);
        return Ok(recipe);
    }
    if name == "gspo" {
        // Each token keeps its own advantage; the sequence's ratio is differentiated as is.
        recipe.word("ratio.advantage", "own");
        recipe.word("ratio.gradient", "mean");
    }
    recipe.number("gate.clip_ratio_low", low);
    recipe.number("gate.clip_ratio_high", high);
    recipe.number("gate.clip_ratio_c", dual);
    Ok(recipe)
}

fn token_losses(config: &mut Config<'_>) -> Result<Setup, String> {
    let name = config.required_text("loss")?;
    let recipe = gated(if name == "ppo" { "grpo" } else { name }, config)?;
    let mut to = Setup::new(recipe, Calls::Loss, POLICY, &["dloss_dlogp"]);
    to.recipe.copy(config, &[("aggregation", "aggregation.mode")])?;
    to.own("token_loss", |o| Ok(Got::Live(widen(&numbers::loss(o)?.token_loss))));
    Ok(to)
}

/// `vanilla_tis_function` or `icepop_function`.
fn correction(name: &str, config: &mut Config<'_>, recipe: &mut Overlay) -> Result<(), String> {
    let rule = match name.strip_suffix("_function").unwrap_or(name) {
        "vanilla_tis" => "truncate",
        "icepop" => "mask",
        _ => return Err(format!("tis function {name:?} is not known")),
    };
    let low = config.number("tis_clip_low")?.unwrap_or(0.0);
    let high = config.number("tis_clip")?.unwrap_or(2.0);
    let band = format!("low = {low:?}, high = {high:?}, denominator = \"before\"");
    recipe.set("correction", format_args!("{{ level = \"token\", rule = {rule:?}, {band} }}"));
    // The file's advantages pass through.
    recipe.word("advantage.estimator", "reward");
    Ok(())
}

/// Weights times given losses: losses −A·logp of a gate without a ratio, with logp = −1.
fn weights(config: &mut Config<'_>) -> Result<Setup, String> {
    let name = config.required_text("function")?;
    let mut to = Setup::new(Overlay::new("slime"), Calls::Loss, ROLLOUT, &[]);
    correction(name, config, &mut to.recipe)?;
    to.recipe.set("gate", "{ kind = \"reinforce\" }");
    to.prepare = Some(Box::new(|inputs, columns, credit| {
        (credit.advantage, credit.per_token) = (inputs.floats("token_loss")?, true);
        columns.logp = Some(vec![-1.0; credit.advantage.len()]);
        Ok(())
    }));
    to.own("token_loss", |o| Ok(Got::Live(widen(&numbers::loss(o)?.token_loss))));
    to.own("ratio", |o| Ok(Got::Live(untouched(o)?)));
    to.own("clipfrac_tokens", |o| Ok(Got::Live(touched(o)?)));
    Ok(to)
}

/// Weights before truncation and masks.
fn untouched(o: &Outcome<'_>) -> Result<Vec<f64>, String> {
    let mut recipe = o.recipe.clone();
    let correction = recipe.correction.as_mut().ok_or("the recipe corrects nothing")?;
    (correction.rule, correction.low) = (WeightRule::Plain, None);
    let credit = recipe.advantages(o.device, &o.columns.view()).map_err(text)?;
    credit.weights.as_deref().map(widen).ok_or_else(|| "no weights came back".into())
}

/// 1 where truncation or a mask changed the weight.
fn touched(o: &Outcome<'_>) -> Result<Vec<f64>, String> {
    let weights = o.credit.weights.as_deref().ok_or("no weights came back")?;
    let pairs = widen(weights).into_iter().zip(untouched(o)?);
    Ok(pairs.map(|(after, before)| f64::from(u8::from(after != before))).collect())
}

/// Whether a loss is a sum over tokens, which Megatron divides by their number.
fn by_tokens(config: &mut Config<'_>) -> Result<bool, String> {
    Ok(config.boolean("calculate_per_token_loss")? == Some(true))
}

/// The divisor of a mean over samples, and the factor applied outside the loss.
fn samples(config: &mut Config<'_>) -> Result<[f64; 2], String> {
    let samples = config.required("step_global_batch_size")?;
    let micro_batches = config.number("num_microbatches")?.unwrap_or(1.0);
    Ok([samples, micro_batches * config.number("dp_size")?.unwrap_or(1.0)])
}

/// Megatron's divisor: 1, or the number of tokens, with an empty sample counting as one.
fn normalizer(to: &mut Setup, by_tokens: bool) {
    to.own("normalizer", move |o| {
        let shape = o.spans().iter().map(|span| span.clone().filter(|i| o.live()[*i]).count().max(1));
        Ok(Got::Number(if by_tokens { shape.sum::<usize>() as f64 } else { 1.0 }, 0.0))
    });
}

fn policy(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let name = config.required_text("advantage_estimator")?;
    let shared = shared(inputs)?;
    let recipe = gated(name, config)?;
    let by_tokens = by_tokens(config)?;
    let mut to = Setup::new(recipe, Calls::Loss, POLICY, LOSS);
    let [samples, outside] = samples(config)?;
    if by_tokens {
        to.recipe.word("aggregation.mode", "token-sum");
    } else {
        (to.counts[2], to.scale) = (Some(samples as u64), outside);
    }
    let unit = if by_tokens { 1.0 } else { samples };
    normalizer(&mut to, by_tokens);
    if shared && name == "gspo" {
        return Ok(Plan::Missing("a ratio of each sample, where samples of one rollout share a denominator"));
    }

    // The log-probabilities that the ratio is relative to.
    let by_rollout = config.boolean("use_rollout_logprobs")? == Some(true);
    let corrected = config.boolean("use_tis")? == Some(true);
    if by_rollout && corrected {
        return Err(
            "`use_tis` with `use_rollout_logprobs` takes its weights to other log-probabilities".into()
        );
    }
    to.prepare = Some(Box::new(move |inputs, columns, credit| {
        inputs.ignore(&["rollout_mask_sums"]);
        if by_rollout {
            columns.logp_old = columns.logp_rollout.clone();
        }
        if shared {
            join(columns, credit)?;
        }
        Ok(())
    }));
    if corrected {
        let function = config.text("tis_function")?.unwrap_or("vanilla_tis");
        correction(function, config, &mut to.recipe)?;
    }
    if let Some(coef) = config.number("entropy_coef")?.filter(|coef| *coef != 0.0) {
        to.recipe.set("entropy", format_args!("{{ coef = {coef:?} }}"));
        to.expects.push("dloss_dentropy");
        to.own("metrics.entropy_loss", move |o| Ok(Got::Number(numbers::entropy(o)?.entropy * unit, 0.0)));
    }
    if config.boolean("use_kl_loss")? == Some(true) {
        let coef = config.number("kl_loss_coef")?.unwrap_or(0.0);
        let table = kl_table(config, coef)?;
        to.recipe.set("kl", table);
        to.own("metrics.kl_loss", move |o| kl_alone(o, unit));
    }
    if config.boolean("use_opsm")? == Some(true) {
        if shared || inputs.has("token_advantages") {
            return Ok(Plan::Missing("the off-policy sequence mask with an advantage for each token"));
        }
        let delta = config.required("opsm_delta")?;
        to.recipe.number("mask.opsm_delta", delta);
        to.own("metrics.opsm_clipfrac", move |o| {
            let view = o.columns.view();
            let [new, old] = [view.logp, view.logp_old].map(Option::unwrap_or_default);
            let batch = view.batch().map_err(text)?;
            let kept = kept(o.device, &batch, [new, old], &o.credit.advantage, delta)?;
            Ok(Got::Number(dropped(&kept, &batch), 0.0))
        });
    }
    metrics(&mut to, unit, name == "cispo");
    if inputs.has("logp_rollout") {
        to.own("metrics.train_rollout_logprob_abs_diff", move |o| {
            let mean = over_rows(o, |rollouts, _| {
                let own = if by_rollout { rollouts.logp } else { rollouts.logp_old };
                apart(rollouts, [own, rollouts.logp_rollout])
            });
            Ok(Got::Number(mean?, 0.0))
        });
    }
    if corrected {
        to.own("metrics.ois", |o| {
            let mean = over_rows(o, |rollouts, credit| Ok(one(o, rollouts, credit)?.ratio_mean));
            Ok(Got::Number(mean?, 0.0))
        });
        to.own("metrics.tis", |o| sum_of_means(o, &untouched(o)?));
        to.own("metrics.tis_clipfrac", |o| sum_of_means(o, &touched(o)?));
        to.own("metrics.tis_abs", |o| {
            // w − 1 cancels in binary32.
            let weights = untouched(o)?;
            let away: Vec<f64> = weights.iter().map(|w| (w - 1.0).abs()).collect();
            match (sum_of_means(o, &away)?, sum_of_means(o, &weights)?) {
                (Got::Number(away, _), Got::Number(terms, _)) => Ok(Got::Number(away, terms)),
                (away, _) => Ok(away),
            }
        });
    }
    Ok(Plan::recipe(to))
}

/// The loss, its policy term, and clip fraction and KL of the update.
fn metrics(to: &mut Setup, unit: f64, cispo: bool) {
    to.own("metrics.loss", move |o| Ok(Got::Number(total(o)? * unit, terms::of_loss(o)? * unit)));
    to.own("metrics.pg_loss", move |o| {
        let recipe = Recipe { kl: None, entropy: None, ..o.recipe.clone() };
        let loss = recipe.loss(o.device, &o.columns.view(), &o.credit).map_err(text)?;
        Ok(Got::Number(loss.loss.ok_or("no loss came back")? * unit, terms::of_loss(o)? * unit))
    });
    to.own("metrics.pg_clipfrac", move |o| {
        let clipped = over_rows(o, |rollouts, credit| {
            if !cispo {
                return Ok(one(o, rollouts, credit)?.clip_fraction);
            }
            // slime's CISPO counts weights beyond a bound even where A is 0: computed as if all tokens had
            // gained.
            let gained = vec![1.0; rollouts.batch().map_err(text)?.sequences()];
            Ok(one(o, rollouts, &Credit::per_sequence(gained))?.clip_fraction)
        });
        Ok(Got::Number(clipped?, 0.0))
    });
    to.own("metrics.ppo_kl", move |o| {
        let terms = over_rows(o, |rollouts, _| apart(rollouts, [rollouts.logp, rollouts.logp_old]))?;
        Ok(Got::Number(over_rows(o, |rollouts, credit| Ok(one(o, rollouts, credit)?.approx_kl))?, terms))
    });
}

/// The KL term as a separate loss. In binary32, the 1 in each token's k3, e^u − 1 − u, cancels.
fn kl_alone(o: &Outcome<'_>, unit: f64) -> Result<Got, String> {
    let mut recipe = Recipe { entropy: None, ..o.recipe.clone() };
    let kl = recipe.kl.as_mut().ok_or("the recipe has no KL term")?;
    kl.coef = 1.0;
    let terms = if kl.estimator == KlEstimator::K3 { over_rows(o, |_, _| Ok(1.0))? } else { 0.0 };
    let nothing = Credit { advantage: vec![0.0; o.credit.advantage.len()], ..o.credit.clone() };
    let loss = recipe.loss(o.device, &o.columns.view(), &nothing).map_err(text)?;
    Ok(Got::Number(loss.loss.ok_or("no loss came back")? * unit, terms))
}

/// The metrics of one sample.
fn one(o: &Outcome<'_>, rollouts: &Rollouts<'_>, credit: &Credit) -> Result<Metrics, String> {
    let recipe = Recipe { kl: None, entropy: None, ..o.recipe.clone() };
    let loss = recipe.loss(o.device, rollouts, credit).map_err(text)?;
    loss.metrics.ok_or_else(|| "no metrics came back".into())
}

/// The sum over samples of a mean over the sample's tokens or, if the loss is over tokens, the sum over
/// those.
fn over_rows(
    o: &Outcome<'_>,
    mean: impl Fn(&Rollouts<'_>, &Credit) -> Result<f64, String>,
) -> Result<f64, String> {
    let of_tokens = o.recipe.aggregation.mode == AggregationMode::TokenSum;
    let mut columns = o.columns.clone();
    let rows = columns.batch().map_err(text)?.sequences();
    (columns.cu_groups, columns.counts) = (Some((0..=rows as u32).collect()), None);
    let credit = Credit { groups: Default::default(), ..o.credit.clone() };
    let mut sum = 0.0;
    for row in 0..rows {
        let (part, _) = columns.view().select(&[row]).map_err(text)?;
        let credit = credit.select(&columns.view(), &[row]).map_err(text)?;
        let tokens = part.batch().and_then(|batch| batch.counts(o.device)).map_err(text)?.tokens;
        if tokens > 0 {
            sum += mean(&part.view(), &credit)? * if of_tokens { tokens as f64 } else { 1.0 };
        }
    }
    Ok(sum)
}

/// The same for per-token numbers.
fn sum_of_means(o: &Outcome<'_>, values: &[f64]) -> Result<Got, String> {
    let of_tokens = o.recipe.aggregation.mode == AggregationMode::TokenSum;
    let batch = o.columns.batch().map_err(text)?;
    let rows = (0..batch.sequences()).map(|row| {
        let span = batch.cu_seqlens().span(row);
        let live: Vec<f64> = (span.start..span.end).filter(|i| o.live()[*i]).map(|i| values[i]).collect();
        let divisor = if of_tokens { 1 } else { live.len().max(1) };
        live.iter().sum::<f64>() / divisor as f64
    });
    Ok(Got::Number(rows.sum(), 0.0))
}

/// Mean |a − b| over a sample's tokens.
fn apart(rollouts: &Rollouts<'_>, policies: [Option<&[f32]>; 2]) -> Result<f64, String> {
    let [a, b] = policies.map(Option::unwrap_or_default);
    mean_abs_log_ratio(&rollouts.batch().map_err(text)?, a, b).map_err(text)
}

/// Whether samples of one rollout (a group in these files) share a denominator.
fn shared(inputs: &Inputs<'_>) -> Result<bool, String> {
    let shape = inputs.shape()?;
    let own: Vec<f64> =
        shape.spans.iter().map(|span| span.clone().filter(|i| shape.live[*i]).count() as f64).collect();
    let sums = inputs.numbers("rollout_mask_sums")?;
    let groups: Vec<u32> = inputs.whole("cu_groups")?;
    let of_group = groups.windows(2).flat_map(|pair| {
        let own = &own[pair[0] as usize..pair[1] as usize];
        vec![own.iter().sum::<f64>(); own.len()]
    });
    match (sums == own, of_group.eq(sums.iter().copied())) {
        (true, _) => Ok(false),
        (false, true) => Ok(true),
        _ => Err("`rollout_mask_sums` are neither of samples nor of groups".into()),
    }
}

/// Joins the samples of one rollout into one sequence, with per-token advantages.
fn join(columns: &mut RolloutsBuf, credit: &mut Credit) -> Result<(), String> {
    let offsets = columns.cu_seqlens.take().ok_or("`cu_seqlens` is missing")?;
    let groups = columns.cu_groups.take().ok_or("`cu_groups` is missing")?;
    if !credit.per_token {
        let each = offsets.windows(2).zip(&credit.advantage);
        let each = each.flat_map(|(pair, a)| vec![*a; (pair[1] - pair[0]) as usize]).collect();
        *credit = Credit::per_token(each);
    }
    columns.cu_groups = Some((0..groups.len() as u32).collect());
    columns.cu_seqlens = Some(groups.iter().map(|group| offsets[*group as usize]).collect());
    Ok(())
}

fn value(config: &mut Config<'_>) -> Result<Setup, String> {
    let by_tokens = by_tokens(config)?;
    let [samples, outside] = samples(config)?;
    let mut to = Setup::new(Overlay::new("slime"), Calls::Loss, VALUE, &["loss", "dloss_dvalue"]);
    let (mode, unit) =
        if by_tokens { ("token-sum", 1.0) } else { ("seq-mean-token-mean", samples / outside) };
    if !by_tokens {
        to.counts[2] = Some(samples as u64);
    }
    to.recipe.copy(config, &[("value_clip", "value.cliprange_value")])?;
    // The loss is the square itself, not half of it.
    to.recipe.number("value.coef", if by_tokens { 2.0 } else { 2.0 * outside });
    let aggregation = format!("{{ mode = {mode:?}, length = \"at-least-one\", sequences = \"all\" }}");
    to.recipe.set("value.aggregation", aggregation);
    // Metrics are summed like the loss.
    to.recipe.word("aggregation.mode", mode);
    normalizer(&mut to, by_tokens);
    to.own("metrics.value_loss", move |o| {
        Ok(Got::Number(numbers::critic(o)?.loss * unit, terms::of_value(o)? * unit))
    });
    // Counts every value beyond its range, whichever branch is larger: if the returns equal the values, the
    // clipped branch is.
    to.own("metrics.value_clipfrac", move |o| {
        let clipped = over_rows(o, |rollouts, credit| {
            let returns = rollouts.values.unwrap_or_default().to_vec();
            let loss = o.recipe.loss(o.device, rollouts, &Credit { returns, ..credit.clone() });
            Ok(loss.map_err(text)?.value.ok_or("no value loss came back")?.clip_fraction)
        });
        Ok(Got::Number(clipped?, 0.0))
    });
    Ok(to)
}

/// Which sequences the off-policy mask keeps, per token.
fn kept(
    device: &Device,
    batch: &Batch<'_>,
    policies: [&[f32]; 2],
    advantage: &[f32],
    delta: f64,
) -> Result<Vec<f64>, String> {
    let rule = SequenceRule::OffPolicyMask { delta: delta as f32 };
    let weights = ops::sequence_weight(device, batch, policies, advantage, None, &rule).map_err(text)?;
    Ok(widen(&weights))
}

/// slime's count of dropped sequences: each counts its total tokens divided by its live ones.
fn dropped(kept: &[f64], batch: &Batch<'_>) -> f64 {
    let rows = (0..batch.sequences()).map(|row| {
        let span = batch.cu_seqlens().span(row);
        let live = (span.start..span.end).filter(|i| batch.loss_mask().at(*i));
        let (tokens, left) = live.fold((0, 0.0), |(n, left), i| (n + 1, left + kept[i]));
        if tokens > 0 && left == 0.0 { (span.end - span.start) as f64 / f64::from(tokens) } else { 0.0 }
    });
    rows.sum()
}

fn sequence_mask(
    op: &str,
    config: &mut Config<'_>,
    inputs: &Inputs<'_>,
    device: &Device,
) -> Result<Plan, String> {
    let delta = config.required("opsm_delta")?;
    let tokens = Tokens::read(inputs)?;
    let (new, old) = (inputs.floats("logp_new")?, inputs.floats("logp_old")?);
    let advantage = inputs.floats("seq_advantages")?;
    let batch = tokens.batch()?;
    let kept = kept(device, &batch, [&new, &old], &advantage, delta)?;
    let name = if op == "opsm_mask" { "opsm_mask" } else { "token_kept" };
    let fraction = Got::Number(dropped(&kept, &batch), 0.0);
    let mut got = vec![(name, Got::Live(kept))];
    got.extend((op == "opsm_mask").then_some(("opsm_clipfrac", fraction)));
    Ok(Plan::Numbers("ops::sequence_weight", got, None))
}

fn chunked_gae(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    // Both functions compute the same sum, whatever the chunks.
    config.ignore(&["function", "chunk_size"]);
    let gamma = config.number("gamma")?.unwrap_or(1.0);
    let lambda = config.number("lambd")?.unwrap_or(1.0);
    let tokens = Tokens::read(inputs)?;
    let (rewards, values) = (inputs.floats("token_rewards")?, inputs.floats("values")?);
    let [advantages, returns] = gae(device, &tokens.unmasked()?, [&rewards, &values], [gamma, lambda])?;
    let [advantages, returns] = [advantages, returns].map(|values| Got::All(widen(&values)));
    let returns = Got::Cancelling(Box::new(returns), largest(&values));
    Ok(Plan::Numbers("ops::gae", vec![("advantages", advantages), ("returns", returns)], None))
}

/// Token advantages. slime's GAE ignores masks; its discounted returns count masked tokens as time, and there
/// masks hide penalties.
fn advantages(config: &mut Config<'_>, inputs: &Inputs<'_>, device: &Device) -> Result<Plan, String> {
    let name = config.required_text("advantage_estimator")?;
    let kl = estimator(config.text("kl_loss_type")?.unwrap_or("k1"))?;
    let penalty = (kl, config.number("kl_coef")?.unwrap_or(0.0));
    let gamma = config.number("gamma")?.unwrap_or(1.0);
    let lambda = config.number("lambd")?.unwrap_or(1.0);
    let tokens = Tokens::read(inputs)?;
    let (all, live) = (tokens.unmasked()?, tokens.batch()?);
    let (rewards, mut value) = (inputs.floats("rewards")?, 0.0);
    let (ours, advantages, returns) = match name {
        "ppo" => {
            let rewards = penalised(device, &all, inputs, tokens.on_last(&rewards), penalty)?;
            let values = inputs.floats("values")?;
            value = largest(&values);
            let [advantages, returns] = gae(device, &all, [&rewards, &values], [gamma, lambda])?;
            ("ops::gae", advantages, returns)
        }
        "reinforce_plus_plus" => {
            let rewards = penalised(device, &live, inputs, tokens.on_last_live(&rewards), penalty)?;
            let returns = ops::discounted_return(device, &all, &rewards, gamma).map_err(text)?;
            ("ops::discounted_return", returns.clone(), returns)
        }
        "reinforce_plus_plus_baseline" => {
            let each = penalised(device, &live, inputs, tokens.on_all(&rewards), penalty)?;
            ("ops::kl_in_reward", each.clone(), each)
        }
        _ => return Err(format!("estimator {name:?} is not known")),
    };
    let normalized = config.boolean("normalize_advantages")? == Some(true);
    let cancels = normalized && offset(device, &live, &advantages, 1.0)?;
    let advantages = if normalized {
        let values = Advantage::PerToken(&advantages);
        whiten(device, &live, values, &WhitenParams::VERL).map_err(text)?
    } else {
        advantages
    };
    let got = both([&advantages, &returns], value);
    Ok(Plan::Numbers(ours, got, cancels.then_some(CANCELS)))
}
