//! The suite, generic over a backend. Each property returns the number of values compared (a property that
//! compared nothing has failed), or the first violation: op, case, output, index, both bit patterns.

mod disjoint;
mod garbage;
mod rows;

pub use disjoint::rows_are_disjoint;
pub use garbage::{faults_are_local, masked_garbage};
pub use rows::{repacked, row_alone};

use crate::backend::Backend;
use crate::cases::Case;
use crate::launch;
use crate::ops::AnyOp;
use crate::ops::policy_loss::Policy;
use crate::output::{Output, first_difference};

/// Number of values compared, or the first violation.
pub type Checked = Result<usize, String>;

/// Cases with more elements than this run only in [`same_bits`].
pub(crate) const SMALL: usize = 20_000;

fn small(cases: &[Case]) -> impl Iterator<Item = &Case> {
    cases.iter().filter(|case| case.data.elements() <= SMALL)
}

/// Number of values.
pub(crate) fn size(outputs: &[Output]) -> usize {
    outputs.iter().map(Output::len).sum()
}

fn violation(what: &str, backend: &dyn Backend, case: &Case, found: (&str, usize, u64, u64)) -> String {
    let (output, index, want, got) = found;
    format!(
        "{what}: {} {} [{}] `{output}`[{index}]: {got:#x}, expected {want:#x} ({})",
        backend.name(),
        case.op(),
        case.label,
        case.catches
    )
}

/// Every output of every case has the bits of `reference`.
pub fn same_bits(backend: &dyn Backend, reference: &dyn Backend, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for case in cases {
        let (want, got) = (launch::run(reference, case)?, launch::run(backend, case)?);
        if let Some(found) = first_difference(&want, &got) {
            return Err(violation("same_bits", backend, case, found));
        }
        if let Some((output, index)) = poisoned(&got) {
            let found = (output, index, 0, got_bits(&got, output, index));
            return Err(violation("never written", backend, case, found));
        }
        compared += size(&got);
    }
    Ok(compared)
}

fn poisoned(outputs: &[Output]) -> Option<(&'static str, usize)> {
    outputs.iter().find_map(|o| (0..o.len()).find(|i| o.is_poison(*i)).map(|i| (o.name, i)))
}

fn got_bits(outputs: &[Output], name: &str, index: usize) -> u64 {
    outputs.iter().find(|o| o.name == name).map_or(0, |o| o.bits(index))
}

/// Requesting the loss per token or metrics changes no other bit.
pub fn optional_outputs(backend: &dyn Backend, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for case in cases {
        let AnyOp::Policy(policy) = case.params else { continue };
        let whole = launch::run(backend, case)?;
        for bits in 0..8 {
            let [loss, token_loss, metrics] = [1, 2, 4].map(|bit| bits & bit != 0);
            let params = AnyOp::Policy(Policy { loss, token_loss, metrics, ..policy });
            for other in launch::run(backend, &Case { params, ..case.clone() })? {
                let Some(output) = whole.iter().find(|o| o.name == other.name) else { continue };
                let [whole, part] = [output, &other].map(std::slice::from_ref);
                if let Some(found) = first_difference(whole, part) {
                    return Err(violation("optional_outputs", backend, case, found));
                }
                compared += other.len();
            }
        }
    }
    Ok(compared)
}
