//! The command line.

use clap::{Parser, Subcommand};

use crate::explain::ExplainArgs;
use crate::list::ListArgs;
use crate::routing::StudyArgs;
use crate::score::ScoreArgs;
use crate::synthesize::RolloutsArgs;
use crate::train::TrainArgs;
use crate::tree::TreeArgs;
use crate::verify::VerifyArgs;

/// Reinforcement-learning maths for LLM post-training, shown whole: a small mixture-of-experts model learns live.
///
/// Without a command: train, with every default.
#[derive(Debug, Parser)]
#[command(name = "lockstep", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a small model: a supervised warm start, then RL on a verifiable task
    Train(Box<TrainArgs>),
    /// Apply a recipe to somebody's rollouts: advantages, coefficients, loss, metrics
    Score(ScoreArgs),
    /// Say what a recipe does: its stages with their formulas, the columns that it reads, what it asks of the training loop
    Explain(ExplainArgs),
    /// Make a file of random rollouts with the columns that a recipe needs
    Rollouts(RolloutsArgs),
    /// Check this machine: one digest over its SIMD levels and GPUs, or golden files
    Verify(VerifyArgs),
    /// List what this machine can compute on, and what is missing and why
    Devices,
    /// List every algorithm: its choices, source, confidence, what it is checked against, its cost; or names, or columns
    List(ListArgs),
    /// Compare routing replay: no replay, R2 and R3 from the same warm starts, over some seeds
    Routing(StudyArgs),
    /// Draw the prefix tree of a group of rollouts, with its values
    Tree(TreeArgs),
}
