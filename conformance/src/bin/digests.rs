//! Computes the digests of this machine's CPU, level by level: what `lockstep verify` compares, in a program
//! small enough for an emulated processor.
//!
//! Usage: `digests [LEVEL...]`. The default is every level of this machine, each with 1 and 2 threads. Exit
//! code 0: every digest equals the published one. A level that the machine lacks is an error.
#![forbid(unsafe_code)]

use lockstep::SimdLevel;
use lockstep_conformance::digest::{PUBLISHED, PUBLISHED_RECIPES, digest, recipes_digest};
use lockstep_conformance::{exit, levels};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    exit(asked().and_then(|levels| run(&levels)))
}

/// The levels named by the arguments, or all available ones.
fn asked() -> Result<Vec<SimdLevel>, String> {
    let names = Vec::from_iter(std::env::args().skip(1));
    if names.is_empty() {
        return Ok(SimdLevel::available());
    }
    names.iter().map(|name| levels::named(name)).collect()
}

/// Prints every digest and returns whether all equal the published ones.
fn run(asked: &[SimdLevel]) -> Result<bool, String> {
    let mut same = true;
    for &level in asked {
        for threads in [1, 2] {
            let device = levels::open(level, threads).map_err(|absent| absent.reason)?;
            for (what, of, published) in
                [("corpus", digest as fn(&_) -> _, PUBLISHED), ("recipes", recipes_digest, PUBLISHED_RECIPES)]
            {
                let begun = Instant::now();
                let found = of(&device)?;
                let is = if found == published.trim() { "published" } else { "NOT the published one" };
                let seconds = begun.elapsed().as_secs_f64();
                println!("{}: {what} {found}, {is}, {seconds:.1} s", device.describe());
                same &= found == published.trim();
            }
        }
    }
    Ok(same)
}
