//! The routing section of a report.

use std::fmt::Write;

use anyhow::Result;

use super::mean;
use super::plot::{BLUE, GREEN, ORANGE, PURPLE, Plot, Series};
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
pub(super) fn tables(page: &mut String, rl: &[&RlRecord]) -> Result<()> {
    let steps = recorded(rl);
    let Some((_, any)) = steps.first() else { return Ok(()) };
    let part = steps.len().div_ceil(10).max(1);
    let shown = |mean: Option<f64>| mean.map_or("–".to_owned(), show);
    write!(
        page,
        "<h2>Routing</h2><table><tr><th></th><th>first {part} RL step(s)</th><th>last {part}</th></tr>"
    )?;
    for (name, f) in ROWS {
        let ends = [&steps[..part], &steps[steps.len() - part..]]
            .map(|steps| shown(mean(steps.iter().map(|(_, m)| f(m)))));
        write!(page, "<tr><td>{name}</td><td>{}</td><td>{}</td></tr>", ends[0], ends[1])?;
    }
    page.push_str(
        "</table>\n<h2>Routing, layer by layer (mean over all steps)</h2><table><tr><th>layer</th>",
    );
    page.push_str(
        "<th>routers that differ</th><th>KL, rollout to update</th><th>KL, replayed to live</th></tr>",
    );
    for layer in 0..any.differ_layers.len() {
        let of = |f: fn(&Mismatches) -> &Vec<f64>| {
            shown(mean(steps.iter().filter_map(|(_, m)| f(m).get(layer).copied())))
        };
        write!(
            page,
            "<tr><td>{layer}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            of(|m| &m.differ_layers),
            of(|m| &m.gate_kl_layers),
            of(|m| &m.replay_kl_layers)
        )?;
    }
    page.push_str("</table>\n");
    Ok(())
}
