//! `lockstep verify`: runs the conformance suite on this machine.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use lockstep::{Backend, Device};
use lockstep_conformance::{digest, schedules, verify as suite};

/// Arguments of `lockstep verify`.
#[derive(Clone, Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct VerifyArgs {
    /// Instead compare with the golden files in this folder and all folders below it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["backend", "random", "seed", "repeats", "streams"])]
    pub golden: Option<PathBuf>,
    /// Backends to compare with the plain reference; one that is not available is an error [default: cpu,
    /// cuda and rocm as available]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub backend: Vec<Backend>,
    /// Random cases per op [default: 20]
    #[arg(long, value_name = "N")]
    pub random: Option<u64>,
    /// Seed of the first random case
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many times each stream repeats the corpus
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub repeats: usize,
    /// Number of concurrent streams
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub streams: usize,
}

/// Runs `lockstep verify`. Returns the report and whether everything agrees.
pub fn verify(args: &VerifyArgs) -> Result<(String, bool)> {
    if let Some(folder) = &args.golden {
        let report = lockstep_golden::verify_dir(&Device::cpu(), folder)?;
        return Ok((report.to_string(), report.passed()));
    }
    ensure!((1..=256).contains(&args.streams), "--streams is {}: expected 1 to 256", args.streams);
    ensure!(args.repeats > 0, "--repeats is 0: expected at least 1");
    for backend in &args.backend {
        Device::all(*backend).with_context(|| format!("--backend {backend}"))?;
    }
    let default = suite::Plan::default();
    let (seed, random) = (args.seed, args.random.unwrap_or(default.random));
    ensure!(
        seed.checked_add(random).is_some(),
        "--seed is {seed}: expected at most 2^64 - 1 - {random}, as cases count up from it"
    );
    let backends = if args.backend.is_empty() { default.backends } else { distinct(&args.backend) };
    let recipes = digest::recipes(&backends);
    let report =
        suite::verify(&suite::Plan { backends, random, seed, repeats: args.repeats, streams: args.streams });
    let schedules = schedules::schedules();
    let passed = report.passed() && recipes.passed() && schedules.passed();
    Ok((format!("{report}\n{recipes}\n{schedules}"), passed))
}

/// The backends, each once.
fn distinct(backends: &[Backend]) -> Vec<Backend> {
    let is_first = |(i, backend): &(usize, &Backend)| !backends[..*i].contains(backend);
    backends.iter().enumerate().filter(is_first).map(|(_, backend)| *backend).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_named_twice_is_verified_once() {
        let [cpu, cuda] = [Backend::Cpu, Backend::Cuda];
        assert_eq!(distinct(&[cuda, cpu, cuda]), [cuda, cpu]);
    }

    #[test]
    fn something_is_repeated() {
        let args =
            VerifyArgs { golden: None, backend: Vec::new(), random: None, seed: 1, repeats: 0, streams: 1 };
        assert_eq!(verify(&args).unwrap_err().to_string(), "--repeats is 0: expected at least 1");
    }
}
