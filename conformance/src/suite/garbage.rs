//! What must not be read, and what must be detected.

use super::rows::compare_row;
use super::{Checked, got_bits, small, violation};
use crate::backend::Backend;
use crate::cases::Case;
use crate::cases::hash::Source;
use crate::cases::masks::garbage;
use crate::launch;
use crate::output::first_difference;

/// Other garbage (NaN, infinities, numbers) at masked elements changes no bit.
pub fn masked_garbage(backend: &dyn Backend, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for case in small(cases) {
        let Some(mask) = &case.data.mask else { continue };
        let masked = mask.iter().filter(|byte| **byte == 0).count();
        let whole = launch::run(backend, case)?;
        for shift in 1..7 {
            let mut other = case.clone();
            for values in &mut other.data.element {
                let masked = mask.iter().zip(values).enumerate().filter(|(_, (byte, _))| **byte == 0);
                masked.for_each(|(i, (_, value))| *value = garbage(i + shift));
            }
            if let Some(found) = first_difference(&whole, &launch::run(backend, &other)?) {
                return Err(violation("masked_garbage", backend, case, found));
            }
        }
        compared += masked;
    }
    Ok(compared)
}

/// A bad value of a live element raises its row's alarm and changes nothing in any other row.
pub fn faults_are_local(backend: &dyn Backend, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for (k, case) in small(cases).enumerate() {
        let whole = launch::run(backend, case)?;
        for (j, (slot, bad)) in case.params.fault_slots().into_iter().enumerate() {
            let elements = case.data.elements().max(1);
            let start = Source::new(k as u64).below(j, elements);
            // The first live element from there on.
            let Some(i) =
                (start..elements).chain(0..start).find(|i| *i < case.data.elements() && case.data.live(*i))
            else {
                continue;
            };
            let mut other = case.clone();
            other.data.element[slot][i] = bad[k % bad.len()];
            let outputs = launch::run(backend, &other)?;
            for row in 0..case.data.rows() {
                if case.data.span(row).contains(&i) {
                    let alarm = got_bits(&outputs, "alarm", row);
                    if alarm != 1 {
                        return Err(violation("no alarm", backend, case, ("alarm", row, 1, alarm)));
                    }
                } else {
                    compared += compare_row((case, &whole, row), (&other, &outputs, row))
                        .map_err(|found| violation("faults_are_local", backend, case, found))?;
                }
            }
        }
    }
    Ok(compared)
}
