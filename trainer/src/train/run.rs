//! A run from its command line to its report, or from its checkpoint to its report.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::record::{Journal, Record, read};
use super::screen::{Screen, say};
use super::state::{FILE, State};
use super::trainer::Trainer;
use crate::config::Config;
use crate::task::Task;
use crate::{atomic, report, threads};

/// What the command line says about a run; what it leaves out is the default, or what the checkpoint says.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TrainArgs {
    /// The recipe: a name (grpo, dr_grpo, dapo, sapo, ppo, verl, trl, ...) or a TOML file [default: dapo]
    #[arg(long, value_name = "NAME|FILE")]
    pub recipe: Option<String>,
    /// The task: addition[:DIGITS], multiplication[:DIGITS] or jsonl:PATH [default: addition]
    #[arg(long)]
    pub task: Option<String>,
    /// Where all randomness starts [default: 1]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Continue the run in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// The run's folder [default: runs/TASK-RECIPE-seedN, with a number behind it when that is taken]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// RL steps [default: 320]
    #[arg(long)]
    pub steps: Option<u64>,
    /// Write the rollouts of every RL step into this folder, for `lockstep score`
    #[arg(long, value_name = "DIR")]
    pub dump_rollouts: Option<PathBuf>,
    /// Threads [default: all cores]; their number changes no bit of the result
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Learning rate of the RL phase [default: 0.0003]
    #[arg(long, help_heading = "Sizes")]
    pub rate: Option<f32>,
    /// Prompts in an RL batch [default: 128]
    #[arg(long, help_heading = "Sizes")]
    pub prompts: Option<usize>,
    /// Most prompts of a batch to learn from: the first whose rewards differ [default: 64]
    #[arg(long, help_heading = "Sizes")]
    pub keep: Option<usize>,
    /// Rollouts for each prompt [default: 8]
    #[arg(long, help_heading = "Sizes")]
    pub group: Option<usize>,
    /// Updates for each RL batch [default: 4]
    #[arg(long, help_heading = "Sizes")]
    pub minibatches: Option<usize>,
    /// Most steps of the warm start [default: 120]
    #[arg(long, help_heading = "Sizes")]
    pub warm_steps: Option<u64>,
    /// Updates in a step of the warm start [default: 10]
    #[arg(long, help_heading = "Sizes")]
    pub warm_updates: Option<u64>,
    /// The warm start ends when it solves this fraction of training problems [default: 0.35]
    #[arg(long, help_heading = "Sizes")]
    pub warm_target: Option<f32>,
    /// Held-out problems to measure on [default: 512]
    #[arg(long, help_heading = "Sizes")]
    pub measure: Option<usize>,
    /// RL steps between two measurements [default: 10]
    #[arg(long, help_heading = "Sizes")]
    pub measure_every: Option<u64>,
    /// Transformer layers [default: 2]
    #[arg(long, help_heading = "Sizes")]
    pub layers: Option<usize>,
    /// Width of the model [default: 64]
    #[arg(long, help_heading = "Sizes")]
    pub width: Option<usize>,
    /// Experts in each layer [default: 8]
    #[arg(long, help_heading = "Sizes")]
    pub experts: Option<usize>,
}

const DEFAULT_TASK: &str = "addition";
const DEFAULT_RECIPE: &str = "dapo";

impl TrainArgs {
    /// The configuration of a new run.
    fn config(&self) -> Result<(Config, Task)> {
        let name = self.task.as_deref().unwrap_or(DEFAULT_TASK);
        let task = Task::named(name)?;
        let mut config = Config::new(name, &task, self.recipe.as_deref().unwrap_or(DEFAULT_RECIPE))?;
        self.apply(&mut config);
        config.check()?;
        Ok((config, task))
    }

    /// The configuration of a resumed run: the checkpoint's, with which whatever is said here must agree.
    fn resumed_config(&self, saved: Config) -> Result<(Config, Task)> {
        let name = self.task.as_deref().unwrap_or(&saved.task);
        let task = Task::named(name)?;
        let mut asked =
            Config { task: name.to_owned(), task_fingerprint: task.fingerprint(), ..saved.clone() };
        if let Some(recipe) = &self.recipe {
            (asked.recipe, asked.recipe_toml) = (recipe.clone(), crate::rl::recipe_toml(recipe)?);
        }
        self.apply(&mut asked);
        let differences = saved.differences(&asked)?;
        ensure!(
            differences.is_empty(),
            "the run was started with another configuration (saved / asked for): {}",
            differences.join("; ")
        );
        Ok((saved, task))
    }

    fn apply(&self, config: &mut Config) {
        fn set<T: Copy>(field: &mut T, value: Option<T>) {
            *field = value.unwrap_or(*field);
        }
        set(&mut config.seed, self.seed);
        set(&mut config.rl.steps, self.steps);
        set(&mut config.rl.rate, self.rate);
        set(&mut config.rl.prompts, self.prompts);
        set(&mut config.rl.keep, self.keep);
        set(&mut config.rl.group, self.group);
        set(&mut config.rl.minibatches, self.minibatches);
        set(&mut config.warm.max_steps, self.warm_steps);
        set(&mut config.warm.updates, self.warm_updates);
        set(&mut config.warm.target, self.warm_target);
        set(&mut config.measure.problems, self.measure);
        set(&mut config.measure.every, self.measure_every);
        set(&mut config.model.layers, self.layers);
        set(&mut config.model.width, self.width);
        set(&mut config.model.experts, self.experts);
    }

    /// A folder for a new run.
    fn new_folder(&self, config: &Config) -> Result<PathBuf> {
        if let Some(out) = &self.out {
            let taken = out.join(FILE);
            ensure!(
                !taken.exists(),
                "{} is there already: continue it with --resume {}, or choose another --out",
                taken.display(),
                out.display()
            );
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

/// Runs `lockstep train`. Returns whether the run reached its end (Ctrl-C ends it early, after the step in flight).
pub fn train(args: &TrainArgs) -> Result<bool> {
    let (folder, config, task, state) = match &args.resume {
        Some(folder) => {
            let (saved, state) = State::load(folder)?;
            let (config, task) =
                args.resumed_config(saved).with_context(|| format!("cannot resume {}", folder.display()))?;
            atomic::clear_unfinished(folder)?;
            (folder.clone(), config, task, state)
        }
        None => {
            let (config, task) = args.config()?;
            let folder = args.new_folder(&config)?;
            make_folder(&folder)?;
            let state = State::new(&config);
            state.save(&config, &folder)?;
            (folder, config, task, state)
        }
    };
    if let Some(dump) = &args.dump_rollouts {
        make_folder(dump)?;
    }
    let run = Run {
        trainer: Trainer::new(config, task)?,
        folder,
        dump: args.dump_rollouts.clone(),
        stop: on_ctrl_c()?,
    };
    threads::on_pool(args.threads.map(usize::from), || run.go(state))
}

fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make folder {}", folder.display()))
}

/// A flag that the first Ctrl-C sets; the second one ends the program at once, which harms nothing.
fn on_ctrl_c() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let handler = move || {
        if seen.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    };
    ctrlc::set_handler(handler).context("cannot listen for Ctrl-C")?;
    Ok(stop)
}

struct Run {
    trainer: Trainer,
    folder: PathBuf,
    dump: Option<PathBuf>,
    stop: Arc<AtomicBool>,
}

impl Run {
    fn go(&self, mut state: State) -> Result<bool> {
        let config = self.trainer.config();
        let mut journal = Journal::open(&self.folder, state.progress.lines())?;
        let screen = Screen::new(config, state.progress.rl_steps);
        self.greet(&screen, &state);
        while !state.progress.warm_done || state.progress.rl_steps < config.rl.steps {
            if self.stop.load(Ordering::SeqCst) {
                screen.line(&format!(
                    "stopped; continue with: lockstep train --resume {}",
                    self.folder.display()
                ));
                return Ok(false);
            }
            let start = Instant::now();
            let record = self.step(&mut state, &screen)?;
            let seconds = start.elapsed().as_secs_f64();
            journal.append(&record, seconds)?;
            state.save(config, &self.folder)?;
            match &record {
                Record::Warm(r) => screen.warm(r, seconds),
                Record::Rl(r) => screen.rl(r, config.rl.steps, seconds),
            }
            if let Record::Warm(super::record::WarmRecord { held_out: Some(pass), .. }) = record {
                screen.line(&format!(
                    "the warm start is over: held-out pass@1 is {:.1} %; from here on, rewards only",
                    100.0 * pass
                ));
            }
        }
        drop(screen);
        self.finish()?;
        Ok(true)
    }

    fn greet(&self, screen: &Screen, state: &State) {
        let config = self.trainer.config();
        let m = &config.model;
        let weights: usize = state.weights.iter().map(|w| w.values.len()).sum();
        screen.line(&format!(
            "task {} · recipe {} · seed {} · folder {}\nmodel: {} layers, width {}, {} experts (top {}), {weights} weights · Lockstep on {}",
            config.task, config.recipe, config.seed, self.folder.display(), m.layers, m.width, m.experts, m.top_k, self.trainer.device(),
        ));
        if state.progress.lines() > 0 {
            screen.line(&format!(
                "resumed after {} warm steps and {} RL steps",
                state.progress.warm_steps, state.progress.rl_steps
            ));
        }
    }

    fn step(&self, state: &mut State, screen: &Screen) -> Result<Record> {
        let config = self.trainer.config();
        if !state.progress.warm_done {
            screen.begin("warm start", config.warm.updates);
            return Ok(Record::Warm(self.trainer.warm_step(state, |i| screen.tick(i))?));
        }
        screen.begin("rollouts", config.rl.minibatches as u64 + 1);
        let (record, rollouts) = self.trainer.rl_step(state, |i| screen.tick(i))?;
        if let Some(folder) = &self.dump {
            rollouts.write(&folder.join(format!("rollouts-{:06}.safetensors", record.step)))?;
        }
        Ok(Record::Rl(Box::new(record)))
    }

    /// The report, and the sentence that matters.
    fn finish(&self) -> Result<()> {
        let records = read(&self.folder)?;
        let page = self.folder.join("report.html");
        let config = self.trainer.config();
        atomic::write(&page, report::html(config, &records, &super::read_seconds(&self.folder))?.as_bytes())?;
        let (before, after) = report::before_and_after(&records);
        let show =
            |pass: Option<f64>| pass.map_or("not measured".to_owned(), |p| format!("{:.1} %", 100.0 * p));
        say(&format!(
            "held-out pass@1: {} before RL, {} after ({} problems, one sample each at temperature 1)\nreport: {}",
            show(before),
            show(after),
            self.trainer.held_out_problems(),
            page.display()
        ));
        Ok(())
    }
}
