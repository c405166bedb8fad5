//! The pages of `lockstep study`.

use std::fmt::Write;

use anyhow::Result;

use super::plot::{COLORS, Plot, Series};
use super::routing::show;
use super::table::Table;
use super::{escape, head};
use crate::study::{
    ArmFindings, Definitions, Direction, Experiment, Findings, Interval, Judgement, Measured, SOLVED, Study,
    Verdict, label,
};

/// What a reader of either page has to know.
const METHOD: &str = include_str!("method.md");

/// The text above the table in docs/study.md.
const HEAD: &str = include_str!("study.md");

fn mean(interval: Option<&Interval>) -> String {
    match interval {
        Some(Interval { mean, low: Some(low), high: Some(high) }) => {
            format!("{} ({} to {})", show(*mean), show(*low), show(*high))
        }
        Some(Interval { mean, .. }) => show(*mean),
        None => "–".to_owned(),
    }
}

fn claim(judgement: &Judgement) -> String {
    let comparison = &judgement.comparison;
    let sign = match comparison.expect {
        Direction::Higher => '>',
        Direction::Lower => '<',
    };
    let margin = match (comparison.margin, comparison.expect) {
        (0.0, _) => String::new(),
        (margin, Direction::Higher) => format!(" − {margin}"),
        (margin, Direction::Lower) => format!(" + {margin}"),
    };
    format!("{}: {} {sign} {}{margin}", comparison.metric, comparison.a, comparison.b)
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Shown => "shown".to_owned(),
        Verdict::NotShown => "not shown".to_owned(),
        Verdict::None(why) => format!("no verdict: {why}"),
    }
}

fn p_text(p: f64) -> String {
    match p {
        // Too small to be exact, or even 0.
        ..1e-15 => "below 1e-15".to_owned(),
        ..1e-3 => format!("{p:.0e}"),
        _ => format!("{p:.3}"),
    }
}

/// The comparisons of experiments.
fn comparisons<'a>(experiments: impl IntoIterator<Item = &'a Findings>) -> Table {
    let head = ["", "claim", "difference (95 %)", "adjusted interval", "adjusted p", "verdict"];
    let mut table = Table::new(head);
    for findings in experiments {
        for judgement in &findings.comparisons {
            let adjusted = judgement.adjusted.as_ref();
            table.rows.push(vec![
                findings.id.clone(),
                claim(judgement),
                mean(judgement.interval.as_ref()),
                mean(adjusted.map(|(_, interval)| interval)),
                adjusted.map_or("–".to_owned(), |(p, _)| p_text(*p)),
                verdict(&judgement.verdict),
            ]);
        }
    }
    table
}

/// A metric of an arm; where only some of its runs have a value, also how many.
fn summary_text(metric: &Measured, runs: usize) -> String {
    let known = metric.values.iter().flatten().count();
    let all = mean(metric.summary.as_ref());
    if (1..runs).contains(&known) { format!("{all}, {known} of {runs} runs") } else { all }
}

/// The arms of an experiment with their metrics.
fn arms(findings: &Findings) -> Table {
    let mut table = Table::new(["panel", "arm"]);
    let Some(first) = findings.arms.first() else { return table };
    table.head.extend(first.metrics.iter().map(|m| format!("{}, {}", m.name, m.unit)));
    table.head.extend(["collapsed".to_owned(), "failed".to_owned()]);
    for arm in &findings.arms {
        let mut row = vec![arm.panel.clone(), arm.name.clone()];
        let runs = findings.seeds as usize - arm.failures.len();
        row.extend(arm.metrics.iter().map(|metric| summary_text(metric, runs)));
        row.push(arm.collapsed.map_or("–".to_owned(), |(count, [low, high])| {
            format!("{count} of {runs} ({:.0} to {:.0} %)", 100.0 * low, 100.0 * high)
        }));
        row.push(arm.failures.join("; "));
        table.rows.push(row);
    }
    table
}

/// Scale and cost in a sentence.
fn scale(findings: &Findings) -> String {
    format!(
        "{} arms, {} seeds, {} RL steps a run, {} samples of each held-out problem at the end; {} weights; \
         {:.0} s by the clock, runs on one core each added up.",
        findings.arms.len(),
        findings.seeds,
        findings.steps,
        findings.samples,
        findings.weights,
        findings.seconds
    )
}

/// The verdicts for a terminal.
pub fn verdicts(study: &Study) -> String {
    let mut text = String::new();
    for row in comparisons(&study.experiments).rows {
        text += &format!("{:<4} {:<70} {:<36} {}\n", row[0], row[1], row[2], row[5]);
    }
    for findings in &study.experiments {
        let failures = findings.arms.iter().flat_map(|arm| arm.failures.iter().map(move |f| (arm, f)));
        let name = |arm: &ArmFindings| label(&arm.panel, &arm.name);
        failures.for_each(|(arm, f)| text += &format!("{} {} failed: {f}\n", findings.id, name(arm)));
    }
    text + if study.quick { "a quick run: no evidence\n" } else { "" }
}

/// docs/study.md: the experiments and, if there is one, a study's results.
pub fn markdown(definitions: &Definitions, study: Option<&Study>) -> Result<String> {
    let mut table = Table::new(["", "claim", "source", "arms", "metrics", "cost, min"]);
    for experiment in &definitions.experiments {
        let Experiment { id, claim, source, needs, .. } = experiment;
        let mut row = vec![id.clone(), claim.clone(), source.clone()];
        row.extend(match needs {
            Some(needs) => [format!("needs: {needs}"), String::new(), String::new()],
            None => {
                let cost = format!("{:.0}", definitions.minutes(experiment));
                [experiment.arms_text(), experiment.metrics.join(", "), cost]
            }
        });
        table.rows.push(row);
    }
    let mut page = format!("{HEAD}{}\n## Method\n\n{METHOD}\n## Results\n\n", table.markdown());
    let Some(study) = study else {
        return Ok(page + "No full run has been recorded yet.\n");
    };
    if study.quick {
        page.push_str("**A quick run: no evidence.**\n\n");
    }
    writeln!(page, "Version {}; {} hypotheses.\n", study.version, study.family)?;
    page += &comparisons(&study.experiments).markdown();
    for findings in &study.experiments {
        let Findings { id, claim, source, note, .. } = findings;
        write!(page, "\n### {id}\n\n{claim} ({source}). {}\n\n{}\n\n", note.trim_end(), scale(findings))?;
        page += &arms(findings).markdown();
    }
    Ok(page)
}

/// The page of a study.
pub fn html(study: &Study) -> Result<String> {
    let quick = if study.quick { " · <b>a quick run: no evidence</b>" } else { "" };
    let below = format!("version {} · {} hypotheses{quick}", escape(&study.version), study.family);
    let mut page = head("study", "", "Lockstep study", &below);
    writeln!(page, "<p>{}</p>", escape(METHOD))?;
    page += &comparisons(&study.experiments).html();
    for findings in &study.experiments {
        section(&mut page, findings)?;
    }
    page.push_str("</main></body></html>\n");
    Ok(page)
}

fn section(page: &mut String, findings: &Findings) -> Result<()> {
    let Findings { id, claim, source, note, .. } = findings;
    let [id, claim, source, note] = [id, claim, source, note].map(|text| escape(text));
    writeln!(page, "<h2>{id}: {claim}</h2><p class=\"sub\">{source} · {}</p><p>{note}</p>", scale(findings))?;
    *page += &arms(findings).html();
    *page += &comparisons([findings]).html();
    page.push_str("<section class=\"plots\">\n");
    let mut panels: Vec<&str> = findings.arms.iter().map(|arm| &*arm.panel).collect();
    panels.dedup();
    for index in 0..findings.arms.first().map_or(0, |arm| arm.metrics.len()) {
        for panel in &panels {
            let arms = findings.arms.iter().filter(|arm| arm.panel == *panel);
            *page += &figure(panel, &arms.map(|arm| (arm, &arm.metrics[index])).collect::<Vec<_>>())?;
        }
    }
    page.push_str("</section>\n<details><summary>Configuration</summary>");
    *page += &configurations(findings).html();
    page.push_str("</details>\n");
    Ok(())
}

/// A metric over the steps: a line and the band of its 95 % interval for each arm; nothing without curves.
fn figure(panel: &str, arms: &[(&ArmFindings, &Measured)]) -> Result<String> {
    let Some((_, metric)) = arms.iter().find(|(_, metric)| !metric.curve.is_empty()) else {
        return Ok(String::new());
    };
    let mut series = Vec::new();
    for ((_, metric), color) in arms.iter().zip(COLORS.into_iter().cycle()) {
        let points = |end: fn(&Interval) -> Option<f64>| -> Vec<(f64, f64)> {
            metric.curve.iter().filter_map(|(step, of)| Some((*step as f64, end(of)?))).collect()
        };
        let (low, high) = (points(|of| of.low), points(|of| of.high));
        series.push(Series::Band { name: "", color, low, high });
    }
    for ((arm, metric), color) in arms.iter().zip(COLORS.into_iter().cycle()) {
        let points = metric.curve.iter().map(|(step, of)| (*step as f64, of.mean)).collect();
        series.push(Series::Line { name: &arm.name, color, points, dots: metric.curve.len() < 12 });
    }
    let title = if panel.is_empty() { metric.name.clone() } else { format!("{} · {panel}", metric.name) };
    let share = metric.unit == SOLVED;
    let plot = Plot { title: &title, y_label: &metric.unit, y: share.then_some((0.0, 1.0)), log: false };
    plot.figure("RL step", &series)
}

/// The configurations: what is the same for all arms once, then what differs.
fn configurations(findings: &Findings) -> Table {
    let mut table = Table::new([""]);
    table.head.extend(findings.arms.iter().map(|arm| label(&arm.panel, &arm.name)));
    let mut names: Vec<&String> = findings.arms.iter().flat_map(|arm| arm.configuration.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let of = |arm: &ArmFindings| arm.configuration.get(name).cloned().unwrap_or_default();
        let values: Vec<String> = findings.arms.iter().map(of).collect();
        let all_alike = values.iter().all(|value| *value == values[0]);
        let mut row = vec![name.clone()];
        row.extend(values.into_iter().take(if all_alike { 1 } else { usize::MAX }));
        table.rows.push(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_says_how_many_runs_have_a_value() {
        let text = |values: &[Option<f64>]| {
            let summary =
                values.iter().flatten().next().map(|x| Interval { mean: *x, low: None, high: None });
            let (name, unit) = (String::new(), String::new());
            summary_text(&Measured { name, unit, values: values.to_vec(), summary, curve: Vec::new() }, 2)
        };
        assert_eq!([text(&[Some(2.0), None]), text(&[Some(2.0); 2])], ["2.0000, 1 of 2 runs", "2.0000"]);
        assert_eq!(text(&[None; 2]), "–");
    }

    #[test]
    fn p_values_are_readable() {
        assert_eq!([0.0, 2e-15, 0.04].map(p_text), ["below 1e-15", "2e-15", "0.040"]);
    }
}
