//! Runs the arms of experiments, one run on one thread, and stores every finished run: an interrupted study
//! goes on with the runs that are missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definitions::{Arm, Plan};
use super::metrics::Run;
use crate::config::{Config, Measure};
use crate::routing::{Mode, Routing};
use crate::train::{RlRecord, State, Trainer, WarmRecord, progress_bar};
use crate::{atomic, threads};

/// What a run's numbers depend on beside its configuration: the version, and the published bits of the maths.
pub(super) const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " ",
    include_str!("../../../conformance/DIGEST"),
    " ",
    include_str!("../../../conformance/RECIPES_DIGEST")
);

/// A stored run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// The version of the program, and the digests of its maths.
    version: String,
    /// Samples of each held-out problem at the end.
    samples: usize,
    /// Its configuration.
    pub config: Config,
    /// What came of it.
    pub outcome: Outcome,
    /// Seconds that it took.
    pub seconds: f64,
}

/// What came of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It finished.
    Done(Run),
    /// It failed, with this message.
    Failed(String),
}

/// A run that is to be there.
struct Job {
    path: PathBuf,
    config: Config,
    samples: usize,
}

/// Performs all runs of the plans that are not stored in the folder yet. Returns every plan's runs, arm after
/// arm and seed after seed; `None` if `stop` was set before all were there.
///
/// Errors: a stored run that cannot be read or has another configuration; a warm start that fails. A run that
/// fails is no error, but its outcome.
pub fn perform(
    plans: &[Plan],
    folder: &Path,
    threads: Option<usize>,
    stop: &AtomicBool,
) -> Result<Option<Vec<Vec<Stored>>>> {
    let jobs: Vec<Vec<Job>> = plans.iter().map(|plan| jobs(plan, folder)).collect::<Result<_>>()?;
    // The runs to perform, each with the key of its warm start.
    let mut missing: Vec<(String, &Job)> = Vec::new();
    let mut warm: BTreeMap<String, Config> = BTreeMap::new();
    for job in jobs.iter().flatten() {
        if job.stored()?.is_none() {
            let config = warm_config(&job.config)?;
            let key = serde_json::to_string(&config)?;
            warm.insert(key.clone(), config);
            missing.push((key, job));
        }
    }
    let warm: Vec<(String, Config)> = warm.into_iter().collect();
    let bar = progress_bar(warm.len() as u64, "warm starts");
    let states = threads::each(threads, &warm, |(_, config)| {
        let state = warm_start(config, stop)?;
        bar.inc(1);
        Ok(state)
    })?;
    bar.finish_and_clear();
    let states: BTreeMap<&str, Option<(State, WarmRecord)>> =
        warm.iter().map(|(key, _)| &**key).zip(states).collect();
    let bar = progress_bar(missing.iter().map(|(_, job)| job.config.rl.steps).sum(), "RL steps");
    threads::each(threads, &missing, |(key, job)| match states.get(&**key) {
        Some(Some((state, end))) => job.perform(state, end, stop, || bar.inc(1)),
        _ => Ok(()),
    })?;
    bar.finish_and_clear();
    let all = jobs.iter().map(|jobs| jobs.iter().map(Job::stored).collect::<Result<Option<Vec<Stored>>>>());
    all.collect()
}

/// The jobs of a plan.
fn jobs(plan: &Plan, folder: &Path) -> Result<Vec<Job>> {
    let folder = folder.join(&plan.experiment.id);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make folder {}", folder.display()))?;
    atomic::clear_unfinished(&folder)?;
    let mut jobs = Vec::new();
    for arm in &plan.arms {
        for seed in (plan.experiment.first_seed..).take(plan.seeds as usize) {
            jobs.push(Job {
                path: path(&folder, arm, seed),
                config: arm.config(seed)?,
                samples: plan.samples,
            });
        }
    }
    Ok(jobs)
}

fn path(folder: &Path, arm: &Arm, seed: u64) -> PathBuf {
    let plain = |c: char| if c.is_alphanumeric() || "+-.".contains(c) { c } else { '_' };
    let name: String = arm.label().chars().map(plain).collect();
    folder.join(format!("{name}-seed{seed}.json"))
}

/// The number of seeds, from the experiment's first on, with which every arm has finished in the folder.
pub(super) fn finished(plan: &Plan, folder: &Path) -> u64 {
    let folder = folder.join(&plan.experiment.id);
    let all = |seed: &u64| plan.arms.iter().all(|arm| path(&folder, arm, *seed).exists());
    (plan.experiment.first_seed..).take_while(all).count() as u64
}

impl Job {
    /// The stored run, if there is one.
    fn stored(&self) -> Result<Option<Stored>> {
        let path = self.path.display();
        let bytes = match std::fs::read(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read {path}"))?,
        };
        let stored: Stored = serde_json::from_slice(&bytes)
            .with_context(|| format!("{path} is not a stored run: delete it to run it again"))?;
        let mut differences = stored.config.differences(&self.config)?;
        if stored.samples != self.samples {
            differences.push(format!("samples: {} / {}", stored.samples, self.samples));
        }
        if stored.version != VERSION {
            differences.push(format!("version: {} / {VERSION}", stored.version));
        }
        ensure!(
            differences.is_empty(),
            "{path} is the run of another configuration (stored / asked for): {}; choose another --out, or \
             delete the file",
            differences.join("; ")
        );
        Ok(Some(stored))
    }

    fn perform(&self, warm: &State, end: &WarmRecord, stop: &AtomicBool, tick: impl Fn()) -> Result<()> {
        let begun = Instant::now();
        let outcome = match self.train(warm, end, stop, tick) {
            Ok(Some(run)) => Outcome::Done(run),
            Ok(None) => return Ok(()),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        };
        let stored = Stored {
            version: VERSION.to_owned(),
            samples: self.samples,
            config: self.config.clone(),
            outcome,
            seconds: begun.elapsed().as_secs_f64(),
        };
        atomic::write(&self.path, &serde_json::to_vec(&stored)?)
    }

    /// The run; `None` if it was stopped.
    fn train(
        &self,
        warm: &State,
        end: &WarmRecord,
        stop: &AtomicBool,
        tick: impl Fn(),
    ) -> Result<Option<Run>> {
        let trainer = Trainer::on_cpu(self.config.clone())?;
        let mut state = State::after_warm_start(&self.config, warm)?;
        let mut records = Vec::new();
        while state.progress.rl_steps < self.config.rl.steps {
            if stop.load(Ordering::SeqCst) {
                return Ok(None);
            }
            let record = trainer.rl_step(&mut state, drop)?.record;
            check_finite(&record)?;
            records.push(record);
            tick();
        }
        let weights = state.weights.iter().map(|weight| weight.values.len()).sum();
        let pass_at = trainer.pass_at_k(&state.weights, self.samples)?;
        let (start, start_exploitability) = (end.held_out, end.exploitability);
        Ok(Some(Run { weights, start, start_exploitability, records, pass_at }))
    }
}

/// Checks that every number of a step is finite; JSON has no other ones.
fn check_finite(record: &RlRecord) -> Result<()> {
    let Value::Object(fields) = serde_json::to_value(record)? else { return Ok(()) };
    match fields.iter().find(|(name, value)| *name != "held_out" && has_null(value)) {
        Some((name, _)) => bail!("step {}: {name} is not finite", record.step),
        None => Ok(()),
    }
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        _ => false,
    }
}

/// The configuration of the warm start that a run begins from: what only the RL phase reads is the same for
/// all arms, so that they share it.
fn warm_config(config: &Config) -> Result<Config> {
    let plain = Config::new(&config.task, "grpo")?;
    let mut model = config.model.clone();
    // The value head is the last tensor and learns nothing before the RL phase.
    model.critic = false;
    let measure = Measure { blame: false, variance: false, ..config.measure.clone() };
    Ok(Config {
        measure,
        sampling: plain.sampling,
        model,
        rl: plain.rl,
        recipe: plain.recipe,
        recipe_toml: plain.recipe_toml,
        pool: None,
        asynchronous: None,
        routing: config.routing.map(|_| Routing { mode: Mode::None, balance: 0.0 }),
        ..config.clone()
    })
}

/// The policy after the warm start, and its last record; `None` if it was stopped.
fn warm_start(config: &Config, stop: &AtomicBool) -> Result<Option<(State, WarmRecord)>> {
    let trainer = Trainer::on_cpu(config.clone())?;
    let mut state = State::new(config);
    let mut end = None;
    while !state.progress.warm_done {
        if stop.load(Ordering::SeqCst) {
            return Ok(None);
        }
        end = Some(trainer.warm_step(&mut state, drop)?);
    }
    Ok(end.map(|end| (state, end)))
}
