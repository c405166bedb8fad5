//! `cargo run --release -p lockstep-conformance --example update_digest`: writes the files `DIGEST`,
//! `RECIPES_DIGEST` and `SCHEDULES`.
//!
//! With op names as arguments it writes nothing and prints the digest of these ops' cases, which shows
//! whether a corpus that grew kept its bits.
//!
//! It writes only if all levels agree. A changed digest is a breaking change: section Bits of the CHANGELOG
//! names the old and the new one.

use lockstep::{Backend, Device};
use lockstep_conformance::verify::{Plan, verify};
use lockstep_conformance::{digest, schedules};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ops: Vec<String> = std::env::args().skip(1).collect();
    if !ops.is_empty() {
        let cases: Vec<_> =
            digest::cases().into_iter().filter(|c| ops.iter().any(|op| op == c.op())).collect();
        println!("{} ({} cases)", digest::digest_of(&Device::cpu(), &cases)?, cases.len());
        return Ok(());
    }
    let report = verify(&Plan::default());
    println!("{report}");
    if !report.configurations_agree() {
        return Err("configurations disagree: the digest stays as it is".into());
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/DIGEST");
    std::fs::write(path, format!("{}\n", report.digest))?;
    println!("{path}: {} (was {})", report.digest, report.published);
    let recipes = digest::recipes(&Backend::ALL);
    println!("{recipes}");
    if !recipes.configurations_agree() {
        return Err("configurations disagree: the digest of recipes stays as it is".into());
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/RECIPES_DIGEST");
    std::fs::write(path, format!("{}\n", recipes.digest))?;
    println!("{path}: {} (was {})", recipes.digest, digest::PUBLISHED_RECIPES.trim());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/SCHEDULES");
    let schedules = schedules::schedules();
    std::fs::write(path, schedules.lines())?;
    println!("{path}: {schedules}");
    Ok(())
}
