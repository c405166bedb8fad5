//! Golden files: what a framework computes, held against Lockstep by the names of its presets.
//!
//! A file is `{"op", "source", "seed", "note"?, "cases": [{"config", "inputs", "expected",
//! "expected_float64"?}]}` (the README beside the files). The first word of `source` names the framework;
//! `verl` and `trl` say which preset each op is and which of its keys each setting is. A case is then the
//! two calls, [`Recipe::advantages`](lockstep::Recipe::advantages) and
//! [`Recipe::loss`](lockstep::Recipe::loss), and no formula is written here.
//!
//! **What fails**: an op, a setting, an input or an expected number that the table does not know; an expected
//! number that it wants and the file lacks; a case without a comparison.
//!
//! **Rule of comparison** ([`precision`](crate::precision)): the largest difference of an array, relative to
//! its largest expected value; and every element relative to itself, with a floor by the largest of its
//! array, of gradients by the largest of its sequence. Where every expected value is 0, ours must be exactly
//! 0. A number that is a sum whose terms cancel (a loss near 0) is compared with itself first; if that fails,
//! with the sum of the magnitudes of its terms, and the report says how often that happened.

mod compare;
mod format;
mod numbers;
mod outcome;
mod report;
mod settings;
mod trl;
mod verl;

pub use format::GoldenError;
pub use report::{ArrayReport, FileReport, GoldenReport};

use compare::Compared;
use format::{Case, File};
use lockstep::Device;
use outcome::{Outcome, Setup};
use serde_json::{Map, Value};
use settings::Config;
use std::path::Path;

/// Runs every golden file (`*.json`) of a directory.
///
/// Errors: a directory that cannot be read or holds no such file; a file that is not of the format. A
/// disagreement, and whatever a table does not know, is not an error: see [`GoldenReport::passed`].
pub fn verify_dir(dir: &Path) -> Result<GoldenReport, GoldenError> {
    let device = Device::cpu();
    let mut report = GoldenReport::default();
    for path in format::list(dir)? {
        report.files.push(verify_file(&device, &format::read(&path)?));
    }
    Ok(report)
}

/// The ops of a framework's table: those of the files that it covers.
pub fn ops(framework: &str) -> Vec<&'static str> {
    match framework {
        "verl" => verl::ops(),
        "trl" => trl::ops(),
        _ => Vec::new(),
    }
}

fn verify_file(device: &Device, file: &File) -> FileReport {
    let framework = file.source.split_whitespace().next().unwrap_or_default();
    let covered = ops(framework).contains(&file.op.as_str());
    let mut report = FileReport::new(&file.name, &file.op, file.cases.len(), covered);
    if !covered {
        report.fail(0, &format!("op {} of {framework:?} is in no table", file.op));
        return report;
    }
    for (index, case) in file.cases.iter().enumerate() {
        let compared = setup(framework, &file.op, case).and_then(|setup| run(device, &setup, case));
        match compared {
            Ok(compared) => report.case(index, &compared),
            Err(reason) => report.fail(index, &reason),
        }
    }
    report
}

fn setup(framework: &str, op: &str, case: &Case) -> Result<Setup, String> {
    let mut config = Config::new(&case.config);
    let inputs: Vec<&str> = case.inputs.keys().map(String::as_str).collect();
    let setup = match framework {
        "verl" => verl::setup(op, &mut config)?,
        _ => trl::setup(op, &mut config, &inputs)?,
    };
    config.finish()?;
    Ok(setup)
}

/// Makes the calls and compares all that the table expects.
fn run(device: &Device, setup: &Setup, case: &Case) -> Result<Vec<Compared>, String> {
    let double = case.expected_float64.as_ref();
    let tables = [Some((&case.expected, double.is_some())), double.map(|values| (values, false))];
    // Before anything runs: what the table does not know, and what the file lacks.
    for (values, _) in tables.into_iter().flatten() {
        let names = names(values)?;
        if let Some(name) = names.iter().find(|name| !setup.expects.contains(&name.as_str())) {
            return Err(format!("expected `{name}` is not known for this case"));
        }
        if let Some(name) = setup.expects.iter().find(|known| !names.iter().any(|name| name == *known)) {
            return Err(format!("expected `{name}` is missing"));
        }
    }
    let outcome = Outcome::new(device, setup, case)?;
    let mut compared = Vec::new();
    for name in setup.expects.iter().filter(|name| !setup.skips.iter().any(|(skip, _)| skip == *name)) {
        for (values, float32) in tables.into_iter().flatten() {
            let Some(want) = value(values, name) else { continue };
            let got = numbers::get(&outcome, name)?;
            compared.push(Compared { float32, ..got.beside(&outcome, name, want)? });
        }
    }
    Ok(compared)
}

/// The names of all numbers; those of the metrics begin with `metrics.`.
fn names(values: &Map<String, Value>) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for (name, value) in values {
        match (name.as_str(), value) {
            ("metrics", Value::Object(metrics)) => {
                names.extend(metrics.keys().map(|key| format!("metrics.{key}")))
            }
            ("metrics", _) => return Err("expected `metrics` is not an object".into()),
            _ => names.push(name.clone()),
        }
    }
    Ok(names)
}

fn value<'a>(values: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    match name.strip_prefix("metrics.") {
        Some(metric) => values.get("metrics")?.get(metric),
        None => values.get(name),
    }
}
