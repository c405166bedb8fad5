//! `check_offsets`, `check_values`.

use super::Want;
use crate::cases::{Case, slot};
use crate::oracle::check;
use lockstep_core::check::{BLOCK, Domain};

/// The first fault of each block, from all faults of the array.
fn by_block(elements: usize, faults: &[usize]) -> Vec<Want> {
    let mut want = Want::new("first_fault");
    for start in (0..elements).step_by(BLOCK) {
        let first = faults.iter().find(|i| (start..start + BLOCK).contains(*i));
        want.push(first.map_or(f64::from(u32::MAX), |i| *i as f64), 0.0);
    }
    vec![want]
}

pub(super) fn offsets(case: &Case, elements: usize) -> Vec<Want> {
    by_block(case.data.index.len(), &check::offsets(&case.data.index, elements))
}

pub(super) fn values(case: &Case, domain: Domain) -> Vec<Want> {
    let (least, greatest, nan) = match domain {
        Domain::Finite => (f64::MIN, f64::MAX, false),
        Domain::LogProbability => (f64::MIN, 0.0, false),
        Domain::Weight => (0.0, f64::MAX, false),
        Domain::Reward => (f64::MIN, f64::MAX, true),
    };
    let values = &case.data.element[slot::FIRST];
    let live: Vec<usize> = (0..values.len()).filter(|i| case.data.live(*i)).collect();
    let faults: Vec<usize> =
        live.into_iter().filter(|i| !check::in_domain(values[*i].into(), least, greatest, nan)).collect();
    by_block(values.len(), &faults)
}
