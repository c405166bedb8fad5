//! The command line.

use lockstep::Backend;
use lockstep_core::op::OpInfo;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What to run.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) backend: Backend,
    /// Random cases per op.
    pub(crate) cases: u64,
    /// Seed of the first case; each following case has the next seed.
    pub(crate) seed: u64,
    /// Maximum number of elements of most cases.
    pub(crate) elements: u64,
    /// Time limit, whatever is left to run.
    pub(crate) time: Option<Duration>,
    /// Which ops; empty means all.
    pub(crate) ops: Vec<&'static OpInfo>,
    /// Whether to run the corpus too.
    pub(crate) digest: bool,
    /// Output file for the resource table, as CSV.
    pub(crate) out: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
        let mut arguments = Arguments {
            backend: Backend::Cuda,
            cases: 200,
            // Readable, and different in every run.
            seed: fresh / 1_000_000 % 1_000_000_000,
            elements: 2000,
            time: None,
            ops: Vec::new(),
            digest: false,
            out: None,
        };
        while let Some(word) = words.next() {
            if word == "--digest" {
                arguments.digest = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word}: unknown, or without a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{word} {value}: expected a number"));
            match &word[..] {
                "--backend" => {
                    let found = Backend::ALL.into_iter().find(|backend| backend.name() == value);
                    arguments.backend = found
                        .filter(|b| *b != Backend::Cpu)
                        .ok_or(format!("{word} {value}: cuda or rocm"))?;
                }
                "--cases" => arguments.cases = number()?,
                "--seed" => arguments.seed = number()?,
                "--elements" => arguments.elements = number()?,
                "--minutes" => arguments.time = Some(Duration::from_secs(60 * number()?)),
                "--seconds" => arguments.time = Some(Duration::from_secs(number()?)),
                "--ops" => {
                    for name in value.split(',') {
                        let op = OpInfo::named(name).ok_or_else(|| format!("no op is called {name}"))?;
                        arguments.ops.push(op);
                    }
                }
                "--out" => arguments.out = Some(PathBuf::from(value)),
                _ => return Err(format!("{word}: unknown")),
            }
        }
        if arguments.ops.is_empty() {
            arguments.ops = lockstep_core::op::OPS.iter().collect();
        }
        Ok(arguments)
    }
}
