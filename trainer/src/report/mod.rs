//! `report.html`: a self-contained page, with plots as inline SVG, no scripts and nothing to fetch.

mod plot;
mod routing;
mod study;
mod table;

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;

use crate::config::{Config, rows};
use crate::train::{EngineRecord, Record, RlRecord, WarmRecord};
use plot::{BLUE, GREEN, ORANGE, PURPLE, Plot, Series};
use table::Table;

pub use study::{html as study_html, markdown as study_markdown, verdicts as study_verdicts};

const STYLE: &str = include_str!("style.css");

/// The beginning of a page, up to the line `below` its heading. `refresh` is HTML that makes the browser read
/// the page again.
pub(crate) fn head(title: &str, refresh: &str, heading: &str, below: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{refresh}\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Lockstep: {title}</title><style>{STYLE}</style></head><body><main>\n\
         <h1>{heading}</h1><p class=\"sub\">{below}</p>\n"
    )
}

/// What says how good a policy is: after the warm start and after the last RL step.
pub fn before_and_after(records: &[Record]) -> (Option<f64>, Option<f64>) {
    let (warm, rl) = split(records);
    let before = warm.iter().rev().find_map(|r| r.measured());
    (before, rl.iter().rev().find_map(|r| r.measured()))
}

/// Its name, in a game or in another task.
pub(crate) fn measure(game: bool) -> &'static str {
    if game { "exploitability" } else { "held-out pass@1" }
}

/// Its value as text.
pub(crate) fn shown(game: bool, value: f64) -> String {
    if game { format!("{value:.4}") } else { format!("{:.1} %", 100.0 * value) }
}

/// Reads one number of a step.
type Field = fn(&RlRecord) -> f64;

fn split(records: &[Record]) -> (Vec<&WarmRecord>, Vec<&RlRecord>) {
    let (mut warm, mut rl) = (Vec::new(), Vec::new());
    for record in records {
        match record {
            Record::Warm(r) => warm.push(r),
            Record::Rl(r) => rl.push(&**r),
        }
    }
    (warm, rl)
}

/// How often the page of a run that goes on is written, and read again by the browser.
pub const EVERY: Duration = Duration::from_secs(2);

/// Renders the page; that of a run that goes on says how far it is, and refreshes itself.
pub fn html(config: &Config, records: &[Record], seconds: &[f64], running: bool) -> Result<String> {
    let (warm, rl) = split(records);
    let (before, after) = before_and_after(records);
    let game = config.game().is_some();
    let show = |x: Option<f64>| x.map_or("–".to_owned(), |x| shown(game, x));
    let title = format!("{} · {} · seed {}", escape(&config.task), escape(&config.recipe), config.seed);
    let (mut refresh, mut progress) = (String::new(), String::new());
    if running {
        refresh = format!("<meta http-equiv=\"refresh\" content=\"{}\">", EVERY.as_secs());
        progress = match rl.last() {
            Some(last) => format!(" · running: step {} of {}", last.step, config.rl.steps),
            None => {
                format!(" · running: warm-start step {} of at most {}", warm.len(), config.warm.max_steps)
            }
        };
    }
    let mut page = head(&title, &refresh, "Lockstep training report", &format!("{title}{progress}"));
    page.push_str("<section class=\"cards\">");
    let warm_seconds = seconds.iter().take(warm.len()).sum::<f64>();
    let rl_seconds = seconds.iter().skip(warm.len()).sum::<f64>();
    for (value, what) in [
        (show(before), format!("{} after the warm start", measure(game))),
        (show(after), format!("{} after RL", measure(game))),
        (rl.len().to_string(), "RL steps".to_owned()),
        (format!("{warm_seconds:.0} s + {rl_seconds:.0} s"), "warm start + RL".to_owned()),
    ] {
        write!(page, "<div><b>{value}</b><span>{what}</span></div>")?;
    }
    page.push_str("</section>\n");
    page.push_str("<p>");
    match game {
        true => page.push_str(
            "Exploitability: what best responses to the policy (in TicTacToe: the best perfect players) win \
             in the mean over both roles, exact, from the weights as they sample; 0 in an equilibrium. \
             Rewards are zero-sum: their mean is 0.",
        ),
        false => write!(
            page,
            "Held-out pass@1: one sampled response at temperature 1 for each of at most {} problems that are \
             never trained on, from {}.",
            config.measure.problems,
            config.precision.rollout.policy()
        )?,
    }
    page.push_str(
        " The RL phase sees rewards only; its advantages, \
         losses and gradients dL/dlogp are computed by Lockstep. Ratio, clip and loss statistics are over \
         all tokens that a step learns from (groups whose rewards differ), each with the log-probability it \
         had in its own update.</p>\n<section class=\"plots\">\n",
    );
    page.push_str(&plots(config, &warm, &rl)?.join("\n"));
    page.push_str(&engine_plots(&rl)?.join("\n"));
    page.push_str(&routing::plots(&rl)?.join("\n"));
    page.push_str("</section>\n");
    page += &comparison([measure(game).to_owned(), show(before), show(after)], &rl);
    page += &routing::tables(&rl);
    configuration(&mut page, config)?;
    page.push_str("</main></body></html>\n");
    Ok(page)
}

fn plots(config: &Config, warm: &[&WarmRecord], rl: &[&RlRecord]) -> Result<Vec<String>> {
    let game = config.game().is_some();
    // Rewards that are more than right or wrong.
    let shaped = config.rl.rubric.is_some() || config.rl.length_reward > 0.0;
    let of = |f: Field| rl.iter().map(|r| (r.step as f64, f(r))).collect::<Vec<_>>();
    // Only the steps that have the number.
    let known = |f: fn(&RlRecord) -> Option<f64>| {
        rl.iter().filter_map(|r| Some((r.step as f64, f(r)?))).collect::<Vec<_>>()
    };
    let line = |name, color, f| Series::Line { name, color, points: of(f), dots: false };
    let band = |name, color, low: Field, high: Field| {
        // Only where both of its edges are numbers.
        let both = of(low).into_iter().zip(of(high)).filter(|(a, b)| a.1.is_finite() && b.1.is_finite());
        let (low, high) = both.unzip();
        Series::Band { name, color, low, high }
    };
    let start = warm.iter().rev().find_map(|r| r.measured()).map(|p| (0.0, p));
    let measured = Series::Line {
        name: measure(game),
        color: ORANGE,
        points: start.into_iter().chain(known(RlRecord::measured)).collect(),
        dots: true,
    };
    // Nothing where no step has the number.
    let optional = |name, color, f| {
        let points = known(f);
        (!points.is_empty()).then_some(Series::Line { name, color, points, dots: false })
    };
    let warm_figure = |plot: Plot<'static>, name, color, f: fn(&WarmRecord) -> f64| {
        let points = warm.iter().map(|r| (r.step as f64, f(r))).collect();
        plot.figure("warm-start step", &[Series::Line { name, color, points, dots: true }])
    };
    let plot = |title, y_label| Plot { title, y_label, y: None, log: false };
    let fractions = |title, y_label| Plot { y: Some((0.0, 1.0)), ..plot(title, y_label) };
    let x = "RL step";
    let first = match game {
        true => plot("Exploitability", "mean gain of a best response").figure(x, &[measured])?,
        false => {
            let reward = line("mean reward", BLUE, |r| r.reward);
            let clean = if shaped { "by the verifier" } else { "before flips" };
            let clean = optional(clean, GREEN, |r| r.clean_reward);
            let series: Vec<Series> = [reward, measured].into_iter().chain(clean).collect();
            let y_label = if shaped { "mean reward" } else { "fraction solved" };
            fractions("Reward and held-out pass@1", y_label).figure(x, &series)?
        }
    };
    let (passes, y_label, sampled) = match game {
        true => ("Warm start: games by the rules", "fraction of games", "sampled games"),
        false => ("Warm start: training problems solved", "fraction solved", "training problems, sampled"),
    };
    let mut plots = vec![
        first,
        Plot { log: true, ..plot("Importance ratio: spread", "ratio") }.figure(
            x,
            &[
                band("min to max", BLUE, |r| r.ratio_min.max(1e-3), |r| r.ratio_max),
                band(
                    "mean ± std",
                    ORANGE,
                    |r| (r.ratio_mean - r.ratio_std).max(1e-3),
                    |r| r.ratio_mean + r.ratio_std,
                ),
                line("mean", INKED, |r| r.ratio_mean),
            ],
        )?,
        plot("KL within a step: old to current policy", "nats per token")
            .figure(x, &[line("approx. KL (k1)", BLUE, |r| r.approx_kl)])?,
        plot("KL from the warm start", "nats per token")
            .figure(x, &[line("KL(policy ‖ warm start), k1", PURPLE, |r| r.drift_k1)])?,
        plot("Clipping", "% of tokens").figure(
            x,
            &[
                line("upper clip (A > 0)", BLUE, |r| 100.0 * r.clip_high),
                line("lower clip (A < 0)", ORANGE, |r| 100.0 * r.clip_low),
                line("dual clip (A < 0)", GREEN, |r| 100.0 * r.clip_dual),
            ],
        )?,
        plot("Gate and effective sample size", "fraction").figure(
            x,
            &[
                line("mean gate weight", BLUE, |r| r.gate_mean),
                line("effective sample size", ORANGE, |r| r.ess),
                line("ratio in the band", GREEN, |r| r.in_band),
            ],
        )?,
        plot("Entropy of the policy (sampled)", "nats per token")
            .figure(x, &[line("−mean log-probability", BLUE, |r| r.entropy)])?,
        Plot { log: true, ..plot("Training-inference mismatch: ratio trainer / engine", "ratio") }.figure(
            x,
            &[
                band("min to max", BLUE, |r| r.mismatch_min.max(1e-3), |r| r.mismatch_max),
                band("1 ± std", ORANGE, |r| (1.0 - r.mismatch_std).max(1e-3), |r| 1.0 + r.mismatch_std),
            ],
        )?,
        plot("Training-inference mismatch: KL(engine ‖ trainer)", "nats per token")
            .figure(x, &[line("k1", BLUE, |r| r.mismatch_k1), line("k3", ORANGE, |r| r.mismatch_k3)])?,
        fractions("Groups without a signal", "fraction of groups")
            .figure(x, &[line("all rewards equal", PURPLE, |r| r.constant_groups)])?,
        warm_figure(plot("Warm start: loss", "nats per token"), "supervised loss", BLUE, |r| r.loss)?,
        warm_figure(fractions(passes, y_label), sampled, ORANGE, |r| r.training_pass)?,
    ];
    if let Some(loss) = optional("value loss", BLUE, |r| r.value_loss) {
        plots.push(plot("Critic", "mean loss of a token's value").figure(x, &[loss])?);
    }
    if let Some(calls) = optional("mean", BLUE, |r| r.calls) {
        plots.push(plot("Calls of the tool", "calls of a response").figure(x, &[calls])?);
    }
    Ok(plots)
}

/// The plots of the engine beside the trainer; none without one.
fn engine_plots(rl: &[&RlRecord]) -> Result<Vec<String>> {
    let steps: Vec<_> = rl.iter().filter_map(|r| Some((r.step as f64, r.engine.as_ref()?))).collect();
    if steps.is_empty() {
        return Ok(Vec::new());
    }
    let line = |name, color, f: fn(&EngineRecord) -> f64| {
        let points = steps.iter().map(|(step, engine)| (*step, f(engine))).collect();
        Series::Line { name, color, points, dots: false }
    };
    let plot = |title, y_label| Plot { title, y_label, y: None, log: false };
    let x = "RL step";
    Ok(vec![
        plot("Engine: throughput so far", "tokens per unit of simulated time")
            .figure(x, &[line("tokens handed over", BLUE, |e| e.tokens as f64 / e.clock)])?,
        Plot { y: Some((0.0, 1.0)), ..plot("Engine: room and staleness", "fraction") }.figure(
            x,
            &[
                line("room left empty so far", BLUE, |e| e.idle),
                line("tokens of an older policy", ORANGE, |e| e.off_policy),
                line("responses of several policies", GREEN, |e| e.stitched),
            ],
        )?,
        plot("Engine: oldest token of a step", "policy versions")
            .figure(x, &[line("age", PURPLE, |e| e.oldest as f64)])?,
    ])
}

const INKED: plotters::style::RGBColor = plotters::style::RGBColor(55, 60, 70);

/// The mean of the values that are finite, if any is.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Compares the first and the last tenth of the RL phase.
fn comparison([measure, before, after]: [String; 3], rl: &[&RlRecord]) -> String {
    let part = rl.len().div_ceil(10).max(1);
    let first: Vec<_> = rl.iter().take(part).collect();
    let last: Vec<_> = rl.iter().rev().take(part).collect();
    let mut table = Table::of_ends(part);
    table.rows.push(vec![format!("{measure} (before the first, after the last)"), before, after]);
    let lines: [(&str, Field); 9] = [
        ("mean reward", |r| r.reward),
        ("groups without a signal", |r| r.constant_groups),
        ("tokens of a response", |r| r.response_tokens),
        ("entropy, nats per token", |r| r.entropy),
        ("ratio, standard deviation", |r| r.ratio_std),
        ("tokens clipped", |r| r.clip_high + r.clip_low + r.clip_dual),
        ("KL from the warm start, k1", |r| r.drift_k1),
        ("mismatch, k3", |r| r.mismatch_k3),
        ("length of the gradient", |r| r.grad_norm),
    ];
    for (name, f) in lines {
        let show = |part: &[&&RlRecord]| match mean(part.iter().map(|r| f(r))) {
            Some(x) if x != 0.0 && x.abs() < 1e-3 => format!("{x:.2e}"),
            Some(x) => format!("{x:.4}"),
            None => "–".to_owned(),
        };
        table.rows.push(vec![name.to_owned(), show(&first), show(&last)]);
    }
    format!("<h2>Before and after</h2>{}", table.html())
}

fn configuration(page: &mut String, config: &Config) -> Result<()> {
    page.push_str("<h2>Configuration</h2><div class=\"config\"><table>");
    for (name, value) in rows(config)?.iter().filter(|(name, _)| name != "recipe_toml") {
        write!(page, "<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(value))?;
    }
    writeln!(page, "</table><pre>{}</pre></div>", escape(&config.recipe_toml))?;
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::Mismatches;

    /// Rewards beyond 0 and 1 are drawn where they are, under what they are called.
    #[test]
    fn shaped_rewards_have_their_own_axis() {
        let mut config = Config::new("addition:1", "grpo").unwrap();
        let mut first = |rubric, reward| {
            config.rl.rubric = rubric;
            let rl = RlRecord { step: 1, reward, clean_reward: Some(0.5), ..RlRecord::default() };
            plots(&config, &[], &[&rl]).unwrap().swap_remove(0)
        };
        let (plain, shaped) = (first(None, 0.25), first(Some([1.0, 0.0, -2.0]), -1.5));
        assert!(plain.contains("fraction solved") && plain.contains("before flips"), "{plain}");
        assert!(shaped.matches("mean reward").count() == 2 && shaped.contains("by the verifier"), "{shaped}");
        assert!(shaped.contains("\n-1.5\n") && !plain.contains("\n-"), "{shaped}");
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        let config = Config::new("addition:1", "grpo").unwrap();
        let step = |step, x: f64| {
            let routing = Mismatches { differ_layers: vec![x], gate_kl: x, ..Mismatches::default() };
            let (ratio_max, drift_k1, grad_norm) = (x, x, f64::NAN);
            let rl = RlRecord {
                step,
                ratio_max,
                drift_k1,
                grad_norm,
                routing: Some(routing),
                ..RlRecord::default()
            };
            Record::Rl(Box::new(rl))
        };
        let warm = Record::Warm(WarmRecord { loss: f64::NAN, ..WarmRecord::default() });
        // 40 steps: the last tenth has four.
        let rl = (1..=40).map(|i| step(i, if i % 2 == 0 { f64::NAN } else { 0.375 }));
        let records: Vec<Record> = std::iter::once(warm).chain(rl).collect();
        let page = html(&config, &records, &[], false).unwrap();
        assert!(!page.contains("NaN") && !page.contains(">inf"), "{page}");
        for row in [
            "<td>KL from the warm start, k1</td><td>0.3750</td><td>0.3750</td>",
            "<td>length of the gradient</td><td>–</td><td>–</td>",
            "<td>0</td><td>0.3750</td>",
        ] {
            assert!(page.contains(row), "{row}");
        }
    }
}
