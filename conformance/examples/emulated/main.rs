//! `cargo xtask emulate cuda`: every op on a real or emulated GPU against the plain reference, bit for bit.
//!
//! ```text
//! emulated [--backend cuda|rocm] [--cases 200] [--elements 2000] [--seed N] [--minutes N] [--ops a,b]
//!          [--digest] [--out FILE]
//! ```
//!
//! Random cases of the ops in rotation, both zero-copy (each array is its own allocation, so that an access
//! one byte too far is detected) and staged, in several launch geometries. Entry points that few cases hit
//! are then targeted directly. On an emulated library it also reports resource use by entry point. Exit code
//! 0: no bit differed, every op had its cases, and every entry point of the ops was hit.

mod arguments;
mod device;
mod report;
mod run;

use arguments::Arguments;
use lockstep::Backend;
use lockstep_conformance::exit;
use lockstep_gpu::Driver;
use std::process::ExitCode;

fn main() -> ExitCode {
    exit(Arguments::parse(std::env::args().skip(1)).and_then(|arguments| match arguments.backend {
        Backend::Rocm => on(&arguments, lockstep_rocm::open, "libamdhip64.so"),
        _ => on(&arguments, lockstep_cuda::open, "libcuda.so.1"),
    }))
}

/// Runs everything on one backend. An error says why nothing ran.
fn on<D: Driver>(
    arguments: &Arguments,
    open: fn(usize) -> Result<lockstep_gpu::Gpu<D>, lockstep_gpu::Error>,
    library: &str,
) -> Result<bool, String> {
    let mut run = run::Run::new(open, library, arguments)?;
    println!("device  {}", run.describe());
    println!("seed    {} (--seed {0} repeats this run)", arguments.seed);
    run.random();
    run.aim();
    let report = run.finish();
    print!("{report}");
    if let Some(file) = &arguments.out {
        std::fs::write(file, report.csv()).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let same_digest = !arguments.digest || digest(arguments.backend)?;
    println!("{}", if report.passed() && same_digest { "pass" } else { "FAIL" });
    Ok(report.passed() && same_digest)
}

/// Whether the device's digest of the corpus matches the published one.
fn digest(backend: Backend) -> Result<bool, String> {
    let begun = std::time::Instant::now();
    let device = lockstep::Device::open(&format!("{backend}:0")).map_err(|error| error.to_string())?;
    let found = lockstep_conformance::digest::digest(&device)?;
    let same = found == lockstep_conformance::digest::PUBLISHED.trim();
    let says = if same { "the published one" } else { "NOT the published one" };
    println!("digest  {found}, {says}, {:.0} s", begun.elapsed().as_secs_f64());
    Ok(same)
}
