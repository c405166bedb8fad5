//! One digest in every configuration of this machine: the published one.

use lockstep::{Backend, SimdLevel};
use lockstep_conformance::cases::random::random;
use lockstep_conformance::digest::{PUBLISHED_RECIPES, digest, recipes};
use lockstep_conformance::levels;
use lockstep_conformance::verify::{Outcome, Plan, verify};
use lockstep_core::op::OPS;
use std::time::Instant;

#[test]
fn every_configuration_prints_the_published_digest() {
    let report = verify(&Plan::default());
    println!("{report}");
    assert!(report.configurations_agree(), "{report}");
    // This would be vacuous if only the reference had run, so every level of this machine must have run.
    let ran = |(_, outcome): &&(String, Outcome)| matches!(outcome, Outcome::Digest(_, n) if *n > 3_000_000);
    assert!(report.configurations.iter().filter(ran).count() >= 2 * SimdLevel::available().len(), "{report}");
    for backend in Backend::ALL {
        let named = |(name, _): &(String, Outcome)| name.starts_with(backend.name());
        assert!(
            backend == Backend::Cpu || report.configurations.iter().any(named),
            "{backend} is not mentioned"
        );
    }
    assert_eq!(
        report.digest, report.published,
        "changed bits: if that is meant, say so in CHANGELOG section Bits and run \
         `cargo run --release -p lockstep-conformance --example update_digest`"
    );
}

#[test]
fn every_configuration_prints_the_published_digest_of_recipes() {
    let report = recipes(&Backend::ALL);
    println!("{report}");
    assert!(report.configurations.len() >= 2 * SimdLevel::available().len(), "{report}");
    assert!(report.configurations_agree(), "{report}");
    assert_eq!(
        report.digest,
        PUBLISHED_RECIPES.trim(),
        "a recipe or its bits changed: if that is meant, say so in CHANGELOG section Bits and run \
         `cargo run --release -p lockstep-conformance --example update_digest`"
    );
}

#[test]
fn random_cases_of_every_op_differ() {
    for op in OPS {
        let [a, b, again] = [1, 2, 1].map(|seed| random(op.name, seed).unwrap());
        assert_eq!((a.op(), b.op()), (op.name, op.name));
        assert_eq!(format!("{a:?}"), format!("{again:?}"), "a seed is a case");
        assert_ne!(format!("{a:?}"), format!("{b:?}"), "{}", op.name);
    }
    assert!(random("no such op", 1).is_none());
}

#[test]
fn the_plain_level_takes_less_than_twenty_seconds() {
    let start = Instant::now();
    assert_eq!(digest(&levels::reference()).unwrap().len(), 64);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
