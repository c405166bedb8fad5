//! `lockstep verify`: the conformance suite, run on this machine.

use std::path::PathBuf;

use anyhow::Result;
use lockstep_conformance::{digest, golden};

/// What is verified.
#[derive(Clone, Debug, clap::Args)]
pub struct VerifyArgs {
    /// Compare with the golden files in this folder instead
    #[arg(long, value_name = "DIR")]
    pub golden: Option<PathBuf>,
}

/// Runs `lockstep verify`: what it found, and whether all of it agrees.
pub fn verify(args: &VerifyArgs) -> Result<(String, bool)> {
    Ok(match &args.golden {
        Some(folder) => {
            let report = golden::verify_dir(folder)?;
            (report.to_string(), report.passed())
        }
        None => {
            let report = digest::verify();
            (report.to_string(), report.passed())
        }
    })
}
