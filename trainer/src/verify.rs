//! `lockstep verify`: the conformance suite, run on this machine.

use std::path::PathBuf;

use anyhow::{Result, bail};

/// What is verified.
#[derive(Clone, Debug, clap::Args)]
pub struct VerifyArgs {
    /// Compare with the golden files in this folder instead
    #[arg(long, value_name = "DIR")]
    pub golden: Option<PathBuf>,
}

/// Runs `lockstep verify`. STUB: waits for the names in `lockstep-conformance`.
pub fn verify(args: &VerifyArgs) -> Result<()> {
    bail!("verify is not wired yet ({:?})", args.golden)
}
