//! `lockstep rollouts`: writes a file of random rollouts with the columns that a recipe needs.

use std::path::PathBuf;

use anyhow::Result;
use lockstep::synthetic;

use crate::atomic;
use crate::rl::recipe;

/// Arguments of `lockstep rollouts`.
#[derive(Clone, Debug, clap::Args)]
pub struct RolloutsArgs {
    /// The recipe whose columns the file provides: a name or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub like: String,
    /// Number of responses, in groups of about 4
    #[arg(long, default_value_t = 32)]
    pub sequences: usize,
    /// Total tokens of all responses
    #[arg(long, default_value_t = 1024)]
    pub tokens: usize,
    /// Random seed; the same seed and sizes give the same file
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Output file
    #[arg(short, long, value_name = "FILE.safetensors")]
    pub output: PathBuf,
}

/// Runs `lockstep rollouts` and returns its summary.
pub fn write(args: &RolloutsArgs) -> Result<String> {
    atomic::check(&args.output)?;
    atomic::check_apart(&args.output, &[args.like.as_ref()])?;
    let rollouts = synthetic::rollouts(&recipe(&args.like)?, args.sequences, args.tokens, args.seed)?;
    atomic::write(&args.output, &rollouts.to_safetensors()?)?;
    let names: Vec<&str> = rollouts.view().columns().iter().map(|column| column.name()).collect();
    Ok(format!("columns: {}\nwritten: {}", names.join(", "), args.output.display()))
}
