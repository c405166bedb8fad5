//! Every op against the oracle over the corpus, by the one table of tolerances.

use lockstep::{Device, Level};
use lockstep_conformance::accuracy::Measured;
use lockstep_conformance::cases::corpus;
use lockstep_conformance::launch;
use lockstep_conformance::precision::{SLACK, allowed};

const SEED: u64 = 20_261_121;
/// In units of 2⁻²⁴.
const OF_BINARY64_SUMS: f64 = 1e-7;

#[test]
fn every_op_is_within_its_allowance_and_no_allowance_is_slack() {
    let reference = Device::cpu_with(Some(Level::Plain), Some(1)).unwrap();
    let mut measured = Measured::default();
    let mut failures = Vec::new();
    for case in corpus(SEED) {
        if let Err(failure) = measured.add(&case, &launch::run(&reference, &case).unwrap()) {
            failures.push(failure);
        }
    }
    println!("{:<18} {:<18} {:>10} {:>8}", "op", "output", "measured", "allowed");
    for allowance in allowed() {
        let (units, label) = measured.0.get(&(allowance.op, allowance.output)).cloned().unwrap_or_default();
        println!(
            "{:<18} {:<18} {units:>10.3e} {:>8} units of 2^-24   [{label}]",
            allowance.op, allowance.output, allowance.units
        );
        // A bound of binary64 sums is derived from their length, not measured: a corpus of short rows may see none of it.
        if allowance.units > OF_BINARY64_SUMS && units * SLACK < allowance.units {
            failures
                .push(format!("{} `{}`: slack: only {units:.1e} measured", allowance.op, allowance.output));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
