//! The page and the table of `lockstep routing`: the replay modes side by side.

use std::fmt::Write;

use anyhow::Result;

use super::plot::{BLUE, GREEN, ORANGE, Plot, Series};
use super::routing::{Field, ROWS, show};
use super::{STYLE, configuration, escape};
use crate::config::Config;
use crate::routing::{Mode, StudyRun};

const MODES: [(Mode, &str); 3] = [(Mode::None, "no replay"), (Mode::R2, "R2"), (Mode::R3, "R3")];

/// Mean of a routing number over a run's steps.
fn mean(run: &StudyRun, f: Field) -> f64 {
    let steps: Vec<f64> = run.records.iter().filter_map(|r| r.routing.as_ref()).map(f).collect();
    steps.iter().sum::<f64>() / steps.len().max(1) as f64
}

/// The runs of one mode.
fn of(runs: &[StudyRun], mode: Mode) -> impl Iterator<Item = &StudyRun> {
    runs.iter().filter(move |run| run.mode == mode)
}

/// The table's rows: a label, and one cell per mode.
fn rows(runs: &[StudyRun]) -> Vec<(String, [String; 3])> {
    let cell = |values: Vec<f64>| {
        let of = |fold: fn(f64, f64) -> f64, from: f64| show(values.iter().copied().fold(from, fold));
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let (low, high) = (of(f64::min, f64::INFINITY), of(f64::max, f64::NEG_INFINITY));
        if low == high { show(mean) } else { format!("{} ({low} to {high})", show(mean)) }
    };
    let row = |name: &str, f: &dyn Fn(&StudyRun) -> f64| {
        (name.to_owned(), MODES.map(|(mode, _)| cell(of(runs, mode).map(f).collect())))
    };
    let mut rows: Vec<_> = ROWS.iter().map(|(name, f)| row(name, &|run| mean(run, *f))).collect();
    let over_steps = |run: &StudyRun, f: fn(&crate::train::RlRecord) -> f64| {
        run.records.iter().map(f).sum::<f64>() / run.records.len().max(1) as f64
    };
    rows.push(row("KL(engine ‖ trainer), k3, nats", &|run| over_steps(run, |r| r.mismatch_k3)));
    rows.push(row("ratio of the update, standard deviation", &|run| over_steps(run, |r| r.ratio_std)));
    rows.push(row("mean reward", &|run| over_steps(run, |r| r.reward)));
    let last = |run: &StudyRun| run.records.iter().rev().find_map(|r| r.held_out).unwrap_or(f64::NAN);
    rows.push(row("held-out pass@1 at the end", &last));
    rows
}

/// The table in Markdown: means over all steps and seeds, with the range of the per-seed means.
pub fn markdown(runs: &[StudyRun]) -> String {
    let mut text = String::from("| | no replay | R2 | R3 |\n| --- | --- | --- | --- |\n");
    for (name, cells) in rows(runs) {
        text += &format!("| {} | {} |\n", name.replace('|', "\\|"), cells.join(" | "));
    }
    text
}

/// Renders the page.
pub fn study_html(config: &Config, runs: &[StudyRun]) -> Result<String> {
    let mut seeds: Vec<u64> = runs.iter().map(|run| run.seed).collect();
    seeds.dedup();
    let title = format!("{} · {} · seeds {seeds:?}", escape(&config.task), escape(&config.recipe));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Lockstep: routing replay</title><style>{STYLE}</style></head><body><main>\n\
         <h1>Routing replay</h1><p class=\"sub\">{title}</p>\n"
    );
    write!(
        page,
        "<p>For each seed one warm start, then {} RL steps of {} updates each without replay, with R2 (the \
         old policy's routing) and with R3 (the rollout's). The rollout's precision is {:?}. Means over \
         steps and seeds; in brackets the range of the seeds' means. What ran in the update is compared with \
         what ran in the rollout, unless a row says otherwise.</p>\n<table><tr><th></th>",
        config.rl.steps, config.rl.minibatches, config.rollout_precision
    )?;
    MODES.iter().for_each(|(_, name)| page += &format!("<th>{name}</th>"));
    page.push_str("</tr>");
    for (name, cells) in rows(runs) {
        write!(page, "<tr><td>{name}</td>")?;
        cells.iter().for_each(|cell| page += &format!("<td>{cell}</td>"));
        page.push_str("</tr>");
    }
    page.push_str("</table>\n<h2>Seed by seed</h2><table><tr><th>seed</th><th>replay</th>");
    page.push_str(
        "<th>routers that differ</th><th>tokens that differ</th><th>mean |Δ|, old \
         policy</th><th>mean |Δ|, update</th></tr>",
    );
    for run in runs {
        let numbers: [Field; 4] = [|m| m.differ, |m| m.tokens_differ, |m| m.gap_old, |m| m.gap_update];
        write!(page, "<tr><td>{}</td><td>{}</td>", run.seed, run.mode.name())?;
        numbers.iter().for_each(|f| page += &format!("<td>{}</td>", show(mean(run, *f))));
        page.push_str("</tr>");
    }
    page.push_str("</table>\n<h2>Over the steps (mean over seeds)</h2><section class=\"plots\">\n");
    for (title, y_label, f) in [
        ("Routers that ran other experts than in the rollout", "%", (|m| 100.0 * m.differ) as Field),
        ("Routers that would differ without replay", "%", |m| 100.0 * m.differ_live),
        ("Mean |Δ log-probability|, rollout and old policy", "nats per token", |m| m.gap_old),
        ("Mean |Δ log-probability|, rollout and update", "nats per token", |m| m.gap_update),
    ] {
        let line = |(mode, name): (Mode, &'static str), color| Series::Line {
            name,
            color,
            points: over_seeds(runs, mode, f),
            dots: false,
        };
        let lines = [line(MODES[0], ORANGE), line(MODES[1], GREEN), line(MODES[2], BLUE)];
        page += &Plot { title, y_label, y: None, log: false }.figure("RL step", &lines)?;
    }
    page.push_str("</section>\n");
    configuration(&mut page, config)?;
    page.push_str("</main></body></html>\n");
    Ok(page)
}

/// The mean over seeds at each step.
fn over_seeds(runs: &[StudyRun], mode: Mode, f: Field) -> Vec<(f64, f64)> {
    let runs: Vec<&StudyRun> = of(runs, mode).collect();
    let steps = runs.iter().map(|run| run.records.len()).min().unwrap_or(0);
    let at = |step: usize| {
        let values = runs.iter().filter_map(|run| run.records[step].routing.as_ref()).map(f);
        (step as f64 + 1.0, values.sum::<f64>() / runs.len() as f64)
    };
    (0..steps).map(at).collect()
}
