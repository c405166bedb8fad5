//! `cargo xtask divisions`: code that may run on a GPU divides with `num::div` and `num::div64`, not with
//! `/`, which AMD rounds as its reciprocal happens to (docs/emulator.md, "Division").
//!
//! The check reads the compiler's MIR of `core`, where each division has its type and source position.

use crate::toolchain::output;
use crate::{Fault, none};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Files of `core/src` that contain no kernel, and the two functions themselves.
pub const HOST: [&str; 2] = [
    "num/div.rs",
    // binary64 functions of schedules
    "num/wide.rs",
];

/// Runs the command.
pub fn run(root: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mir = folder.path().join("core.mir");
    let mut emit = std::ffi::OsString::from("--emit=mir=");
    emit.push(&mir);
    // Spans are an option of nightly compilers only.
    output(
        Command::new(env!("CARGO"))
            .current_dir(root)
            .env("RUSTC_BOOTSTRAP", "1")
            .args(["rustc", "--quiet", "--locked", "--package", "lockstep-core", "--lib", "--"])
            .arg(emit)
            .arg("-Zmir-include-spans=on"),
    )?;
    let mir = std::fs::read_to_string(&mir).with_context(|| mir.display().to_string())?;
    let found = divisions(&mir)?;
    none("`/` on floats in what may run on a GPU; use num::div, num::div64", &check(&found))?;
    println!("divisions: {} of floats with `/`, all in host code", found.len());
    Ok(())
}

/// All floating-point divisions in a MIR text: file below `core/src`, and line.
pub fn divisions(mir: &str) -> Result<Vec<Fault>> {
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    let mut found = Vec::new();
    for line in mir.lines() {
        let code = line.trim_start();
        if !line.is_empty() && !line.starts_with(' ') {
            types.clear();
        } else if let Some((name, kind)) = code.strip_prefix("let ").and_then(|rest| rest.split_once(": ")) {
            types.insert(name.trim_start_matches("mut "), kind.split(';').next().unwrap_or_default());
        } else if let Some((to, _)) = code.split_once(" = Div(") {
            // `_5`, `(*_5)`, `_5[_6]` or `(_5.1: f64)`.
            let local = to.trim_start_matches(['(', '*']).split([')', '.', '[']).next().unwrap_or_default();
            let kind = match to.split_once(": ") {
                Some((_, kind)) => kind,
                None => types.get(local).with_context(|| format!("MIR, a place of unknown type: {code}"))?,
            };
            if kind.contains("f32") || kind.contains("f64") {
                let span = code.split_once("core/src/").with_context(|| format!("MIR, no place: {code}"))?.1;
                let mut parts = span.split(':');
                let file = parts.next().unwrap_or_default();
                let line = parts.next().unwrap_or_default().parse().context("MIR, a line number")?;
                found.push(Fault::new(file, line, "a division"));
            }
        }
    }
    Ok(found)
}

/// Divisions outside host code, and entries of the list without a division.
pub fn check(found: &[Fault]) -> Vec<Fault> {
    let host = |file: &str| HOST.iter().any(|host| file.starts_with(host));
    let mut faults: Vec<Fault> = found.iter().filter(|division| !host(&division.entry)).cloned().collect();
    let idle = HOST.iter().filter(|host| !found.iter().any(|division| division.entry.starts_with(**host)));
    faults.extend(
        idle.map(|host| Fault::new(host, 0, "on the list of xtask/src/divisions.rs, but divides nothing")),
    );
    faults.sort();
    faults.dedup();
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIR: &str = "
fn ratio::ess(_1: f64, _2: u32) -> f64 {
    debug total => _1;  // in scope 0 at core/src/ratio/ess.rs:3:5: 3:9
    let mut _0: f64;    // return place in scope 0 at core/src/ratio/ess.rs:3:5: 3:9
    let mut _3: u32;    // in scope 0 at core/src/ratio/ess.rs:4:5: 4:9
    let mut _6: [f64; 8]; // in scope 0 at core/src/num/ln.rs:4:5: 4:9
    let _4: &mut f32;   // in scope 0 at core/src/ratio/ess.rs:4:5: 4:9

    bb0: {
        _3 = Div(copy _2, const 32_u32); // scope 0 at core/src/ratio/ess.rs:4:5: 4:9
        _0 = Div(copy _1, move _5);      // scope 0 at core/src/ratio/ess.rs:5:5: 5:9
        (*_4) = Div(copy (*_4), move _5); // scope 0 at core/src/num/wide.rs:6:5: 6:9
        (_9.1: f64) = Div(copy _1, move _5); // scope 0 at core/src/kl.rs:7:5: 7:9
        _6[_2] = Div(copy _1, move _5); // scope 0 at core/src/num/ln.rs:9:5: 9:9
        _0 = Mul(copy _1, move _5);      // scope 0 at core/src/ratio/ess.rs:8:5: 8:9
    }
}
";

    #[test]
    fn reads_types_and_places() -> Result<()> {
        let at = |file, line| Fault::new(file, line, "a division");
        let found = divisions(MIR)?;
        assert_eq!(found, [at("ratio/ess.rs", 5), at("num/wide.rs", 6), at("kl.rs", 7), at("num/ln.rs", 9)]);
        let faults = check(&found);
        let outside: Vec<_> =
            faults.iter().filter(|fault| fault.line > 0).map(|fault| &fault.entry[..]).collect();
        assert_eq!(outside, ["kl.rs", "num/ln.rs", "ratio/ess.rs"]);
        assert_eq!(faults.len() - 3, HOST.len() - 1, "the rest of the list divides nothing here");
        assert!(divisions(&MIR.replace("_0: f64", "_7: f64")).is_err(), "a place of unknown type");
        Ok(())
    }
}
