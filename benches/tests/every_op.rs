//! No op of the table is without a benchmark.

use lockstep_benches::{Bench, Inputs, all};
use lockstep_core::op::OPS;

#[test]
fn every_op_has_a_bench() {
    let inputs = Inputs::new(512, 16);
    let benches = all(&inputs).unwrap();
    let named: Vec<&str> = benches.iter().flat_map(Bench::ops).collect();
    let without: Vec<&str> = OPS.iter().map(|op| op.name).filter(|op| !named.contains(op)).collect();
    assert_eq!(without, Vec::<&str>::new());
}
