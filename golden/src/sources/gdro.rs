//! GDRO: bins of difficulty, weights of their prompts, rollouts of their prompts. Each over several steps.

use crate::inputs::Inputs;
use crate::numbers::Got;
use crate::outcome::{Exception, text};
use crate::settings::Config;
use crate::sources::Plan;
use lockstep::Device;
use lockstep::schedule::gdro_bins::{Bins, Window};
use lockstep::schedule::gdro_prompt::{Bound, PromptGdro, Weight};
use lockstep::schedule::gdro_rollout::{RolloutGdro, UtilitySign};
use lockstep::schedule::{prompt_gdro_weights, rollout_gdro_choose};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The ops of the table.
pub(crate) fn ops() -> Vec<&'static str> {
    vec!["passk_bins", "prompt_gdro_weights", "rollout_gdro_arms"]
}

/// What the table says of a case.
pub(crate) fn read(
    op: &str,
    config: &mut Config<'_>,
    inputs: &Inputs<'_>,
    _: &Device,
) -> Result<Plan, String> {
    match op {
        "passk_bins" => bins(config, inputs),
        "prompt_gdro_weights" => weights(config, inputs),
        "rollout_gdro_arms" => arms(config, inputs),
        _ => Err(format!("op {op} is not in the table of GDRO")),
    }
}

fn required(config: &mut Config<'_>, key: &str) -> Result<f64, String> {
    config.number(key)?.ok_or_else(|| format!("config `{key}` is missing"))
}

fn core(error: lockstep::core::Error) -> String {
    error.to_string()
}

/// Observations that a window has room for.
const WINDOW: usize = 64;

fn bins(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let history = required(config, "passk_history_len")? as usize;
    // The code holds both in their range.
    let count = (required(config, "passk_num_bins")? as u32).max(2);
    let margin = required(config, "passk_hysteresis")?.clamp(0.0, 0.49);
    if config.text("passk_edges")?.is_some_and(|edges| !edges.trim().is_empty()) {
        return Ok(Plan::Missing("GDRO's bins with edges of one's own"));
    }
    let steps = inputs.rows("passk")?;
    // 0: all observations.
    if history > WINDOW || (history == 0 && steps.len() > WINDOW) {
        return Ok(Plan::Missing("a window of more than 64 observations of a prompt"));
    }
    let horizon = if history == 0 { WINDOW } else { history } as u32;
    let bins = Bins { count, margin };
    let mut prompts = vec![(Window::default(), None); steps.first().map_or(0, Vec::len)];
    let mut before = Vec::new();
    for step in &steps {
        let mut row = Vec::new();
        for ((window, bin), passed) in prompts.iter_mut().zip(step) {
            // Without a margin the code keeps no bin, not even at its upper edge.
            let own = bin.filter(|_| margin > 0.0);
            let now = bins.of(window.accuracy(horizon).map_err(core)?, own).map_err(core)?;
            *bin = Some(now);
            *window = window.observe(*passed > 0.5);
            row.push(now);
        }
        before.push(row);
    }
    let got = vec![("bin_before", Got::Nested(json!(before)))];
    if margin > 0.0 {
        let why = "with a margin the code measures at the new bin's lower edge: no prompt ever moves down";
        return Ok(Plan::Except("schedule::gdro_bins", got, Exception::Differs(why)));
    }
    Ok(Plan::Numbers("schedule::gdro_bins", got))
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
    let rate = required(config, "eta_q")?;
    let scored = config.boolean("use_zscore")? == Some(true);
    let own = |config: &mut Config<'_>, key, ours: f64| Ok::<_, String>(required(config, key)? != ours);
    let [floor, cap] = [own(config, "z_std_floor", 1e-3)?, own(config, "z_cap", 3.0)?];
    if scored && (floor || cap) {
        return Ok(Plan::Missing("GDRO's least deviation and largest standard score as settings"));
    }
    // With both the EMA is what counts.
    config.ignore(&["debias_scores"]);
    if config.boolean("debias_scores_ema")? != Some(true) {
        return Ok(Plan::Missing("GDRO's score as a sum over steps, or as their mean"));
    }
    // The code does not clip a score; this is as far as the exponential reaches.
    let clip = Bound::Clip(if rate > 0.0 { 600.0 / rate } else { 1.0 });
    let gdro = PromptGdro {
        ema: required(config, "ema_beta")?,
        rate,
        bound: if scored { Bound::Standardise } else { clip },
        exploration: required(config, "gamma")?,
        weight_max: required(config, "max_class_weight")?,
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
    let (mut scores, mut out) = (vec![None; all], Vec::new());
    for (bins, losses) in batches {
        let (mut sum, mut count) = (vec![0.0; all], vec![0; all]);
        for (bin, loss) in bins.iter().zip(&losses) {
            sum[*bin] += loss;
            count[*bin] += 1;
        }
        let observed = scores.iter().any(Option::is_some);
        let apart = (0..all).any(|bin| scores[bin].is_some() != (count[bin] > 0));
        if scored && observed && apart {
            return Ok(Plan::Missing("GDRO's standard score over all bins seen, not those of the batch"));
        }
        let of_bins = prompt_gdro_weights(&gdro, &scores, &count).map_err(text)?;
        gdro.observe(&mut scores, &sum, &count).map_err(core)?;
        let after = scores.iter().enumerate().filter_map(|(bin, s)| Some((bin.to_string(), json!((*s)?))));
        out.push(json!({
            "weights": bins.iter().map(|bin| of_bins[*bin]).collect::<Vec<f64>>(),
            "score_after": after.collect::<Map<_, _>>(),
        }));
    }
    Ok(Plan::Numbers("schedule::prompt_gdro_weights", vec![("steps", Got::Nested(out.into()))]))
}

/// Numbers of bins by their names.
fn by_name<'a>(step: &Inputs<'a>, name: &str) -> Result<&'a Map<String, Value>, String> {
    step.value(name)?.as_object().ok_or_else(|| format!("`{name}` is not an object"))
}

fn arms(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let mut arms = config.numbers("arms")?.ok_or("config `arms` is missing")?;
    arms.sort_by(f64::total_cmp);
    arms.dedup();
    if arms.windows(2).any(|pair| pair[1] != pair[0] + 1.0) {
        return Ok(Plan::Missing("GDRO's arms as a list: ours are all numbers of a range"));
    }
    let (least, most) = (arms.first().copied().unwrap_or(0.0), arms.last().copied().unwrap_or(0.0));
    let gdro = RolloutGdro {
        least: least as u32,
        most: most as u32,
        rate: required(config, "eta_q")?,
        exploration: required(config, "gamma")?,
        // Every step has its price.
        price_rate: 0.0,
        target: required(config, "bar_n")?,
        utility_sign: UtilitySign::Code,
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
            // A bin without prompts chooses nothing.
            sum += if count[b] > 0 { log_p[(own.per_prompt[b] - gdro.least) as usize] } else { 0.0 };
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
    Ok(Plan::Numbers("schedule::rollout_gdro_choose", vec![("steps", Got::Nested(out.into()))]))
}
