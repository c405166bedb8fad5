//! What is measured in a run, over its steps and as one number.

use anyhow::{Result, bail};
use lockstep::schedules::entropy_law::EntropyLaw;
use serde::{Deserialize, Serialize};

use super::statistics::correlation;
use crate::routing::Mismatches;
use crate::train::RlRecord;

/// A finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Number of weights.
    pub weights: usize,
    /// Held-out pass@1 of the warm start, one sample a problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<f64>,
    /// In a game its exploitability instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_exploitability: Option<f64>,
    /// The RL steps.
    pub records: Vec<RlRecord>,
    /// Held-out pass@k at the end, for k = 1, 2, 4, …
    pub pass_at: Vec<f64>,
}

/// The unit of pass rates.
pub(crate) const SOLVED: &str = "fraction solved";

/// The unit of exploitability.
const EXPLOITED: &str = "mean gain of a best response";

/// A run has collapsed if its last pass@1 is below this share of its best.
const COLLAPSE: f64 = 0.5;
/// The pass@1 for which time and rollouts are taken.
const TARGET: f64 = 0.5;

type Curve = fn(&RlRecord) -> Option<f64>;

/// How a run is reduced to one number.
#[derive(Clone, Copy)]
enum Value {
    /// The curve's mean over the steps.
    Mean,
    /// Its mean over the last tenth of the steps.
    End,
    /// Its last value.
    Last,
    /// Its smallest value.
    Least,
    /// pass@k at the end.
    PassAt(usize),
    /// Something else.
    Of(fn(&Run) -> Option<f64>),
}

/// A metric.
pub struct Metric {
    /// Its name.
    pub name: String,
    /// The unit of its values.
    pub unit: &'static str,
    curve: Option<Curve>,
    value: Value,
}

fn routing(record: &RlRecord, f: fn(&Mismatches) -> f64) -> Option<f64> {
    record.routing.as_ref().map(f)
}

fn throughput(record: &RlRecord) -> Option<f64> {
    record.engine.as_ref().map(|engine| engine.tokens as f64 / engine.clock)
}

const TABLE: [(&str, &str, Option<Curve>, Value); 25] = [
    ("peak pass@1", SOLVED, Some(|r| r.held_out), Value::Of(Run::peak)),
    ("exploitability", EXPLOITED, Some(|r| r.exploitability), Value::End),
    ("lowest exploitability", EXPLOITED, Some(|r| r.exploitability), Value::Least),
    ("pass@1 kept", "last pass@1, fraction of the best", None, Value::Of(Run::kept)),
    ("reward", "mean reward", Some(|r| Some(r.reward)), Value::End),
    ("entropy", "nats per token", Some(|r| Some(r.entropy)), Value::End),
    ("blame", "of a wrong response's first wrong token, 1 if all alike", Some(|r| r.blame), Value::Mean),
    ("entropy fit", "R²", None, Value::Of(entropy_fit)),
    ("ratio spread", "standard deviation of the ratio", Some(|r| Some(r.ratio_std)), Value::Mean),
    ("sample size", "effective, as a fraction", Some(|r| Some(r.ess)), Value::Mean),
    ("gradient variance", "of an update", Some(|r| r.grad_variance), Value::Mean),
    ("variance and sample size", "correlation over the steps", None, Value::Of(variance_and_sample_size)),
    ("mismatch k3", "nats per token", Some(|r| Some(r.mismatch_k3)), Value::Mean),
    ("tokens per time", "tokens per unit of simulated time", Some(throughput), Value::Last),
    ("idle share", "fraction of the room", Some(|r| Some(r.engine.as_ref()?.idle)), Value::Last),
    ("off-policy", "fraction of tokens", Some(|r| Some(r.engine.as_ref()?.off_policy)), Value::Mean),
    ("age", "versions of the oldest token", Some(|r| Some(r.engine.as_ref()?.oldest as f64)), Value::Mean),
    ("useful groups", "fraction of groups", Some(|r| Some(1.0 - r.constant_groups)), Value::Mean),
    ("rollouts to target", "rollouts", None, Value::Of(rollouts_to_target)),
    ("time to target", "units of simulated time", None, Value::Of(time_to_target)),
    ("routers that differ", "fraction, to the rollout", Some(|r| routing(r, |m| m.differ)), Value::Mean),
    (
        "tokens that differ",
        "fraction, to the rollout",
        Some(|r| routing(r, |m| m.tokens_differ)),
        Value::Mean,
    ),
    (
        "routers off the old policy",
        "fraction, to the old policy",
        Some(|r| routing(r, |m| m.differ_old)),
        Value::Mean,
    ),
    (
        "mean gap",
        "mean |Δ log-probability| to the old policy, nats",
        Some(|r| routing(r, |m| m.gap_old)),
        Value::Mean,
    ),
    (
        "update gap",
        "mean |Δ log-probability| to the update, nats",
        Some(|r| routing(r, |m| m.gap_update)),
        Value::Mean,
    ),
];

impl Metric {
    /// Finds a metric: one of the table, or `pass@K` with a power of two K.
    ///
    /// Errors: an unknown name; the message lists those that exist.
    pub fn named(name: &str) -> Result<Self> {
        if let Some((_, unit, curve, value)) = TABLE.iter().find(|(own, ..)| *own == name) {
            return Ok(Self { name: name.to_owned(), unit, curve: *curve, value: *value });
        }
        let k = name.strip_prefix("pass@").and_then(|k| k.parse::<usize>().ok());
        match k.filter(|k| k.is_power_of_two()) {
            Some(k) => Ok(Self {
                name: name.to_owned(),
                unit: SOLVED,
                curve: (k == 1).then_some(|r| r.held_out),
                value: Value::PassAt(k.ilog2() as usize),
            }),
            None => {
                let names = TABLE.map(|(name, ..)| name).join(", ");
                bail!("unknown metric '{name}': expected pass@K with a power of two K, or one of {names}")
            }
        }
    }

    /// The points over the steps at which it was measured; none if it has no curve.
    pub fn curve(&self, run: &Run) -> Vec<(u64, f64)> {
        let Some(curve) = self.curve else { return Vec::new() };
        let start = match self.unit {
            SOLVED => run.start,
            EXPLOITED => run.start_exploitability,
            _ => None,
        };
        start
            .map(|start| (0, start))
            .into_iter()
            .chain(run.records.iter().filter_map(|r| Some((r.step, curve(r)?))))
            .collect()
    }

    /// The run as one number; none if the run did not measure it.
    pub fn value(&self, run: &Run) -> Option<f64> {
        let values: Vec<f64> =
            self.curve.map(|curve| run.records.iter().filter_map(curve).collect()).unwrap_or_default();
        let mean =
            |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        match self.value {
            Value::Mean => mean(&values),
            Value::End => mean(&values[values.len() - values.len().div_ceil(10)..]),
            Value::Last => values.last().copied(),
            Value::Least => values.into_iter().reduce(f64::min),
            Value::PassAt(power) => run.pass_at.get(power).copied(),
            Value::Of(value) => value(run),
        }
    }
}

impl Run {
    /// Held-out pass@1 of the warm start and of every evaluation.
    fn evaluations(&self) -> impl Iterator<Item = f64> {
        self.start.into_iter().chain(self.records.iter().filter_map(|r| r.held_out))
    }

    fn peak(&self) -> Option<f64> {
        self.evaluations().reduce(f64::max)
    }

    /// The last pass@1 as a share of the best; none if nothing was ever solved.
    fn kept(&self) -> Option<f64> {
        let peak = self.peak().filter(|peak| *peak > 0.0)?;
        self.evaluations().last().map(|last| last / peak)
    }

    /// Whether it has lost most of what it had reached; in a game, whether it is easier to exploit than the
    /// warm start.
    pub fn collapsed(&self) -> bool {
        if let Some(start) = self.start_exploitability {
            return self.records.iter().rev().find_map(|r| r.exploitability).is_some_and(|last| last > start);
        }
        self.kept().is_some_and(|share| share < COLLAPSE)
    }
}

/// How well mean reward is a line over e^entropy.
fn entropy_fit(run: &Run) -> Option<f64> {
    let of = |f: fn(&RlRecord) -> f64| run.records.iter().map(f).collect::<Vec<_>>();
    EntropyLaw::fit(&of(|r| r.entropy), &of(|r| r.reward)).ok()?.r_squared
}

/// How the logarithm of the gradients' variance goes with the effective sample size.
fn variance_and_sample_size(run: &Run) -> Option<f64> {
    let measured = run.records.iter().filter_map(|r| Some((r.ess, r.grad_variance?.ln())));
    let (sizes, variances): (Vec<f64>, Vec<f64>) = measured.unzip();
    correlation(&sizes, &variances)
}

/// What was spent up to the first evaluation at the target: nothing if the warm start is there. None without
/// such an evaluation: what the run spent in all would favour the arms that stop early.
fn to_target(run: &Run, spent: fn(&RlRecord) -> Option<f64>) -> Option<f64> {
    let there = |pass: Option<f64>| pass.is_some_and(|pass| pass >= TARGET);
    if there(run.start) {
        return spent(run.records.first()?).map(|_| 0.0);
    }
    spent(run.records.iter().find(|r| there(r.held_out))?)
}

/// The simulated time to the target.
fn time_to_target(run: &Run) -> Option<f64> {
    to_target(run, |r| Some(r.engine.as_ref()?.clock))
}

/// The rollouts sampled up to the target.
fn rollouts_to_target(run: &Run) -> Option<f64> {
    to_target(run, |r| Some(r.rollouts?.total as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::RolloutCount;

    fn run(held_out: &[f64]) -> Run {
        let record = |(step, pass): (u64, &f64)| RlRecord {
            step,
            constant_groups: 0.25 * step as f64,
            rollouts: Some(RolloutCount { step: 8, total: 8 * step }),
            held_out: Some(*pass),
            entropy: *pass,
            reward: 1.0 - pass.exp(),
            ..RlRecord::default()
        };
        let records = (1..).zip(held_out).map(record).collect();
        Run { weights: 1, start: Some(0.3), start_exploitability: None, records, pass_at: vec![0.5, 0.75] }
    }

    #[test]
    fn a_run_is_reduced_to_numbers() {
        let run = run(&[0.2, 0.6, 0.4]);
        let value = |name: &str| Metric::named(name).unwrap().value(&run);
        assert_eq!(value("peak pass@1"), Some(0.6));
        assert_eq!((value("pass@1"), value("pass@2"), value("pass@4")), (Some(0.5), Some(0.75), None));
        assert_eq!(value("entropy"), Some(0.4), "the last tenth of three steps is one");
        assert!(value("entropy fit").unwrap() > 1.0 - 1e-12);
        assert_eq!((value("idle share"), value("time to target")), (None, None));
        assert_eq!(value("pass@1 kept"), Some(0.4 / 0.6));
        assert_eq!(value("useful groups"), Some(0.5), "the mean of 3/4, 1/2 and 1/4");
        assert_eq!(value("rollouts to target"), Some(16.0), "0.6 after the second step");
        assert_eq!(Metric::named("pass@1").unwrap().curve(&run)[..2], [(0, 0.3), (1, 0.2)]);
        assert_eq!(Metric::named("entropy").unwrap().curve(&run)[0], (1, 0.2));
        for bad in ["pass@3", "pass@", "speed"] {
            assert!(Metric::named(bad).err().unwrap().to_string().contains(bad));
        }
    }

    #[test]
    fn a_run_that_misses_the_target_has_no_cost_of_it() {
        let value = |run: &Run| Metric::named("rollouts to target").unwrap().value(run);
        assert_eq!(value(&run(&[0.2, 0.5])), Some(16.0));
        assert_eq!(value(&run(&[0.2, 0.49])), None);
        assert_eq!(value(&Run { start: Some(0.5), ..run(&[0.2, 0.6]) }), Some(0.0));
    }

    #[test]
    fn a_run_collapses_from_its_own_best() {
        assert!(!run(&[0.6, 0.3]).collapsed());
        assert!(run(&[0.6, 0.29]).collapsed());
        assert!(run(&[0.1]).collapsed(), "also from the warm start");
    }

    #[test]
    fn a_game_is_measured_by_its_exploitability() {
        let record =
            |x: &f64| RlRecord { step: 1, exploitability: Some(*x), held_out: None, ..RlRecord::default() };
        let run = |exploitability: &[f64]| Run {
            start: None,
            start_exploitability: Some(0.4),
            records: exploitability.iter().map(record).collect(),
            pass_at: Vec::new(),
            ..run(&[])
        };
        let metric = |name: &str| Metric::named(name).unwrap();
        assert_eq!(metric("exploitability").value(&run(&[0.3, 0.2, 0.25])), Some(0.25));
        assert_eq!(metric("lowest exploitability").value(&run(&[0.3, 0.2, 0.25])), Some(0.2));
        assert_eq!(metric("exploitability").curve(&run(&[0.3])), [(0, 0.4), (1, 0.3)]);
        for name in ["pass@1", "peak pass@1"] {
            assert_eq!((metric(name).value(&run(&[0.3])), metric(name).curve(&run(&[0.3])).len()), (None, 0));
        }
        assert!(run(&[0.3, 0.41]).collapsed() && !run(&[0.5, 0.39]).collapsed());
    }
}
