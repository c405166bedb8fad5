//! The command line.

use clap::{Parser, Subcommand, ValueEnum};

use crate::explain::ExplainArgs;
use crate::list::ListArgs;
use crate::score::ScoreArgs;
use crate::study::StudyArgs;
use crate::synthesize::RolloutsArgs;
use crate::train::TrainArgs;
use crate::tree::TreeArgs;
use crate::verify::VerifyArgs;

/// Reinforcement-learning maths for LLM post-training, end to end: trains a small mixture-of-experts model
/// live.
///
/// Without a command it trains, with every option at its default.
#[derive(Debug, Parser)]
#[command(name = "lockstep", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a small model: a supervised warm start, then RL on a verifiable task
    Train(Box<TrainArgs>),
    /// Apply a recipe to rollouts from a file: advantages, coefficients, loss, metrics
    Score(ScoreArgs),
    /// Explain a recipe: its stages with their formulas, the columns it reads, what it requires of the
    /// training loop
    Explain(ExplainArgs),
    /// Write a file of random rollouts with the columns that a recipe needs
    Rollouts(RolloutsArgs),
    /// Verify this machine: compare digests across its SIMD levels and GPUs, or check golden files
    Verify(VerifyArgs),
    /// List the devices that this machine can compute on, and why others are unavailable
    Devices,
    /// List every algorithm: choices, source, confidence, what it is checked against, cost; or only the
    /// names, or the columns
    List(ListArgs),
    /// Run experiments on the claims of papers: arms from the same warm starts, over several seeds
    Study(StudyArgs),
    /// Draw the prefix tree of a group of rollouts with its values
    Tree(TreeArgs),
}

/// The name of an option's value.
pub(crate) trait ValueName: ValueEnum {
    /// As it is written on the command line.
    fn name(&self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl<T: ValueEnum> ValueName for T {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_number_is_refused_by_its_option() {
        for (line, option) in [
            ("rollouts --like dapo -o a --seed -1", "--seed"),
            ("verify --random -1", "--random"),
            ("tree a --group -1", "--group"),
            ("study all --seeds -1", "--seeds"),
        ] {
            let error = Cli::try_parse_from(format!("lockstep {line}").split(' ')).unwrap_err().to_string();
            assert!(error.contains("invalid value '-1'") && error.contains(option), "{error}");
        }
    }
}
