//! Every op against the oracle over the corpus, by the one table of tolerances.

use crate::prelude::*;
use lockstep_conformance::accuracy::{Measured, Tally, worst};
use lockstep_conformance::cases::corpus;
use lockstep_conformance::expect::Want;
use lockstep_conformance::output::{Output, Place, Values};
use lockstep_conformance::precision::{Allowance, SLACK, allowed};

const SEED: u64 = 20_261_121;
/// Random cases per op, in addition to the corpus.
const DRAWN: u64 = 50;
/// In units of 2⁻²⁴.
const OF_BINARY64_SUMS: f64 = 1e-7;

#[test]
fn every_op_is_within_its_allowance_and_no_allowance_is_slack() {
    let reference = levels::reference();
    let mut measured = Measured::default();
    let mut failures = Vec::new();
    let drawn = OPS.iter().flat_map(|op| (0..DRAWN).map(|seed| random(op.name, SEED + seed).unwrap()));
    for case in corpus(SEED).into_iter().chain(drawn) {
        if let Err(failure) = measured.add(&case, &launch::run(&reference, &case).unwrap()) {
            failures.push(failure);
        }
    }
    println!("{:<18} {:<18} {:>10} {:>8}", "op", "output", "measured", "allowed");
    let lines = allowed().flat_map(|line| line.outputs.iter().map(move |output| (line, *output)));
    for (Allowance { op, units: allowed, .. }, output) in lines {
        let Tally { units, label, .. } = measured.0.get(&(*op, output)).cloned().unwrap_or_default();
        println!("{op:<18} {output:<18} {units:>10.3e} {allowed:>8} units of 2^-24   [{label}]");
        // A bound for binary64 sums is derived from their length rather than measured; a corpus of short rows
        // may show none of it.
        if *allowed > OF_BINARY64_SUMS && units * SLACK < *allowed {
            failures.push(format!("{op} `{output}`: slack: only {units:.1e} measured"));
        }
    }
    failures.extend(measured.unseen());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_count_is_off_by_its_doubtful_tokens_at_most() {
    let want = Want { name: "clipped", want: vec![5.0, 5.0], magnitude: vec![-1.0, 0.0] };
    let units = |found: [f64; 2]| {
        let (name, values) = ("clipped", Values::F64(found.to_vec()));
        let found = worst(&Output { name, place: Place::Row, values }, &want);
        assert_eq!(found.doubtful, 0);
        found.units
    };
    assert_eq!([[5.0, 5.0], [4.0, 5.0], [6.0, 5.0]].map(units), [0.0; 3]);
    assert_eq!([[3.0, 5.0], [7.0, 5.0], [5.0, 4.0], [f64::NAN, 5.0]].map(units), [f64::INFINITY; 4]);
}

#[test]
fn an_output_that_is_left_out_too_often_is_named() {
    let tally = |elements, cases| Tally { elements, cases, ..Tally::default() };
    let unseen = |tally| Measured([(("op", "output"), tally)].into()).unseen().len();
    assert_eq!(unseen(tally([1000, 10], [100, 1])), 0);
    assert_eq!(unseen(tally([1000, 11], [100, 0])), 1);
    assert_eq!(unseen(tally([1000, 2], [100, 2])), 1);
    assert_eq!(unseen(tally([0, 0], [0, 0])), 1);
}
