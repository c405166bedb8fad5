//! `cargo run --release -p lockstep-conformance --example update_digest`: writes the file `DIGEST`.
//!
//! Only after every level agrees. A changed digest is a breaking change: CHANGELOG, section Bits, names the old and new one.

use lockstep_conformance::verify::{Plan, verify};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let report = verify(&Plan::default());
    println!("{report}");
    if !report.configurations_agree() {
        return Err("configurations disagree: the digest stays as it is".into());
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/DIGEST");
    std::fs::write(path, format!("{}\n", report.digest))?;
    println!("{path}: {} (was {})", report.digest, report.published);
    Ok(())
}
