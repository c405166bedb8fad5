//! `lockstep rollouts`: writes a file of random rollouts with the columns that a recipe needs.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use lockstep::synthetic;

use crate::atomic;
use crate::rl::recipe;

/// Arguments of `lockstep rollouts`.
#[derive(Clone, Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
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
    ensure!(
        (args.sequences..=1 << 28).contains(&args.tokens),
        "--tokens is {}: expected at least one for each of {} sequences (--sequences), and at most 2^28",
        args.tokens,
        args.sequences
    );
    let rollouts = synthetic::rollouts(&recipe(&args.like)?, args.sequences, args.tokens, args.seed)?;
    atomic::write(&args.output, &rollouts.to_safetensors()?)?;
    let names: Vec<&str> = rollouts.view().columns().iter().map(|column| column.name()).collect();
    Ok(format!("columns: {}\nwritten: {}", names.join(", "), args.output.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_refused_with_all_their_digits() {
        let folder = tempfile::tempdir().unwrap();
        let args = RolloutsArgs {
            like: "dapo".into(),
            sequences: 1,
            tokens: 1,
            seed: 1,
            output: folder.path().join("a"),
        };
        let error = |args| write(&args).unwrap_err().to_string();
        let many = error(RolloutsArgs { tokens: usize::MAX, ..args.clone() });
        assert!(many.starts_with("--tokens is 18446744073709551615: expected"), "{many}");
        let few = error(RolloutsArgs { sequences: usize::MAX, ..args });
        assert!(few.contains("--tokens is 1: ") && few.contains("18446744073709551615 sequences"), "{few}");
    }
}
