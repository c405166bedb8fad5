//! Checks Lockstep against golden files: `cargo run --release -p lockstep-golden --example golden [-- DIR |
//! --write]`.
//!
//! Without a folder it checks the committed cases; `--write` then writes docs/evidence.md and the catalogue's
//! list.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args().nth(1);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let write = argument.as_deref() == Some("--write");
    let given = argument.filter(|_| !write);
    let cases = root.join("cases");
    let report =
        lockstep_golden::verify_dir(&lockstep::Device::cpu(), given.as_deref().map_or(&cases, Path::new))?;
    println!("{report}");
    if !report.passed() {
        return Err("golden files disagree".into());
    }
    if write {
        std::fs::write(root.join("../docs/evidence.md"), report.evidence())?;
        std::fs::write(root.join("../catalogue/src/evidence.csv"), report.list())?;
    }
    Ok(())
}
