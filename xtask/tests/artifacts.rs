//! The committed artifacts keep every rule. Reads text: needs no toolchain and no GPU.

use std::path::Path;
use xtask::artifacts::{Artifacts, folder};
use xtask::{gfx942, ptx};

fn committed() -> Artifacts {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    Artifacts::read(&folder(&root)).expect("`cargo xtask artifacts` writes them")
}

#[test]
fn they_keep_every_rule() {
    let faults = committed().faults().expect("artifacts that can be read");
    assert_eq!(faults, [], "{}", faults.iter().map(|fault| format!("\n{fault}")).collect::<String>());
}
