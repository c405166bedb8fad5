//! LATR's branching: candidates, capacity, the cumulative filter, and the similarity of two branches.

use crate::inputs::Inputs;
use crate::numbers::Got;
use crate::outcome::text;
use crate::settings::Config;
use crate::sources::{Plan, Request};
use lockstep::schedule::{Latr, falls_behind, latr_fit, rouge_l, suffix_match};
use lockstep::schedules::overlap;
use serde_json::json;

/// The ops that this table covers.
pub(crate) const OPS: &[&str] =
    &["branch_prob_filter", "branch_capacity", "cumulative_prob_filter", "sequence_metrics"];

/// Translates a case into a plan.
pub(crate) fn read(Request { op, config, inputs, .. }: Request<'_, '_>) -> Result<Plan, String> {
    match op {
        "branch_prob_filter" => branches(config, inputs),
        "branch_capacity" => capacity(config, inputs),
        "cumulative_prob_filter" => cumulative(config, inputs),
        "sequence_metrics" => metrics(inputs),
        _ => Err(format!("op {op} is not in the table of LATR")),
    }
}

/// An unset threshold accepts every candidate, even one of probability 0, which ours has to exceed: such are
/// raised to the smallest positive number.
fn branches(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let threshold = config.number("prob_filter_abs_thres")?;
    let least = if threshold.is_none() { f64::MIN_POSITIVE } else { 0.0 };
    let latr = Latr {
        probability: threshold.unwrap_or(0.0),
        gap: config.number("prob_filter_rel_thres")?.unwrap_or(f64::INFINITY),
        // The filter itself does not limit their number.
        candidates: u32::MAX,
        ..Latr::default()
    };
    let rows = inputs.rows("top_probs")?;
    let extra = rows.iter().map(|row| {
        let row: Vec<f64> = row.iter().map(|p| p.max(least)).collect();
        let goes_on = latr.branches(&row).map_err(|e| e.to_string())? as usize;
        Ok(json!((1..row.len()).map(|j| u8::from(j < goes_on)).collect::<Vec<_>>()))
    });
    let extra = extra.collect::<Result<_, String>>()?;
    Ok(Plan::Numbers("schedule::latr_prunes", vec![("keep_extra", Got::Nested(extra))], None))
}

/// The code's states of a candidate that may continue, and of one for which there is no room.
const KEPT: f64 = 0.0;
const SUPPRESSED: u8 = 2;

/// Where a row's candidates have a gap, their ranks are admitted one after the other.
fn capacity(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let room = config.required("num_return_sequences")?;
    let (roots, state): (Vec<u32>, _) = (inputs.whole("root")?, inputs.rows("state")?);
    let mut out: Vec<Vec<u8>> = state.iter().map(|row| row.iter().map(|x| *x as u8).collect()).collect();
    let goes_on = |row: usize, rank: usize| state[row].get(rank) == Some(&KEPT);
    let ranks = state.iter().map(Vec::len).max().unwrap_or(0);
    let mut done: Vec<u32> = Vec::new();
    for root in &roots {
        if done.contains(root) {
            continue;
        }
        done.push(*root);
        let rows: Vec<usize> = (0..roots.len()).filter(|row| roots[*row] == *root).collect();
        let has_gap = rows.iter().any(|row| (1..ranks).any(|j| goes_on(*row, j) && !goes_on(*row, j - 1)));
        let (mut left, width) = (room as u32, if has_gap { 1 } else { ranks });
        for first in (0..ranks).step_by(width.max(1)) {
            let of_row = |row: &usize| (first..first + width).filter(|j| goes_on(*row, *j)).count() as u32;
            let kept = latr_fit(&rows.iter().map(of_row).collect::<Vec<_>>(), left).map_err(text)?;
            left -= kept.iter().sum::<u32>();
            for (row, kept) in rows.iter().zip(kept) {
                let beyond = (first..first + width).filter(|j| goes_on(*row, *j)).skip(kept as usize);
                beyond.for_each(|j| out[*row][j] = SUPPRESSED);
            }
        }
    }
    Ok(Plan::Numbers("schedule::latr_prunes", vec![("state", Got::Nested(json!(out)))], None))
}

/// The caller selects the branches to test: unfinished ones, of roots with room left, every few steps.
fn cumulative(config: &mut Config<'_>, inputs: &Inputs<'_>) -> Result<Plan, String> {
    let threshold = config.required("cumulative_prob_filter_thres")?;
    let interval = config.required("cumulative_prob_filter_interval")?;
    let (room, step) = (config.required("kt_n_gen")? as usize, config.required("step")?);
    let (parents, log_p) = (inputs.numbers("parent")?, inputs.numbers("accumulated_logp")?);
    let ended: Vec<u8> = inputs.whole("has_eos")?;
    let mut roots: Vec<usize> = Vec::new();
    for (branch, parent) in parents.iter().enumerate() {
        roots.push(if *parent < 0.0 { branch } else { roots[*parent as usize] });
    }
    let (mut removed, acts) = (Vec::new(), step % interval == 0.0);
    for branch in 0..if acts { parents.len() } else { 0 } {
        let siblings = || (0..parents.len()).filter(|other| roots[*other] == roots[branch]);
        if ended[branch] != 0 || parents[branch] < 0.0 || siblings().count() == room {
            continue;
        }
        let likeliest = siblings().map(|other| log_p[other]).fold(f64::NEG_INFINITY, f64::max);
        if falls_behind(log_p[branch], likeliest, step as u32, threshold).map_err(|e| e.to_string())? {
            removed.push(branch as f64);
        }
    }
    let compared = if acts { parents.len() as f64 } else { 0.0 };
    let got = vec![("removed", Got::All(removed)), ("compared", Got::Number(compared, 0.0))];
    Ok(Plan::Numbers("schedule::latr_prunes", got, None))
}

fn metrics(inputs: &Inputs<'_>) -> Result<Plan, String> {
    let (a, b): (Vec<u32>, Vec<u32>) = (inputs.whole("a")?, inputs.whole("b")?);
    let suffix = suffix_match(&a, &b);
    let mut row = vec![0; overlap::scratch(b.len())];
    let common = overlap::longest_common(&a, &b, &mut row).map_err(|e| e.to_string())?;
    let got = vec![
        ("suffix_match", Got::Number(suffix, 0.0)),
        ("rouge_l", Got::Number(rouge_l(&a, &b).map_err(text)?, 0.0)),
        ("lcs", Got::Number(f64::from(common), 0.0)),
    ];
    Ok(Plan::Numbers("schedule::latr_prunes", got, None))
}
