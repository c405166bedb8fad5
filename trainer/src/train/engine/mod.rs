//! An inference engine beside the trainer, on a simulated clock. What it samples is the model's; only when it
//! does so is simulated, from the seed, so a run has the same bits at any number of threads and after a kill.
//!
//! **Time.** The unit is the time that one token of an ordinary response takes while the engine has room. A
//! token of rollout r takes s_r units, s_r = exp(σ·z) with z normal: long-tailed, median 1. `slots` responses
//! fit at once (those of `--prompts` groups); with n > slots, each is n / slots times slower. A step of the
//! trainer takes `train_time` units. New weights and continued prefixes cost nothing. What a tool writes
//! takes its tokens' time.
//!
//! **Weights.** A response in flight when new weights arrive keeps its tokens and goes on with the new
//! policy: every token has the version that sampled it. A rollout whose first token falls more than
//! `staleness` versions behind is thrown away and begun again. The schedule `ssp` does neither: a response
//! keeps its policy, and the trainer waits for what would fall behind.
//!
//! The draws of a token depend on its rollout and its position alone: the synchronous schedule samples what
//! a run without an engine samples, bit for bit.

mod clock;
mod deliver;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use lockstep::schedules::stale_queue::StaleQueue;
use serde::{Deserialize, Serialize};

use super::bits::with_nan;
use crate::cli::ValueName;

pub(super) use clock::Engine;

/// When the engine samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// A batch, all of it, then the trainer; each waits for the other
    Sync,
    /// Like sync, but more groups start than are needed; when enough are complete, the others are stopped and
    /// continued in the next step (APRIL)
    April,
    /// All the time, also while the trainer trains, within a bound on the staleness (AReaL)
    Areal,
    /// Like areal, but each rollout runs to its end under one policy, and the trainer waits for what would
    /// become too old (a stale-synchronous queue, Pangu-style)
    Ssp,
}

impl Schedule {
    /// Whether the engine goes on while the trainer trains.
    fn overlaps(self) -> bool {
        matches!(self, Self::Areal | Self::Ssp)
    }
}

/// Which policy's log-probabilities are `logp_old`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OldPolicy {
    /// The policy at the start of the step, as the trainer computes it
    #[default]
    Trainer,
    /// The policies that sampled, as the engine reported them: the ratio covers the staleness
    Engine,
}

/// The engine's settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asynchronous {
    /// When it samples.
    pub schedule: Schedule,
    /// Versions that a token may be behind the trainer's; `None`: any number.
    pub staleness: Option<u32>,
    /// Groups that APRIL has in flight, as a multiple of those that a step takes.
    pub over_provision: f64,
    /// σ of the time that a rollout's tokens take.
    pub tail: f64,
    /// The time that a step of the trainer takes.
    pub train_time: f64,
    /// Which log-probabilities are the old ones.
    pub old: OldPolicy,
}

impl Asynchronous {
    /// The defaults of a schedule.
    pub fn new(schedule: Schedule) -> Self {
        let staleness = schedule.overlaps().then_some(4);
        let over_provision = if schedule == Schedule::April { 1.5 } else { 1.0 };
        Self { schedule, staleness, over_provision, tail: 1.0, train_time: 100.0, old: OldPolicy::default() }
    }

    /// The stale-synchronous queue, if groups wait in one.
    fn queue(&self, batch: usize) -> Option<StaleQueue> {
        let queue = StaleQueue { batch: batch as u32, staleness: self.staleness.unwrap_or(0) };
        (self.schedule == Schedule::Ssp).then_some(queue)
    }

    /// Checks that the values are valid.
    pub fn check(&self) -> Result<()> {
        let Self { schedule, staleness, over_provision, tail, train_time, .. } = *self;
        ensure!(
            (1.0..=16.0).contains(&over_provision),
            "--over-provision is {over_provision}: expected 1 to 16"
        );
        ensure!(
            over_provision == 1.0 || schedule == Schedule::April,
            "--over-provision is {over_provision}: only --async april starts more groups than it needs"
        );
        ensure!((0.0..=3.0).contains(&tail), "--tail is {tail}: expected 0 to 3");
        ensure!((0.0..=1e9).contains(&train_time), "--train-time is {train_time}: expected 0 to 1e9 units");
        ensure!(
            staleness.is_some() || !schedule.overlaps(),
            "--async {} needs a bound: --staleness",
            schedule.name()
        );
        ensure!(staleness.is_none_or(|versions| versions <= 1 << 20), "--staleness is above 2^20 versions");
        Ok(())
    }
}

with_nan! {
    /// The engine after a step; sums are over the whole RL phase.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct EngineRecord {
        /// Simulated time.
        pub clock: f64,
        /// Tokens of the groups that were handed over.
        pub tokens: u64,
        /// Tokens that were thrown away.
        pub thrown: u64,
        /// Share of the engine's room that was empty.
        pub idle: f64,
        /// Groups in flight or waiting after the step.
        pub waiting: u64,
        /// Fraction of the step's tokens that an older policy sampled.
        pub off_policy: f64,
        /// Fraction of the step's responses that more than one policy sampled.
        pub stitched: f64,
        /// Age of the step's oldest token, in versions.
        pub oldest: u64,
    }
}
