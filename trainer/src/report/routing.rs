//! The routing section of a report.

use anyhow::Result;

use super::mean;
use super::plot::{BLUE, GREEN, ORANGE, PURPLE, Plot, Series};
use super::table::Table;
use crate::routing::Mismatches;
use crate::train::RlRecord;

/// Reads one number of a step's routing.
type Field = fn(&Mismatches) -> f64;

/// The routing numbers shown: label, and how to read it from a step.
const ROWS: [(&str, Field); 13] = [
    ("routers that ran other experts than in the rollout", |m| m.differ),
    ("tokens with such a router", |m| m.tokens_differ),
    ("such layers a token", |m| m.layers_per_token),
    ("overlap of the experts", |m| m.overlap),
    ("routers that ran other experts than for the old policy", |m| m.differ_old),
    ("routers that would differ from the rollout without replay", |m| m.differ_live),
    ("KL of gates, rollout to update, where experts agree, nats", |m| m.gate_kl),
    ("KL of gates, replayed to live (our reading), nats", |m| m.replay_kl),
    ("mean |Δ log-probability|, rollout and old policy, nats", |m| m.gap_old),
    ("mean |Δ log-probability|, rollout and update, nats", |m| m.gap_update),
    ("routers compared", |m| m.routers as f64),
    ("router rows replayed", |m| m.replayed as f64),
    ("load-balance loss", |m| m.balance),
];

/// Formats a number for a table.
pub(super) fn show(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        size if size < 1e-3 => format!("{x:.2e}"),
        size if size < 100.0 => format!("{x:.4}"),
        _ => format!("{x:.0}"),
    }
}

/// The steps with recorded routing.
fn recorded<'a>(rl: &'a [&RlRecord]) -> Vec<(u64, &'a Mismatches)> {
    rl.iter().filter_map(|r| Some((r.step, r.routing.as_ref()?))).collect()
}

/// The plots; none if no routing was recorded.
pub(super) fn plots(rl: &[&RlRecord]) -> Result<Vec<String>> {
    let steps = recorded(rl);
    if steps.is_empty() {
        return Ok(Vec::new());
    }
    let line = |name, color, f: Field| Series::Line {
        name,
        color,
        points: steps.iter().map(|(step, m)| (*step as f64, f(m))).collect(),
        dots: false,
    };
    let plot = |title, y_label| Plot { title, y_label, y: None, log: false };
    let x = "RL step";
    Ok(vec![
        plot("Routing: other experts in the update than in the rollout", "%").figure(
            x,
            &[
                line("routers", BLUE, |m| 100.0 * m.differ),
                line("tokens", ORANGE, |m| 100.0 * m.tokens_differ),
                line("routers, had nothing been replayed", GREEN, |m| 100.0 * m.differ_live),
                line("routers, against the old policy", PURPLE, |m| 100.0 * m.differ_old),
            ],
        )?,
        plot("Routing: KL of gates", "nats per router").figure(
            x,
            &[
                line("rollout to update, same experts", BLUE, |m| m.gate_kl),
                line("replayed to live", ORANGE, |m| m.replay_kl),
            ],
        )?,
        plot("Rollout and trainer: mean |Δ log-probability|", "nats per token").figure(
            x,
            &[
                line("rollout and old policy", BLUE, |m| m.gap_old),
                line("rollout and update", ORANGE, |m| m.gap_update),
            ],
        )?,
    ])
}

/// Tables of means over the first and the last tenth of the steps, and per layer over all steps.
pub(super) fn tables(rl: &[&RlRecord]) -> String {
    let steps = recorded(rl);
    let Some((_, any)) = steps.first() else { return String::new() };
    let part = steps.len().div_ceil(10).max(1);
    let shown = |mean: Option<f64>| mean.map_or("–".to_owned(), show);
    let mut ends = Table::of_ends(part);
    for (name, f) in ROWS {
        let of = |steps: &[(u64, &Mismatches)]| shown(mean(steps.iter().map(|(_, m)| f(m))));
        ends.rows.push(vec![name.to_owned(), of(&steps[..part]), of(&steps[steps.len() - part..])]);
    }
    let head = ["layer", "routers that differ", "KL, rollout to update", "KL, replayed to live"];
    let mut layers = Table::new(head);
    for layer in 0..any.differ_layers.len() {
        let of = |f: fn(&Mismatches) -> &Vec<f64>| {
            shown(mean(steps.iter().filter_map(|(_, m)| f(m).get(layer).copied())))
        };
        layers.rows.push(vec![
            layer.to_string(),
            of(|m| &m.differ_layers),
            of(|m| &m.gate_kl_layers),
            of(|m| &m.replay_kl_layers),
        ]);
    }
    let title = "<h2>Routing, layer by layer (mean over all steps)</h2>";
    format!("<h2>Routing</h2>{}{title}{}", ends.html(), layers.html())
}
