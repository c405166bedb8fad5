//! The command line of `lockstep train`, with the configuration and the folder it selects.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use lockstep::Recipe;
use serde::Deserialize;

use super::engine::{Asynchronous, OldPolicy, Schedule};
use super::pool::{Pool, Select};
use super::record::{METRICS, REPORT, TIMINGS};
use super::sampler::Sampler;
use super::state::FILE;
use crate::cli::ValueName;
use crate::config::Config;
use crate::model::{Precision, PrecisionFlow};
use crate::rl;
use crate::routing::{Mode, Routing};
use crate::task::Task;

/// Arguments of `lockstep train`. What is left out takes its default or, on resuming, the checkpoint's value.
/// An arm of `lockstep study` gives them as a table, under the names of the command line.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(allow_negative_numbers = true)]
pub struct TrainArgs {
    /// The recipe: a name (grpo, dr_grpo, dapo, sapo, ppo, verl, trl, ...) or a TOML file [default: dapo]
    #[arg(long, value_name = "NAME|FILE")]
    pub recipe: Option<String>,
    /// Choices in place of the recipe's, in TOML: gate.clip_ratio_high = 0.3
    #[arg(long, value_name = "TOML")]
    pub choices: Option<String>,
    /// The task.
    #[arg(
        long,
        help = "The task: addition[:DIGITS], multiplication[:DIGITS], calculator[:DIGITS], jsonl:PATH, or \
                the games kuhn and tictactoe; DIGITS is a number, or a range from which each problem draws: \
                1-3 [default: addition]"
    )]
    pub task: Option<String>,
    /// Seed of all randomness [default: 1]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Continue the run in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// The run's folder [default: runs/TASK-RECIPE-seedN, with a number appended if it exists]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Draw this many training prompts once and train on them alone: they come back [default: new prompts
    /// in every step]
    #[arg(long, value_name = "PROMPTS")]
    pub pool: Option<usize>,
    /// The choice of a step's prompts and rollouts from the pool; needs --pool [default: uniform]
    #[arg(long, value_enum, value_name = "RULE")]
    pub select: Option<Select>,
    /// How the rollouts of a group are sampled [default: plain]
    #[arg(long, value_enum, value_name = "SAMPLER")]
    pub sampler: Option<Sampler>,
    /// Age in tokens at which latr compares a branch with the rollout that it left [default: 20, 30 and 50]
    #[arg(long, value_name = "TOKENS")]
    pub look_ahead: Option<u32>,
    /// Prune branches of latr that fall behind the likeliest one by more than this factor a token, above 0
    /// and at most 1, as compared every 10 tokens [default: none]
    #[arg(long, value_name = "FACTOR")]
    pub fall_behind: Option<f32>,
    /// RL steps [default: 320]
    #[arg(long)]
    pub steps: Option<u64>,
    /// Write the rollouts of every RL step into this folder, for `lockstep score`
    #[arg(long, value_name = "DIR")]
    pub dump_rollouts: Option<PathBuf>,
    /// Write the report every few seconds while the run goes on; open in a browser, it refreshes itself
    #[arg(long)]
    pub report_live: bool,
    /// Threads [default: all cores]; the number does not change a bit of the result
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Device for the RL maths: cpu, cpu:LEVEL, cuda, cuda:N, rocm, rocm:N [default: cpu]; the choice does
    /// not change a bit of the result. The model itself stays on the CPU
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Base learning rate of the RL phase [default: 0.0003]
    #[arg(long, help_heading = "Sizes")]
    pub rate: Option<f32>,
    /// Prompts per RL batch [default: 128]
    #[arg(long, help_heading = "Sizes")]
    pub prompts: Option<usize>,
    /// Maximum number of prompts per batch to learn from: the first with nonzero advantages [default: 64]
    #[arg(long, help_heading = "Sizes")]
    pub keep: Option<usize>,
    /// Rollouts per prompt [default: 8]
    #[arg(long, help_heading = "Sizes")]
    pub group: Option<usize>,
    /// Flip each 0/1 reward of the RL phase with this probability, including a greedy baseline's; evaluations
    /// stay clean [default: 0]
    #[arg(long, value_name = "P")]
    pub flip_rewards: Option<f32>,
    /// Adds at most this to the reward of a right response for being short among the right ones of its
    /// difficulty (TRAAC); TRAAC's own share is 0.25. Evaluations stay clean [default: 0]
    #[arg(long, value_name = "MOST")]
    pub length_reward: Option<f32>,
    /// The reward by a rubric (RuscaRL): points for the right answer, for right working, and for a response
    /// that is cut off, over the sum of the positive ones; negative points are pitfalls, such as 2,1,-1.
    /// Evaluations stay clean [default: 1 for the right answer]
    #[arg(long, value_name = "ANSWER,WORKING,CUT", value_delimiter = ',', allow_hyphen_values = true)]
    pub rubric: Option<Vec<f32>>,
    /// Updates per RL batch [default: 4]
    #[arg(long, help_heading = "Sizes")]
    pub minibatches: Option<usize>,
    /// Maximum number of warm-start steps [default: 120]
    #[arg(long, help_heading = "Sizes")]
    pub warm_steps: Option<u64>,
    /// Updates per warm-start step [default: 10]
    #[arg(long, help_heading = "Sizes")]
    pub warm_updates: Option<u64>,
    /// The warm start ends once this fraction of training problems is solved, or of games played by the rules
    /// [default: 0.35, games 0.98]
    #[arg(long, help_heading = "Sizes")]
    pub warm_target: Option<f32>,
    /// Held-out problems to evaluate on [default: 512]
    #[arg(long, help_heading = "Sizes")]
    pub measure: Option<usize>,
    /// RL steps between two evaluations [default: 10]
    #[arg(long, help_heading = "Sizes")]
    pub measure_every: Option<u64>,
    /// Record how much of the blame for a wrong response its first wrong token has: minus its advantage, over
    /// the mean |advantage| of the response
    #[arg(long, help_heading = "Sizes")]
    pub measure_blame: bool,
    /// Record the variance of the gradients, estimated from four parts of each minibatch; biased where a part
    /// ends inside a group: minibatches of a multiple of four groups avoid that
    #[arg(long, help_heading = "Sizes")]
    pub measure_variance: bool,
    /// Transformer layers [default: 2]
    #[arg(long, help_heading = "Sizes")]
    pub layers: Option<usize>,
    /// Width of the model [default: 64]
    #[arg(long, help_heading = "Sizes")]
    pub width: Option<usize>,
    /// Experts per layer [default: 8]
    #[arg(long, help_heading = "Sizes")]
    pub experts: Option<usize>,
    /// Experts per token, mixed with their renormalised probabilities; one alone keeps its own probability,
    /// as in Switch [default: 2]
    #[arg(long, help_heading = "Sizes")]
    pub top_k: Option<usize>,
    /// Route through Lockstep's router, record the rollout's routing, and replay this in the update [default:
    /// the model's own router, nothing recorded]
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Routing")]
    pub routing: Option<Mode>,
    /// Coefficient of the load-balance loss in the RL phase; needs --routing [default: 0]
    #[arg(long, value_name = "COEF", help_heading = "Routing")]
    pub balance: Option<f32>,
    /// Sample on an engine beside the trainer, on a simulated clock, by this schedule [default: none]
    #[arg(long = "async", value_enum, value_name = "SCHEDULE", help_heading = "Engine")]
    #[serde(rename = "async")]
    pub schedule: Option<Schedule>,
    /// Policy versions that a token may be behind; older rollouts are begun again, or with ssp waited for
    /// [default: areal and ssp 4, others any number]
    #[arg(long, value_name = "VERSIONS", help_heading = "Engine")]
    pub staleness: Option<u32>,
    /// Groups that april has in flight, as a multiple of those that a step takes [default: 1.5]
    #[arg(long, value_name = "TIMES", help_heading = "Engine")]
    pub over_provision: Option<f64>,
    /// Tail of the time that a rollout takes: its tokens take exp(SIGMA·normal) units each [default: 1]
    #[arg(long, value_name = "SIGMA", help_heading = "Engine")]
    pub tail: Option<f64>,
    /// Units of simulated time that a step of the trainer takes [default: 100]
    #[arg(long, value_name = "UNITS", help_heading = "Engine")]
    pub train_time: Option<f64>,
    /// The policy whose log-probabilities are the old ones [default: trainer]
    #[arg(long, value_enum, value_name = "POLICY", help_heading = "Engine")]
    pub old: Option<OldPolicy>,
    /// Precision of both ends, sampling and training (Jet-RL's unified flow) [default: they differ]
    #[arg(long, value_enum, value_name = "PRECISION", help_heading = "Precision")]
    #[arg(conflicts_with_all = ["rollout_precision", "train_precision"])]
    pub precision: Option<Precision>,
    /// Precision that the policy is rounded to for sampling [default: bf16-weights]
    #[arg(long, value_enum, value_name = "PRECISION", help_heading = "Precision")]
    pub rollout_precision: Option<Precision>,
    /// Precision of the trainer's forward pass; gradients go straight through the rounding [default: f32]
    #[arg(long, value_enum, value_name = "PRECISION", help_heading = "Precision")]
    pub train_precision: Option<Precision>,
}

fn set<T: Copy>(field: &mut T, value: Option<T>) {
    *field = value.unwrap_or(*field);
}

const DEFAULT_TASK: &str = "addition";
const DEFAULT_RECIPE: &str = "dapo";

impl TrainArgs {
    /// Builds the configuration of a new run.
    pub(crate) fn config(&self) -> Result<(Config, Task)> {
        let name = self.task.as_deref().unwrap_or(DEFAULT_TASK);
        let task = Task::named(name)?;
        let recipe = self.recipe.as_deref().unwrap_or(DEFAULT_RECIPE);
        let mut config = Config::with_choices(name, &task, recipe, self.choices.as_deref())?;
        self.apply(&mut config)?;
        config.check()?;
        Ok((config, task))
    }

    /// The configuration of a resumed run: the checkpoint's, which any explicit argument must match.
    pub(super) fn resumed_config(&self, saved: Config) -> Result<(Config, Task)> {
        let name = self.task.as_deref().unwrap_or(&saved.task);
        let task = Task::named(name)?;
        let mut asked =
            Config { task: name.to_owned(), task_fingerprint: task.fingerprint(), ..saved.clone() };
        if self.recipe.is_some() || self.choices.is_some() {
            let recipe = match &self.recipe {
                Some(name) => rl::recipe(name)?,
                None => Recipe::from_toml(&saved.recipe_toml)?,
            };
            asked.recipe = self.recipe.clone().unwrap_or(asked.recipe);
            asked.recipe_toml = rl::to_train(recipe, self.choices.as_deref())?.to_toml()?;
        }
        self.apply(&mut asked)?;
        let differences = saved.differences(&asked)?;
        ensure!(
            differences.is_empty(),
            "the run was started with another configuration (saved / asked for): {}",
            differences.join("; ")
        );
        saved.fits(&task)?;
        Ok((saved, task))
    }

    fn apply(&self, config: &mut Config) -> Result<()> {
        set(&mut config.seed, self.seed);
        set(&mut config.rl.steps, self.steps);
        set(&mut config.rl.rate, self.rate);
        set(&mut config.rl.prompts, self.prompts);
        set(&mut config.rl.keep, self.keep);
        set(&mut config.rl.group, self.group);
        set(&mut config.rl.flip_rewards, self.flip_rewards);
        set(&mut config.rl.length_reward, self.length_reward);
        if let Some(points) = &self.rubric {
            let three = points[..].try_into().ok();
            let points =
                three.with_context(|| format!("--rubric has {} numbers: expected 3", points.len()))?;
            config.rl.rubric = Some(points);
        }
        set(&mut config.rl.minibatches, self.minibatches);
        set(&mut config.warm.max_steps, self.warm_steps);
        set(&mut config.warm.updates, self.warm_updates);
        set(&mut config.warm.target, self.warm_target);
        set(&mut config.measure.problems, self.measure);
        set(&mut config.measure.every, self.measure_every);
        config.measure.blame |= self.measure_blame;
        config.measure.variance |= self.measure_variance;
        set(&mut config.model.layers, self.layers);
        set(&mut config.model.width, self.width);
        set(&mut config.model.experts, self.experts);
        set(&mut config.model.top_k, self.top_k);
        set(&mut config.precision, self.precision.map(PrecisionFlow::unified));
        set(&mut config.precision.rollout, self.rollout_precision);
        set(&mut config.precision.train, self.train_precision);
        if let Some(mode) = self.routing {
            let balance = config.routing.map_or(0.0, |routing| routing.balance);
            config.routing = Some(Routing { mode, balance });
        }
        if let Some(schedule) =
            self.schedule.filter(|own| config.asynchronous.map(|e| e.schedule) != Some(*own))
        {
            config.asynchronous = Some(Asynchronous::new(schedule));
        }
        self.apply_engine(config)?;
        set(&mut config.sampling.sampler, self.sampler);
        config.sampling.look_ahead = self.look_ahead.or(config.sampling.look_ahead);
        config.sampling.fall_behind = self.fall_behind.or(config.sampling.fall_behind);
        if let Some(size) = self.pool {
            config.pool = Some(Pool { size, ..config.pool.unwrap_or_default() });
        }
        if let Some(select) = self.select {
            let Some(pool) = &mut config.pool else {
                bail!("--select is {}, but there is no --pool to choose from", select.name());
            };
            pool.select = select;
        }
        if let Some(coef) = self.balance {
            let Some(routing) = &mut config.routing else {
                bail!("--balance is {coef}, but there is no --routing: only Lockstep's router has that loss");
            };
            routing.balance = coef;
        }
        Ok(())
    }

    fn apply_engine(&self, config: &mut Config) -> Result<()> {
        let Some(engine) = &mut config.asynchronous else {
            let given = [
                ("--staleness", self.staleness.is_some()),
                ("--over-provision", self.over_provision.is_some()),
                ("--tail", self.tail.is_some()),
                ("--train-time", self.train_time.is_some()),
                ("--old", self.old.is_some()),
            ];
            match given.iter().find(|(_, given)| *given) {
                Some((name, _)) => bail!("{name} needs --async: without an engine nothing is simulated"),
                None => return Ok(()),
            }
        };
        set(&mut engine.over_provision, self.over_provision);
        set(&mut engine.tail, self.tail);
        set(&mut engine.train_time, self.train_time);
        set(&mut engine.old, self.old);
        engine.staleness = self.staleness.or(engine.staleness);
        Ok(())
    }

    /// Picks the folder of a new run.
    pub(super) fn new_folder(&self, config: &Config) -> Result<PathBuf> {
        if let Some(out) = &self.out {
            check_free(out)?;
            return Ok(out.clone());
        }
        let stem = |text: &str| {
            let name = Path::new(text.strip_prefix("jsonl:").unwrap_or(text)).file_stem();
            name.map_or(String::new(), |s| s.to_string_lossy().replace(':', ""))
        };
        let base = format!("runs/{}-{}-seed{}", stem(&config.task), stem(&config.recipe), config.seed);
        let mut folder = PathBuf::from(&base);
        for number in 2.. {
            if !folder.exists() {
                break;
            }
            folder = PathBuf::from(format!("{base}-{number}"));
        }
        Ok(folder)
    }
}

/// Checks that a new run may use the folder.
///
/// Errors: it holds files of a run, which the new one would overwrite or truncate.
pub(super) fn check_free(folder: &Path) -> Result<()> {
    let checkpoint = folder.join(FILE);
    ensure!(
        checkpoint.symlink_metadata().is_err(),
        "{} already exists: continue it with --resume {}, or choose another --out",
        checkpoint.display(),
        folder.display()
    );
    for name in [METRICS, TIMINGS, REPORT] {
        let taken = folder.join(name);
        ensure!(
            taken.symlink_metadata().is_err(),
            "{} exists without a checkpoint: move it away, or choose another --out",
            taken.display()
        );
    }
    Ok(())
}
