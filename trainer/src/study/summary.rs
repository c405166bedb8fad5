//! A study as numbers: what `study.json` holds and the reports show.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::definitions::{Arm, Comparison, Direction, Experiment, Plan, ZERO};
use super::metrics::{Metric, Run};
use super::runner::{Outcome, Stored};
use super::statistics::{ALPHA, Holm, Interval, holm, interval, p_value, testable, wilson};

/// Seeds without which nothing is judged.
const FEWEST_SEEDS: usize = 3;

/// A study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// The program's version.
    pub version: String,
    /// Whether the sizes were those of a trial, which is no evidence.
    pub quick: bool,
    /// Number of hypotheses that Holm's correction counts.
    pub family: usize,
    /// The experiments.
    pub experiments: Vec<Findings>,
}

/// What an experiment found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Findings {
    /// Its name.
    pub id: String,
    /// The claim.
    pub claim: String,
    /// The paper that makes it.
    pub source: String,
    /// What a reader has to know of the arms.
    pub note: String,
    /// Number of seeds.
    pub seeds: u64,
    /// Samples of each held-out problem at the end of a run.
    pub samples: usize,
    /// RL steps of a run.
    pub steps: u64,
    /// Number of weights of the largest model.
    pub weights: usize,
    /// Seconds by the clock of all runs, each on one core, added up.
    pub seconds: f64,
    /// The arms.
    pub arms: Vec<ArmFindings>,
    /// The comparisons.
    pub comparisons: Vec<Judgement>,
}

/// What the runs of an arm gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmFindings {
    /// The panel.
    pub panel: String,
    /// The arm.
    pub name: String,
    /// The configuration with the first seed, field by field.
    pub configuration: BTreeMap<String, String>,
    /// The messages of the runs that failed.
    pub failures: Vec<String>,
    /// Runs that collapsed, and Wilson's interval of their share; none without a finished run.
    pub collapsed: Option<(usize, [f64; 2])>,
    /// The metrics shown.
    pub metrics: Vec<Measured>,
}

/// A metric of an arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// One value a seed; none where the run failed or did not measure it.
    pub values: Vec<Option<f64>>,
    /// Mean and 95 % t-interval of the values.
    pub summary: Option<Interval>,
    /// The same over the RL steps.
    pub curve: Vec<(u64, Interval)>,
}

/// A comparison and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judgement {
    /// What is claimed.
    pub comparison: Comparison,
    /// Differences a − b, one a seed.
    pub differences: Vec<f64>,
    /// Their mean and 95 % t-interval.
    pub interval: Option<Interval>,
    /// p after Holm's correction, and the interval at the level of its step.
    pub adjusted: Option<(f64, Interval)>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Whether a claim was shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The adjusted interval lies in the claimed direction.
    Shown,
    /// It does not.
    NotShown,
    /// Nothing is judged, for this reason.
    None(String),
}

impl Comparison {
    /// The difference from which on the claim is false.
    fn null(&self) -> f64 {
        match self.expect {
            Direction::Higher => -self.margin,
            Direction::Lower => self.margin,
        }
    }

    /// Whether an interval lies in the claimed direction.
    fn holds(&self, interval: &Interval) -> bool {
        match self.expect {
            Direction::Higher => interval.low.is_some_and(|low| low > self.null()),
            Direction::Lower => interval.high.is_some_and(|high| high < self.null()),
        }
    }
}

/// Summarises the runs of all plans, and judges all their comparisons as one family.
pub fn summarise(plans: &[Plan], runs: &[Vec<Stored>], quick: bool, version: &str) -> Result<Study> {
    let each = plans.iter().zip(runs).map(|(plan, runs)| findings(plan, runs));
    let mut experiments: Vec<Findings> = each.collect::<Result<_>>()?;
    let judged: Vec<&mut Judgement> = experiments
        .iter_mut()
        .flat_map(|findings| &mut findings.comparisons)
        .filter(|judgement| judgement.verdict == Verdict::NotShown)
        .collect();
    let p = judged.iter().map(|one| p_value(&one.differences, one.comparison.null()));
    let adjusted = holm(&p.collect::<Result<Vec<f64>>>()?);
    let family = adjusted.len();
    for (judgement, Holm { p, alpha }) in judged.into_iter().zip(adjusted) {
        let interval = interval(&judgement.differences, alpha)?;
        if p <= ALPHA && judgement.comparison.holds(&interval) {
            judgement.verdict = Verdict::Shown;
        }
        judgement.adjusted = Some((p, interval));
    }
    Ok(Study { version: version.to_owned(), quick, family, experiments })
}

fn findings(plan: &Plan, runs: &[Stored]) -> Result<Findings> {
    let experiment = &plan.experiment;
    let arms: Vec<(String, &[Stored])> =
        plan.arms.iter().map(Arm::label).zip(runs.chunks(plan.seeds as usize)).collect();
    let judge = |comparison: Comparison| -> Result<Judgement> {
        let of = |label: &str| arms.iter().find(|(own, _)| own == label).context("an arm without runs");
        let a = of(&comparison.a)?.1;
        let b = if comparison.b == ZERO { None } else { Some(of(&comparison.b)?.1) };
        judge(comparison, a, b)
    };
    let each = plan.arms.iter().zip(&arms);
    Ok(Findings {
        id: experiment.id.clone(),
        claim: experiment.claim.clone(),
        source: experiment.source.clone(),
        note: experiment.note.clone(),
        seeds: plan.seeds,
        samples: plan.samples,
        steps: runs.iter().map(|run| run.config.rl.steps).max().unwrap_or(0),
        weights: runs.iter().filter_map(done).map(|run| run.weights).max().unwrap_or(0),
        seconds: runs.iter().map(|run| run.seconds).sum(),
        arms: each.map(|(arm, (_, runs))| arm_findings(arm, experiment, runs)).collect::<Result<_>>()?,
        comparisons: experiment.comparisons()?.into_iter().map(judge).collect::<Result<_>>()?,
    })
}

fn done(run: &Stored) -> Option<&Run> {
    match &run.outcome {
        Outcome::Done(run) => Some(run),
        Outcome::Failed(_) => None,
    }
}

fn arm_findings(arm: &Arm, experiment: &Experiment, runs: &[Stored]) -> Result<ArmFindings> {
    let finished: Vec<&Run> = runs.iter().filter_map(done).collect();
    let collapsed = finished.iter().filter(|run| run.collapsed()).count();
    let failure = |run: &Stored| match &run.outcome {
        Outcome::Failed(message) => Some(format!("seed {}: {message}", run.config.seed)),
        Outcome::Done(_) => None,
    };
    Ok(ArmFindings {
        panel: arm.panel.clone(),
        name: arm.name.clone(),
        configuration: crate::config::rows(&arm.config(experiment.first_seed)?)?.into_iter().collect(),
        failures: runs.iter().filter_map(failure).collect(),
        collapsed: (!finished.is_empty()).then(|| (collapsed, wilson(collapsed, finished.len()))),
        metrics: experiment.metrics.iter().map(|name| measured(name, runs)).collect::<Result<_>>()?,
    })
}

/// A metric over the runs of an arm.
fn measured(name: &str, runs: &[Stored]) -> Result<Measured> {
    let metric = Metric::named(name)?;
    let values: Vec<Option<f64>> = runs.iter().map(|run| metric.value(done(run)?)).collect();
    let known: Vec<f64> = values.iter().copied().flatten().collect();
    let mut points: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (step, y) in runs.iter().filter_map(done).flat_map(|run| metric.curve(run)) {
        points.entry(step).or_default().push(y);
    }
    let curve = points.into_iter().map(|(step, values)| Ok((step, interval(&values, ALPHA)?)));
    Ok(Measured {
        name: metric.name.clone(),
        unit: metric.unit.to_owned(),
        values,
        summary: (!known.is_empty()).then(|| interval(&known, ALPHA)).transpose()?,
        curve: curve.collect::<Result<_>>()?,
    })
}

/// Compares the runs of two arms seed by seed, or those of one with 0. A verdict of "not shown" still waits
/// for Holm's correction.
fn judge(comparison: Comparison, a: &[Stored], b: Option<&[Stored]>) -> Result<Judgement> {
    let metric = Metric::named(&comparison.metric)?;
    let value = |run: &Stored| metric.value(done(run)?);
    let pair = |(k, a)| Some(value(a)? - b.map_or(Some(0.0), |b| value(b.get(k)?))?);
    let pairs: Vec<Option<f64>> = a.iter().enumerate().map(pair).collect();
    let differences: Vec<f64> = pairs.iter().copied().flatten().collect();
    let failed = a.iter().chain(b.into_iter().flatten()).any(|run| done(run).is_none());
    let verdict = if failed {
        Verdict::None("a run failed".to_owned())
    } else if differences.len() < pairs.len() {
        Verdict::None("not measured".to_owned())
    } else if differences.len() < FEWEST_SEEDS {
        Verdict::None(format!("fewer than {FEWEST_SEEDS} seeds"))
    } else if !testable(&differences, comparison.null()) {
        Verdict::None("all differences are equal".to_owned())
    } else {
        Verdict::NotShown
    };
    // The pairs that are left would compare the survivors.
    let whole = !differences.is_empty() && differences.len() == pairs.len();
    let interval = whole.then(|| interval(&differences, ALPHA)).transpose()?;
    Ok(Judgement { comparison, differences, interval, adjusted: None, verdict })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::Definitions;

    fn comparison(expect: Direction, margin: f64) -> Comparison {
        Comparison { a: "a".into(), b: "b".into(), metric: "pass@1".into(), expect, margin }
    }

    /// Experiment `rate` begins at seed 101.
    #[test]
    fn the_configuration_shown_is_of_a_run() {
        let plan = &Definitions::built_in().unwrap().plan("rate", false, Some(0)).unwrap()[0];
        let shown = arm_findings(&plan.arms[0], &plan.experiment, &[]).unwrap().configuration;
        assert_eq!(shown["seed"], "101");
    }

    /// No worse than 2 points: the interval ends above −0.02, wherever its mean is.
    #[test]
    fn a_claim_holds_on_its_own_side_only() {
        let between = |low, high| Interval { mean: 0.5 * (low + high), low: Some(low), high: Some(high) };
        let (higher, lower) = (comparison(Direction::Higher, 0.0), comparison(Direction::Lower, 0.0));
        assert!(higher.holds(&between(0.01, 0.03)) && !higher.holds(&between(-0.01, 0.03)));
        assert!(!higher.holds(&between(-0.03, -0.01)) && lower.holds(&between(-0.03, -0.01)));
        let no_worse = comparison(Direction::Higher, 0.02);
        assert!(no_worse.holds(&between(-0.015, -0.005)) && !no_worse.holds(&between(-0.025, 0.1)));
        assert!(comparison(Direction::Lower, 0.02).holds(&between(0.005, 0.015)));
        assert!(!higher.holds(&Interval { mean: 1.0, low: None, high: None }));
    }
}
