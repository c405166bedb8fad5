//! GDRO: difficulty bins, prompt weights and rollout counts per bin, each over several steps.

use crate::inputs::Inputs;
use crate::numbers::Got;
use crate::outcome::text;
use crate::settings::Config;
use crate::sources::{Plan, Request};
use lockstep::schedule::gdro_bins::{Bins, Hysteresis, Window};
use lockstep::schedule::gdro_prompt::{Bound, Over, PromptGdro, Score, Weight, means};
use lockstep::schedule::gdro_rollout::{Nearest, RolloutGdro, UtilitySign};
use lockstep::schedule::{prompt_gdro_weights, rollout_gdro_choose};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The ops that this table covers.
pub(crate) const OPS: &[&str] = &["passk_bins", "prompt_gdro_weights", "rollout_gdro_arms"];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, .. }: Request<'_, '_>) -> Result<Plan, String> {
    match op {
        "passk_bins" => bins(config, inputs),
        "prompt_gdro_weights" => weights(config, inputs),
        "rollout_gdro_arms" => arms(config, inputs),
        _ => Err(format!("op {op} is not in the table of GDRO")),
    }
}

fn core(error: lockstep::core::Error) -> String {
    error.to_string()
}

fn bins(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let history = config.required("passk_history_len")? as u32;
    // The code clamps both to their ranges and drops edges that are out of range.
    let uniform = (config.required("passk_num_bins")? as u32).max(2);
    let margin = config.required("passk_hysteresis")?.clamp(0.0, 0.49);
    let edges = edges(config.text("passk_edges")?.unwrap_or_default())?;
    let count = if edges.is_empty() { uniform } else { edges.len() as u32 + 1 };
    let steps = inputs.rows("passk")?;
    if history > u128::BITS && steps.len() > u128::BITS as usize {
        return Ok(Plan::Missing("a window of more than 128 observations of a prompt"));
    }
    let horizon = history.min(u128::BITS);
    let bins = Bins { count, edges: &edges, margin, hysteresis: Hysteresis::Code };
    let mut prompts = vec![(Window::default(), None); steps.first().map_or(0, Vec::len)];
    let mut before = Vec::new();
    for step in &steps {
        let mut row = Vec::new();
        for ((window, bin), passed) in prompts.iter_mut().zip(step) {
            // Without a margin the code does not remember a prompt's bin.
            let own = bin.filter(|_| margin > 0.0);
            let now = bins.of(window.accuracy(horizon).map_err(core)?, own).map_err(core)?;
            *bin = Some(now);
            *window = window.observe(*passed > 0.5);
            row.push(now);
        }
        before.push(row);
    }
    Ok(Plan::Numbers("schedule::gdro_bins", vec![("bin_before", Got::Nested(json!(before)))], None))
}

/// A list of edges, optionally in brackets.
fn edges(text: &str) -> Result<Vec<f64>, String> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let listed = text.split(',').map(str::trim).filter(|edge| !edge.is_empty());
    let wrong = |_| format!("config `passk_edges` is {text:?}");
    let mut edges = listed.map(|edge| edge.parse().map_err(wrong)).collect::<Result<Vec<f64>, _>>()?;
    edges.retain(|edge| 0.0 < *edge && *edge < 1.0);
    edges.sort_by(f64::total_cmp);
    edges.dedup();
    Ok(edges)
}

fn steps<'a>(inputs: &Inputs<'a>) -> Result<Vec<Inputs<'a>>, String> {
    let steps = inputs.value("steps")?.as_array().ok_or("`steps` is not a list")?;
    steps
        .iter()
        .map(|step| step.as_object().map(Inputs::new).ok_or("a step is not an object".into()))
        .collect()
}

/// The released weights: q over the bins of the batch.
fn weights(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let rate = config.required("eta_q")?;
    let scored = config.boolean("use_zscore")? == Some(true);
    // If both are set, only the EMA counts.
    let ema = config.boolean("debias_scores_ema")? == Some(true);
    let mean = config.boolean("debias_scores")? == Some(true) && !ema;
    if scored && !ema && !mean {
        return Ok(Plan::Missing("GDRO's standard score of a sum by the mean and deviation of means"));
    }
    // The code does not clip scores; this is as far as the exponential reaches.
    let clip = Bound::Clip(if rate > 0.0 { 600.0 / rate } else { 1.0 });
    let gdro = PromptGdro {
        score: if ema { Score::Ema } else { Score::Sum },
        ema: config.required("ema_beta")?,
        rate,
        bound: if scored { Bound::Standardise } else { clip },
        over: Over::Seen,
        deviation_min: config.required("z_std_floor")?,
        score_max: config.required("z_cap")?,
        exploration: config.required("gamma")?,
        weight_max: config.required("max_class_weight")?,
        weight: Weight::NormalisedQ,
        per_share: config.boolean("loss_norm_by_class")? == Some(true),
    };
    let steps = steps(inputs)?;
    let mut batches: Vec<(Vec<usize>, Vec<f64>)> = Vec::new();
    for step in &steps {
        batches.push((step.whole::<usize>("bin")?, step.numbers("loss")?));
        step.finish()?;
    }
    let all = batches.iter().flat_map(|(bins, _)| bins).max().map_or(0, |last| last + 1);
    let (mut scores, mut observed, mut out) = (vec![None; all], vec![0; all], Vec::new());
    for (bins, losses) in batches {
        let (mut sum, mut count) = (vec![0.0; all], vec![0; all]);
        for (bin, loss) in bins.iter().zip(&losses) {
            sum[*bin] += loss;
            count[*bin] += 1;
        }
        let mut read = scores.clone();
        if mean {
            means(&scores, &observed, &mut read).map_err(core)?;
        }
        let of_bins = prompt_gdro_weights(&gdro, &read, &count).map_err(text)?;
        observed.iter_mut().zip(&count).for_each(|(steps, n)| *steps += u32::from(*n > 0));
        gdro.observe(&mut scores, &sum, &count).map_err(core)?;
        let after = scores.iter().enumerate().filter_map(|(bin, s)| Some((bin.to_string(), json!((*s)?))));
        out.push(json!({
            "weights": bins.iter().map(|bin| of_bins[*bin]).collect::<Vec<f64>>(),
            "score_after": after.collect::<Map<_, _>>(),
        }));
    }
    Ok(Plan::Numbers("schedule::prompt_gdro_weights", vec![("steps", Got::Nested(out.into()))], None))
}

/// Numbers per bin, by the bins' names.
fn by_name<'a>(step: &Inputs<'a>, name: &str) -> Result<&'a Map<String, Value>, String> {
    step.value(name)?.as_object().ok_or_else(|| format!("`{name}` is not an object"))
}

fn arms(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let mut arms = config.numbers("arms")?.ok_or("config `arms` is missing")?;
    arms.sort_by(f64::total_cmp);
    arms.dedup();
    let arms: Vec<u32> = arms.into_iter().map(|arm| arm as u32).collect();
    let (Some(least), Some(most)) = (arms.first(), arms.last()) else {
        return Err("config `arms` is empty".into());
    };
    let gdro = RolloutGdro {
        least: *least,
        most: *most,
        among: &arms,
        rate: config.required("eta_q")?,
        exploration: config.required("gamma")?,
        // Each step has its own price.
        price_rate: 0.0,
        target: config.required("bar_n")?,
        utility_sign: UtilitySign::Code,
        nearest: Nearest::Likelier,
    };
    let mut scores: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut out = Vec::new();
    for step in steps(inputs)? {
        let (counts, played) = (by_name(&step, "counts")?, by_name(&step, "chosen_for_update")?);
        let (losses, budget) = (by_name(&step, "losses")?, step.number("total_budget")?);
        let price = step.number("mu")?;
        step.finish()?;
        let (mut flat, mut count, mut chosen, mut mean) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (name, n) in counts {
            flat.extend(&*scores.entry(name).or_insert_with(|| vec![0.0; arms.len()]));
            count.push(n.as_u64().ok_or("`counts` is not of whole numbers")? as u32);
            chosen.push(played[name].as_u64().ok_or("`chosen_for_update` is not of whole numbers")? as u32);
            let of_bin = crate::format::numbers("losses", &losses[name])?;
            mean.push(of_bin.iter().sum::<f64>() / of_bin.len() as f64);
        }
        let own = rollout_gdro_choose(&gdro, &flat, &count, budget as u64).map_err(text)?;
        let (mut probs, mut sum) = (Map::new(), 0.0);
        for (b, name) in counts.keys().enumerate() {
            let mut log_p = vec![0.0; arms.len()];
            let of_bin = &flat[b * arms.len()..][..arms.len()];
            gdro.log_probabilities(of_bin, &mut log_p).map_err(core)?;
            probs.insert(name.clone(), json!(log_p.iter().map(|x| x.exp()).collect::<Vec<_>>()));
            // A bin without prompts makes no choice.
            let arm = gdro.arm(own.per_prompt[b]).filter(|_| count[b] > 0);
            sum += arm.map_or(0.0, |arm| log_p[arm]);
        }
        gdro.update(&mut flat, &count, &chosen, &mean, price).map_err(core)?;
        for (name, of_bin) in counts.keys().zip(flat.chunks_exact(arms.len())) {
            scores.insert(name, of_bin.to_vec());
        }
        out.push(json!({
            "arm_probs": probs,
            "rollouts_used": own.total,
            "sum_log_prob": sum,
            "arm_scores_after": scores,
        }));
    }
    Ok(Plan::Numbers("schedule::rollout_gdro_choose", vec![("steps", Got::Nested(out.into()))], None))
}
