//! `lockstep routing`: compares no replay, R2 and R3 from the same warm starts in one report.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::{Mode, RolloutPrecision};
use crate::lock::Lock;
use crate::train::{RlRecord, State, TrainArgs, Trainer, say};
use crate::{atomic, report, threads};

/// Arguments of `lockstep routing`.
#[derive(Clone, Debug, clap::Args)]
pub struct StudyArgs {
    /// Number of seeds, counted from 1
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// RL steps of each run
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub steps: u64,
    /// Updates per RL batch
    #[arg(long, default_value_t = 8)]
    pub minibatches: usize,
    /// Learning rate of the RL phase
    #[arg(long, default_value_t = 1e-3)]
    pub rate: f32,
    /// Prompts per RL batch
    #[arg(long, default_value_t = 64)]
    pub prompts: usize,
    /// Maximum number of prompts per batch to learn from
    #[arg(long, default_value_t = 32)]
    pub keep: usize,
    /// The task, as in `lockstep train`
    #[arg(long, default_value = "addition")]
    pub task: String,
    /// The recipe, as in `lockstep train`
    #[arg(long, default_value = "dapo")]
    pub recipe: String,
    /// Maximum number of warm-start steps
    #[arg(long, default_value_t = 120)]
    pub warm_steps: u64,
    /// Held-out problems to evaluate on
    #[arg(long, default_value_t = 256)]
    pub measure: usize,
    /// Transformer layers
    #[arg(long, default_value_t = 2)]
    pub layers: usize,
    /// Width of the model
    #[arg(long, default_value_t = 64)]
    pub width: usize,
    /// Experts per layer
    #[arg(long, default_value_t = 8)]
    pub experts: usize,
    /// Experts per token
    #[arg(long, default_value_t = 2)]
    pub top_k: usize,
    /// The precision that the policy is rounded to for sampling
    #[arg(long, value_enum, default_value_t = RolloutPrecision::Bf16)]
    pub rollout_precision: RolloutPrecision,
    /// Threads [default: all cores]; the number does not change a bit of the result
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Output folder for routing.html and routing.jsonl
    #[arg(long, value_name = "DIR", default_value = "runs/routing")]
    pub out: PathBuf,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct StudyRun {
    /// Its seed.
    pub seed: u64,
    /// What it replayed.
    pub mode: Mode,
    /// Its RL steps.
    pub records: Vec<RlRecord>,
}

const MODES: [Mode; 3] = [Mode::None, Mode::R2, Mode::R3];

impl StudyArgs {
    fn trainer(&self, seed: u64, mode: Mode) -> Result<Trainer> {
        let args = TrainArgs {
            recipe: Some(self.recipe.clone()),
            task: Some(self.task.clone()),
            seed: Some(seed),
            steps: Some(self.steps),
            rate: Some(self.rate),
            prompts: Some(self.prompts),
            keep: Some(self.keep),
            minibatches: Some(self.minibatches),
            warm_steps: Some(self.warm_steps),
            measure: Some(self.measure),
            // Only at the end.
            measure_every: Some(self.steps),
            layers: Some(self.layers),
            width: Some(self.width),
            experts: Some(self.experts),
            top_k: Some(self.top_k),
            routing: Some(mode),
            rollout_precision: Some(self.rollout_precision),
            ..TrainArgs::default()
        };
        Trainer::of(&args)
    }
}

/// Runs `lockstep routing`.
pub fn study(args: &StudyArgs) -> Result<()> {
    let trainers: Vec<Vec<Trainer>> = (1..=args.seeds)
        .map(|seed| MODES.iter().map(|mode| args.trainer(seed, *mode)).collect())
        .collect::<Result<_>>()?;
    let page = args.out.join("routing.html");
    ensure!(!page.exists(), "{} is there already: choose another --out", page.display());
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make folder {}", args.out.display()))?;
    let _lock = Lock::take(&args.out)?;
    let lines_path = args.out.join("routing.jsonl");
    atomic::check(&lines_path)?;
    let runs = threads::on_pool(args.threads.map(usize::from), || run_all(&trainers))?;
    let lines: Vec<String> = runs.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    atomic::write(&lines_path, (lines.join("\n") + "\n").as_bytes())?;
    let config = trainers[0][0].config();
    atomic::write(&page, report::study_html(config, &runs)?.as_bytes())?;
    say(&format!("\n{}\nreport: {}", report::study_markdown(&runs), page.display()));
    Ok(())
}

fn run_all(trainers: &[Vec<Trainer>]) -> Result<Vec<StudyRun>> {
    let mut runs = Vec::new();
    for trainers in trainers {
        // The warm start replays nothing, so it is the same for all modes.
        let mut warm = State::new(trainers[0].config());
        while !warm.progress.warm_done {
            let record = trainers[0].warm_step(&mut warm, drop)?;
            if let Some(pass) = record.held_out {
                let seed = trainers[0].config().seed;
                say(&format!(
                    "seed {seed}: warm start of {} steps, held-out pass@1 {:.1} %",
                    record.step,
                    100.0 * pass
                ));
            }
        }
        for (trainer, mode) in trainers.iter().zip(MODES) {
            let mut state = warm.clone();
            let seed = trainer.config().seed;
            let mut records = Vec::new();
            while state.progress.rl_steps < trainer.config().rl.steps {
                records.push(trainer.rl_step(&mut state, drop)?.record);
            }
            let last = records.last().and_then(|r| r.routing.as_ref());
            say(&format!(
                "seed {seed}, {:<4}: {:.2} % of the routers differ in the last step",
                mode.name(),
                100.0 * last.map_or(f64::NAN, |m| m.differ)
            ));
            runs.push(StudyRun { seed, mode, records });
        }
    }
    Ok(runs)
}
