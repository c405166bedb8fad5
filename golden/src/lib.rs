//! Golden files: compares Lockstep with the results of released code.
//!
//! A file is `{"op", "source", "seed", "note"?, "cases": [{"config", "inputs", "expected",
//! "expected_float64"?}]}` (see the README beside the files). `source` names the code. Its table in `sources`
//! maps an op to one of our presets, the code's configuration keys to our settings, and our results to the
//! file's numbers. A case is then the two calls, [`Recipe::advantages`](lockstep::Recipe::advantages) and
//! [`Recipe::loss`](lockstep::Recipe::loss), or one of the ops and schedules; no formula is written here.
//!
//! **What fails**: an op, a setting, an input or an expected number that no table knows; an expected number
//! that a table wants but the file lacks; a case without a comparison.
//!
//! **Rule of comparison**: the largest difference of an array, relative to
//! its largest expected value; and every element relative to itself, with a floor by the largest of its
//! array, of gradients by the largest of its sequence. Where every expected value is 0, ours must be exactly
//! 0. A number that is a sum whose terms cancel (a loss near 0) is compared with itself first; if that fails,
//! with the sum of the magnitudes of its terms, and the report says how often that happened.
//!
//! **Exceptions**: a table may state that Lockstep differs in a case, or refuses it, and why. Such a case is
//! run like any other, and counts as an exception only if it does differ as the table states.

mod compare;
mod evidence;
mod format;
mod halves;
mod inputs;
mod numbers;
mod outcome;
mod report;
mod settings;
mod sources;
mod terms;

pub use compare::{GOLDEN, GOLDEN_FLOAT32, GOLDEN_FLOOR, GOLDEN_STEEP};
pub use format::GoldenError;
pub use report::{ArrayReport, FileReport, GoldenReport};

use compare::Compared;
use format::{Case, File};
use inputs::Inputs;
use lockstep::Device;
use numbers::Got;
use outcome::{Outcome, Setup};
use serde_json::{Map, Value};
use settings::Config;
use sources::{Plan, Request, Source};
use std::collections::BTreeMap;
use std::path::Path;

/// Runs every golden file (`*.json`, `*.json.gz`) of a folder and all folders below it on `device`.
///
/// Errors: a folder that cannot be read or contains no such file; a file that does not follow the format. A
/// disagreement, or something that a table does not know, is not an error: see [`GoldenReport::passed`].
pub fn verify_dir(device: &Device, dir: &Path) -> Result<GoldenReport, GoldenError> {
    let mut report = GoldenReport::default();
    for (name, path) in format::list(dir)? {
        report.files.push(verify_file(device, &format::read(&name, &path)?));
    }
    Ok(report)
}

/// The sources with a table, and the ops of each.
pub fn sources() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut all = BTreeMap::<&str, Vec<&str>>::new();
    for source in sources::ALL {
        all.entry(source.name).or_default().extend(source.ops);
    }
    all
}

fn verify_file(device: &Device, file: &File) -> FileReport {
    let source = sources::of(&file.source, &file.op);
    let mut report = FileReport::new(&file.name, &file.op, &file.source, file.cases.len());
    let Some(source) = source else {
        report.fail(0, &format!("op {} of {:?} is in no table", file.op, file.source));
        return report;
    };
    report.source = Some(source.name);
    for (index, case) in file.cases.iter().enumerate() {
        verify_case(device, source, &file.op, case, index, &mut report);
    }
    report
}

fn verify_case(
    device: &Device,
    source: &Source,
    op: &str,
    case: &Case,
    index: usize,
    report: &mut FileReport,
) {
    let (mut config, inputs) = (Config::new(&case.config), Inputs::new(&case.inputs));
    let plan = (source.read)(Request { op, config: &mut config, inputs: &inputs, device }).and_then(|plan| {
        // A case that Lockstep cannot express yet need not be read to the end.
        if !matches!(plan, Plan::Missing(_)) {
            config.finish()?;
        }
        Ok(plan)
    });
    let plan = match plan {
        Ok(Plan::Ordered(of)) => of(&case.expected, device),
        plan => plan,
    };
    match plan {
        Err(reason) => report.fail(index, &reason),
        Ok(Plan::Ordered(_)) => report.fail(index, "a plan that asks for the order twice"),
        Ok(Plan::Missing(what)) => report.misses(what),
        Ok(Plan::Numbers(ours, got, exception)) => match compare_numbers(got, &inputs, case) {
            Ok(compared) => {
                report.case(index, &compared, ours, exception);
            }
            Err(reason) => report.fail(index, &reason),
        },
        Ok(Plan::Recipe(setup)) => match run(device, &setup, case, &inputs) {
            Ok(compared) => {
                if report.case(index, &compared, setup.recipe.preset(), setup.exception)
                    && let Ok(recipe) = setup.recipe.recipe()
                {
                    *report.halves.entry(halves::half(&recipe, setup.calls)).or_default() += 1;
                }
            }
            Err(reason) => report.refused(index, &reason, setup.exception),
        },
    }
}

/// Expected values: the code's own, and those of the same code with its casts to binary32 widened.
fn tables(case: &Case) -> [Option<(&Map<String, Value>, bool)>; 2] {
    let double = case.expected_float64.as_ref();
    [Some((&case.expected, double.is_some())), double.map(|values| (values, false))]
}

/// Compares numbers that a table computed with calls of its own.
fn compare_numbers(
    got: Vec<(&'static str, Got)>,
    inputs: &Inputs<'_>,
    case: &Case,
) -> Result<Vec<Compared>, String> {
    inputs.finish()?;
    let expects: Vec<&str> = got.iter().map(|(name, _)| *name).collect();
    known(case, &expects)?;
    let (shape, mut compared) = (inputs.shape()?, Vec::new());
    for (name, got) in got {
        for (values, float32) in tables(case).into_iter().flatten() {
            let Some(want) = value(values, name) else { continue };
            if !(float32 && got.only_double() && in_double(case, name)) {
                compared.push(Compared { float32, ..got.clone().beside(&shape, name, want)? });
            }
        }
    }
    Ok(compared)
}

/// Checks that the table knows every expected number and that the file lacks none; metrics may be present as
/// computed by the code only.
fn known(case: &Case, expects: &[&str]) -> Result<(), String> {
    for (k, (values, _)) in tables(case).into_iter().flatten().enumerate() {
        let wanted = |name: &&&str| k == 0 || !name.starts_with("metrics.");
        let names = names(values)?;
        if let Some(name) = names.iter().find(|name| !expects.contains(&name.as_str())) {
            return Err(format!("expected `{name}` is not known for this case"));
        }
        if let Some(name) =
            expects.iter().filter(wanted).find(|known| !names.iter().any(|name| name == *known))
        {
            return Err(format!("expected `{name}` is missing"));
        }
    }
    Ok(())
}

/// Makes the calls and compares everything that the table expects.
fn run(device: &Device, setup: &Setup, case: &Case, inputs: &Inputs<'_>) -> Result<Vec<Compared>, String> {
    // Checked before anything runs.
    known(case, &setup.expects)?;
    let (shape, outcome) = (inputs.shape()?, Outcome::new(device, setup, inputs)?);
    let mut compared = Vec::new();
    for name in setup.expects.iter().filter(|name| !setup.skips.iter().any(|(skip, _)| skip == *name)) {
        for (values, float32) in tables(case).into_iter().flatten() {
            let Some(want) = value(values, name) else { continue };
            let got = match setup.own.iter().find(|(own, _)| own == name) {
                Some((_, own)) => own(&outcome)?,
                None => numbers::get(&outcome, name)?,
            };
            if !(float32 && got.only_double() && in_double(case, name)) {
                compared.push(Compared { float32, steep: setup.steep, ..got.beside(&shape, name, want)? });
            }
        }
    }
    Ok(compared)
}

fn in_double(case: &Case, name: &str) -> bool {
    case.expected_float64.as_ref().is_some_and(|values| value(values, name).is_some())
}

/// The names of all numbers; those of metrics begin with `metrics.`.
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
