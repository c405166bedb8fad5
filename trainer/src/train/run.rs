//! A run from its command line, or from its checkpoint, to its report.

use std::fs::{read_dir, read_to_string};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::args::{TrainArgs, check_free};
use super::record::{Journal, REPORT, Record, read};
use super::sampler::Sampler;
use super::screen::Screen;
use super::state::State;
use super::trainer::Trainer;
use crate::cli::ValueName;
use crate::config::Config;
use crate::lock::Lock;
use crate::print::print;
use crate::{atomic, report, threads};

/// Runs `lockstep train`. Returns whether the run finished; Ctrl-C ends it early, after the step in progress.
pub fn train(args: &TrainArgs) -> Result<bool> {
    let device = args.device.as_deref().unwrap_or("cpu");
    let (trainer, folder, lock, state) = match &args.resume {
        Some(folder) => {
            State::exists(folder)?;
            let lock = Lock::take(folder)?;
            let (saved, state) = State::load(folder)?;
            let (config, task) =
                args.resumed_config(saved).with_context(|| format!("cannot resume {}", folder.display()))?;
            make_dump(args, &config)?;
            atomic::clear_unfinished(folder)?;
            (Trainer::new(config, task, device)?, folder.clone(), lock, state)
        }
        None => {
            let (config, task) = args.config()?;
            let trainer = Trainer::new(config, task, device)?;
            let folder = args.new_folder(trainer.config())?;
            // First: with a checkpoint in the run's folder, the same command would be refused.
            make_dump(args, trainer.config())?;
            make_folder(&folder)?;
            let lock = Lock::take(&folder)?;
            // Another process may have used the folder in the meantime.
            check_free(&folder)?;
            let state = State::new(trainer.config());
            state.save(trainer.config(), &folder)?;
            (trainer, folder, lock, state)
        }
    };
    // Fail now rather than after hours of training.
    atomic::check(&folder.join(REPORT))?;
    let run = Run { args, trainer, folder, _lock: lock, stop: on_ctrl_c()? };
    threads::on_pool(args.threads.map(usize::from), || {
        run.go(state).inspect_err(|_| {
            if args.report_live {
                // No longer that of a run that goes on; the first error says why the run ended.
                let _ = run.report(false);
            }
        })
    })
}

fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make folder {}", folder.display()))
}

/// Says whose rollouts a folder holds.
const OWNER: &str = "run.json";

/// Makes the folder of `--dump-rollouts` this run's own. The owner is a configuration: whatever run has it
/// writes the same bytes, so a resumed one may write the steps again that a kill took from its checkpoint.
fn make_dump(args: &TrainArgs, config: &Config) -> Result<()> {
    let Some(folder) = &args.dump_rollouts else { return Ok(()) };
    make_folder(folder)?;
    let owner = folder.join(OWNER);
    atomic::check(&owner)?;
    let own = serde_json::to_string(config)?;
    let found = match read_to_string(&owner) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        read => Some(read.with_context(|| format!("cannot read {}", owner.display()))?),
    };
    let expected = "expected a folder of its own for --dump-rollouts";
    ensure!(
        found.as_ref().is_none_or(|found| *found == own),
        "{} is of a run of another configuration: {expected}",
        owner.display()
    );
    if args.resume.is_none() || found.is_none() {
        let dumped = |name: &str| ["rollouts-", "routing-"].iter().any(|kind| name.starts_with(kind));
        let names = read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
        if let Some(taken) = names.into_iter().filter(|name| dumped(&name.to_string_lossy())).min() {
            let taken = folder.join(taken);
            atomic::check(&taken)?;
            bail!("{} exists: {expected}", taken.display());
        }
    }
    atomic::write(&owner, own.as_bytes())
}

/// A flag set by the first Ctrl-C; a second one exits at once, which is safe.
pub(crate) fn on_ctrl_c() -> Result<Arc<AtomicBool>> {
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

/// The options given that no checkpoint holds.
fn unsaved(args: &TrainArgs) -> String {
    let options = [
        args.dump_rollouts.as_ref().map(|folder| format!(" --dump-rollouts {}", folder.display())),
        args.report_live.then(|| " --report-live".to_owned()),
        args.threads.map(|threads| format!(" --threads {threads}")),
        args.device.as_ref().map(|device| format!(" --device {device}")),
    ];
    options.into_iter().flatten().collect()
}

struct Run<'a> {
    args: &'a TrainArgs,
    trainer: Trainer,
    folder: PathBuf,
    _lock: Lock,
    stop: Arc<AtomicBool>,
}

impl Run<'_> {
    fn go(&self, mut state: State) -> Result<bool> {
        let config = self.trainer.config();
        let mut journal = Journal::open(&self.folder, state.progress.lines())?;
        // A line that cannot be read is an error now, not in the report after hours.
        read(&self.folder)?;
        let screen = Screen::new(config, state.progress.rl_steps);
        self.greet(&screen, &state);
        let mut reported: Option<Instant> = None;
        while !state.progress.warm_done || state.progress.rl_steps < config.rl.steps {
            if self.stop.load(Ordering::SeqCst) {
                if self.args.report_live {
                    self.report(false)?;
                }
                screen.line(&format!(
                    "stopped; continue with: lockstep train --resume {}{}",
                    self.folder.display(),
                    unsaved(self.args)
                ));
                return Ok(false);
            }
            let start = Instant::now();
            let record = self.step(&mut state, &screen)?;
            let seconds = start.elapsed().as_secs_f64();
            journal.append(&record, seconds)?;
            state.save(config, &self.folder)?;
            if self.args.report_live && reported.is_none_or(|at| at.elapsed() >= report::EVERY) {
                self.report(true)?;
                reported = Some(Instant::now());
            }
            match &record {
                Record::Warm(r) => screen.warm(r, seconds),
                Record::Rl(r) => screen.rl(r, config.rl.steps, seconds),
            }
            let Record::Warm(record) = record else { continue };
            if let Some(measured) = record.measured() {
                let game = config.game().is_some();
                screen.line(&format!(
                    "the warm start is over: {} is {}; from here on, rewards only",
                    report::measure(game),
                    report::shown(game, measured)
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
        let (sampler, flips, most) =
            (config.sampling.sampler, config.rl.flip_rewards, config.rl.length_reward);
        let asked = [
            config.routing.map(|routing| format!("routing replay: {}", routing.mode.name())),
            config.asynchronous.map(|engine| format!("simulated engine: {}", engine.schedule.name())),
            (sampler != Sampler::Plain).then(|| format!("sampler: {}", sampler.name())),
            (flips != 0.0).then(|| format!("rewards flipped with probability {flips}")),
            (most != 0.0).then(|| format!("up to {most} for short right responses")),
            config.rl.rubric.map(|points| format!("rubric {points:?}")),
        ];
        let asked: String = asked.into_iter().flatten().map(|one| format!(" · {one}")).collect();
        screen.line(&format!(
            "task {} · recipe {} · seed {} · folder {}\n\
             model: {} layers, width {}, {} experts (top {}), {weights} weights · Lockstep on {}{asked}\n\
             precision: {}",
            config.task,
            config.recipe,
            config.seed,
            self.folder.display(),
            m.layers,
            m.width,
            m.experts,
            m.top_k,
            self.trainer.device(),
            config.precision,
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
        let super::RlStep { record, rollouts, routing } = self.trainer.rl_step(state, |i| screen.tick(i))?;
        if let Some(folder) = &self.args.dump_rollouts {
            let file = |what: &str| folder.join(format!("{what}-{:06}.safetensors", record.step));
            atomic::write(&file("rollouts"), &rollouts.to_safetensors()?)?;
            if let Some(trace) = &routing {
                atomic::write(&file("routing"), &trace.to_safetensors()?)?;
            }
        }
        Ok(Record::Rl(Box::new(record)))
    }

    /// Writes the report of the steps so far; returns these.
    fn report(&self, running: bool) -> Result<Vec<Record>> {
        let (records, seconds) = (read(&self.folder)?, super::read_seconds(&self.folder));
        let page = report::html(self.trainer.config(), &records, &seconds, running)?;
        atomic::write(&self.folder.join(REPORT), page.as_bytes())?;
        Ok(records)
    }

    /// Writes the report and prints the headline result.
    fn finish(&self) -> Result<()> {
        let records = self.report(false)?;
        let (before, after) = report::before_and_after(&records);
        let game = self.trainer.config().game();
        let how = match game {
            Some(game) => game.measure().to_owned(),
            None => {
                let problems = self.trainer.held_out_problems();
                format!("{problems} problems, one sample each at temperature 1")
            }
        };
        let game = game.is_some();
        let show = |x: Option<f64>| x.map_or("not measured".to_owned(), |x| report::shown(game, x));
        print(&format!(
            "{}: {} before RL, {} after ({how})\nreport: {}\n",
            report::measure(game),
            show(before),
            show(after),
            self.folder.join(REPORT).display()
        ))
    }
}
