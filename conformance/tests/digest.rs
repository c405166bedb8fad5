//! One digest at every level and thread count, the published one.

use lockstep::Level;
use lockstep_conformance::digest::{Outcome, digest, verify};
use lockstep_conformance::levels;
use std::time::Instant;

#[test]
fn every_configuration_prints_the_published_digest() {
    let report = verify();
    println!("{report}");
    assert!(report.configurations_agree(), "{report}");
    // Vacuous if only the reference had run: whatever level this machine has must be among them.
    let ran =
        report.configurations.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Digest(_))).count();
    assert_eq!(ran, 2 * Level::available().len());
    assert_eq!(
        report.digest, report.published,
        "changed bits: if that is meant, say so in CHANGELOG section Bits and run \
         `cargo run --release -p lockstep-conformance --example update_digest`"
    );
}

#[test]
fn the_plain_level_takes_less_than_twenty_seconds() {
    let start = Instant::now();
    assert_eq!(digest(&levels::reference()).unwrap().len(), 64);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
