//! Golden files: what a peer computes, held against Lockstep through its public API.
//!
//! A file is `{"op", "source", "seed", "cases": [{"config", "inputs", "expected"}]}` (the README beside the files).
//!
//! **Rule of comparison.** Error of an array = max |got − want| / max |want|, over live tokens for per-token arrays. Where
//! every `want` is 0, `got` must be exactly 0. A scalar that is a sum whose terms cancel (a loss near 0) is compared with
//! itself first; if that fails, with the sum of the magnitudes of its terms, and the report says how often that happened.

mod compare;
mod config;
mod correction;
mod expected;
mod format;
mod gae;
mod report;
mod run;
mod value;

pub use format::GoldenError;
pub use report::{ArrayReport, FileReport, GoldenReport};

use lockstep::Device;
use std::path::Path;

/// Runs every golden file (`*.json`) of a directory. Ops that Lockstep lacks are listed as not yet covered.
///
/// Errors: a directory that cannot be read or holds no such file; a file that is not of the format (file, case).
/// A disagreement is not an error: see [`GoldenReport::passed`].
pub fn verify_dir(dir: &Path) -> Result<GoldenReport, GoldenError> {
    let device = Device::cpu();
    let mut report = GoldenReport::default();
    for path in format::list(dir)? {
        let file = format::read(&path)?;
        if run::OPS.iter().any(|(op, _)| *op == file.op) {
            report.files.push(verify_file(&device, &file)?);
        } else {
            report.uncovered.push((file.name, file.op));
        }
    }
    Ok(report)
}

fn verify_file(device: &Device, file: &format::File) -> Result<FileReport, GoldenError> {
    let mut report = FileReport::new(&file.name, &file.op, file.cases.len());
    for (index, case) in file.cases.iter().enumerate() {
        let case = format::case(file, index, case)?;
        match run::run(device, &file.op, &case) {
            Ok(arrays) => arrays.iter().for_each(|array| report.add(index, array)),
            Err(reason) => report.fail(index, &reason),
        }
    }
    Ok(report)
}
