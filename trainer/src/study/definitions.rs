//! The experiments as data, and the runs that they ask for.

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use toml::Table;

use super::metrics::Metric;
use crate::config::Config;
use crate::train::TrainArgs;

/// The experiments and their sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definitions {
    protocol: Sizes,
    quick: Sizes,
    /// All experiments.
    #[serde(rename = "experiment")]
    pub experiments: Vec<Experiment>,
}

/// Sizes for all experiments.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sizes {
    seeds: u64,
    samples: usize,
    train: Table,
}

/// An experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Its name on the command line.
    pub id: String,
    /// The claim to be judged, in one line.
    pub claim: String,
    /// The paper that makes it.
    pub source: String,
    /// What a reader has to know of the arms, and what of the claim is left out.
    #[serde(default)]
    pub note: String,
    /// The ability that the trainer lacks for it, if any.
    pub needs: Option<String>,
    /// Seeds, if not those of the protocol.
    seeds: Option<u64>,
    /// The first seed.
    #[serde(default = "one")]
    pub first_seed: u64,
    /// Samples of each held-out problem at the end of a run, if not those of the protocol.
    samples: Option<usize>,
    /// Estimated seconds that a run takes on one thread.
    #[serde(default)]
    seconds: f64,
    #[serde(default)]
    set: Table,
    /// Settings in each of which all arms run.
    #[serde(default = "one_panel")]
    pub panels: Vec<Named>,
    /// The arms.
    #[serde(default)]
    pub arms: Vec<Named>,
    /// The metrics shown, by name.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// The comparisons to be judged.
    #[serde(default)]
    pub compare: Vec<Comparison>,
}

/// Flags of `lockstep train` under a name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// The name; empty for the panel of an experiment that has no panels.
    pub name: String,
    #[serde(default)]
    set: Table,
}

fn one() -> u64 {
    1
}

fn one_panel() -> Vec<Named> {
    vec![Named::default()]
}

/// The number 0 in the place of an arm.
pub(super) const ZERO: &str = "0";

/// The claim that arm `a` has a higher or a lower metric than arm `b`.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// An arm: `ARM`, in every panel, or `PANEL/ARM`.
    pub a: String,
    /// The arm that it is compared with; 0: the metric itself is positive or negative.
    pub b: String,
    /// The metric.
    pub metric: String,
    /// The claimed direction.
    pub expect: Direction,
    /// The claim is that `a` is worse by less than this; 0: that it is better.
    #[serde(default)]
    pub margin: f64,
}

/// A claimed direction.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The metric of `a` is higher.
    Higher,
    /// The metric of `a` is lower.
    Lower,
}

/// An experiment with the sizes that it is run at.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The experiment.
    pub experiment: Experiment,
    /// Number of seeds, counted from the experiment's first.
    pub seeds: u64,
    /// Samples of each held-out problem at the end of a run.
    pub samples: usize,
    /// All arms in all panels.
    pub arms: Vec<Arm>,
}

/// `PANEL/ARM`, or `ARM` without panels.
pub(crate) fn label(panel: &str, arm: &str) -> String {
    if panel.is_empty() { arm.to_owned() } else { format!("{panel}/{arm}") }
}

/// An arm in a panel.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The panel.
    pub panel: String,
    /// The arm.
    pub name: String,
    args: TrainArgs,
}

impl Arm {
    /// `PANEL/ARM`, or `ARM` if the experiment has no panels.
    pub fn label(&self) -> String {
        label(&self.panel, &self.name)
    }

    /// The configuration of its run with a seed.
    pub fn config(&self, seed: u64) -> Result<Config> {
        let args = TrainArgs { seed: Some(seed), ..self.args.clone() };
        Ok(args.config().with_context(|| format!("arm {}", self.label()))?.0)
    }
}

impl Definitions {
    /// The experiments of this program.
    pub fn built_in() -> Result<Self> {
        Self::parse(include_str!("experiments.toml"))
    }

    /// Reads experiments in the format of `experiments.toml`.
    ///
    /// Errors: invalid TOML; a comparison or a metric that names something unknown.
    pub fn parse(text: &str) -> Result<Self> {
        let all: Self = toml::from_str(text).context("the experiments")?;
        for experiment in &all.experiments {
            experiment.check().with_context(|| format!("experiment {}", experiment.id))?;
        }
        Ok(all)
    }

    /// Plans one experiment, or all that can run.
    ///
    /// Errors: an unknown name; an experiment that needs what the trainer cannot do.
    pub fn plan(&self, id: &str, quick: bool, seeds: Option<u64>) -> Result<Vec<Plan>> {
        if id == "all" {
            let able = self.experiments.iter().filter(|experiment| experiment.needs.is_none());
            return able.map(|experiment| self.plan_one(experiment, quick, seeds)).collect();
        }
        let Some(experiment) = self.experiments.iter().find(|e| e.id.eq_ignore_ascii_case(id)) else {
            let names: Vec<&str> = self.experiments.iter().map(|e| &*e.id).collect();
            bail!("unknown experiment '{id}': expected list, all or one of {}", names.join(", "));
        };
        if let Some(needs) = &experiment.needs {
            bail!("experiment {} cannot run yet: it needs {needs}", experiment.id);
        }
        Ok(vec![self.plan_one(experiment, quick, seeds)?])
    }

    fn plan_one(&self, experiment: &Experiment, quick: bool, seeds: Option<u64>) -> Result<Plan> {
        let Sizes { seeds: few, samples: most, .. } = self.quick;
        let own = experiment.samples.unwrap_or(self.protocol.samples);
        let mut arms = Vec::new();
        for panel in &experiment.panels {
            for arm in &experiment.arms {
                let mut flags = self.protocol.train.clone();
                let quick = quick.then_some(&self.quick.train);
                for more in quick.into_iter().chain([&experiment.set, &panel.set, &arm.set]) {
                    flags.extend(more.clone());
                }
                let args = flags.try_into().with_context(|| format!("arm {}/{}", panel.name, arm.name))?;
                arms.push(Arm { panel: panel.name.clone(), name: arm.name.clone(), args });
            }
        }
        Ok(Plan {
            experiment: experiment.clone(),
            seeds: seeds.unwrap_or(if quick { few } else { self.seeds(experiment) }),
            samples: if quick { own.min(most) } else { own },
            arms,
        })
    }

    /// The experiment's default number of seeds.
    fn seeds(&self, experiment: &Experiment) -> u64 {
        experiment.seeds.unwrap_or(self.protocol.seeds)
    }

    /// Estimated minutes of one core for an experiment with its default number of seeds.
    pub fn minutes(&self, experiment: &Experiment) -> f64 {
        let runs = (experiment.panels.len() * experiment.arms.len()) as f64 * self.seeds(experiment) as f64;
        runs * experiment.seconds / 60.0
    }
}

impl Experiment {
    fn check(&self) -> Result<()> {
        ensure!(self.arms.is_empty() == self.needs.is_some(), "expected arms, or `needs` without arms");
        self.metrics.iter().try_for_each(|name| Metric::named(name).map(drop))?;
        for comparison in &self.compare {
            Metric::named(&comparison.metric)?;
            ensure!(comparison.margin >= 0.0, "margin is {}: expected at least 0", comparison.margin);
        }
        self.comparisons().map(drop)
    }

    /// Arms and panels in a line.
    pub fn arms_text(&self) -> String {
        let names = |list: &[Named]| list.iter().map(|one| &*one.name).collect::<Vec<_>>().join(", ");
        let arms = names(&self.arms);
        if self.panels.len() > 1 { format!("{{{arms}}} × {{{}}}", names(&self.panels)) } else { arms }
    }

    /// The comparisons with `PANEL/ARM` on both sides: one for each panel where only arms are given.
    pub fn comparisons(&self) -> Result<Vec<Comparison>> {
        let mut all = Vec::new();
        for comparison in &self.compare {
            let panels = match comparison.a.contains('/') || comparison.b.contains('/') {
                true => &self.panels[..1],
                false => &self.panels,
            };
            for panel in panels {
                let full =
                    |arm: &str| if arm.contains('/') { arm.to_owned() } else { label(&panel.name, arm) };
                let zero = comparison.b == ZERO;
                let a = full(&comparison.a);
                let b = if zero { ZERO.to_owned() } else { full(&comparison.b) };
                for arm in [Some(&a), Some(&b).filter(|_| !zero)].into_iter().flatten() {
                    let (of, name) = arm.split_once('/').unwrap_or(("", arm));
                    let has = |list: &[Named], name: &str| list.iter().any(|one| one.name == name);
                    ensure!(has(&self.panels, of) && has(&self.arms, name), "there is no arm '{arm}'");
                }
                all.push(Comparison { a, b, ..comparison.clone() });
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Trainer;

    /// The trainer takes every arm's recipe and choices.
    #[test]
    fn every_experiment_has_valid_arms() {
        let all = Definitions::built_in().unwrap();
        for quick in [false, true] {
            for plan in all.plan("all", quick, None).unwrap() {
                for arm in &plan.arms {
                    let config = arm.config(1).unwrap();
                    assert!(config.rl.steps < 10 || !quick);
                    if quick {
                        let trainer = Trainer::on_cpu(config).map(drop);
                        trainer.unwrap_or_else(|e| panic!("{} {}: {e:#}", plan.experiment.id, arm.label()));
                    }
                }
            }
        }
        // Fifteen minutes on two cores.
        for experiment in &all.experiments {
            assert!(all.minutes(experiment) <= 30.0, "{}: {}", experiment.id, all.minutes(experiment));
        }
    }

    #[test]
    fn a_comparison_of_arms_is_one_for_each_panel() {
        let all = Definitions::built_in().unwrap();
        let of = |id: &str| all.experiments.iter().find(|e| e.id == id).unwrap().comparisons().unwrap();
        let s1 = of("S1");
        assert_eq!(s1.len(), 8);
        assert_eq!((&*s1[1].a, &*s1[1].b), ("rate 5e-4/SAPO", "rate 5e-4/GRPO"));
        assert_eq!(of("S8").len(), 2);
        assert_eq!(of("S7")[0].a, "TEMPO");
    }

    #[test]
    fn what_is_unknown_is_named() {
        let all = Definitions::built_in().unwrap();
        let error = |id| all.plan(id, true, None).unwrap_err().to_string();
        assert!(error("S99").contains("'S99'") && error("S99").contains("S6b"));
        assert!(error("S13").contains("for the wrong reason"));
        let text = include_str!("experiments.toml").replace("a = \"TEMPO\"", "a = \"TEMPI\"");
        assert!(format!("{:#}", Definitions::parse(&text).unwrap_err()).contains("'TEMPI'"));
    }
}
