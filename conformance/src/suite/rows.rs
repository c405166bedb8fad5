//! A row's results depend on that row alone, not on its neighbours, its offset or its shard.

use super::{Checked, small, violation};
use crate::backend::Backend;
use crate::cases::Case;
use crate::cases::hash::Source;
use crate::cases::select::select;
use crate::launch;
use crate::output::Output;

/// Compares row `row` of one launch with row `other_row` of another.
pub(super) fn compare_row(
    (case, outputs, row): (&Case, &[Output], usize),
    (other, other_outputs, other_row): (&Case, &[Output], usize),
) -> Result<usize, (&'static str, usize, u64, u64)> {
    let mut compared = 0;
    for (a, b) in outputs.iter().zip(other_outputs) {
        let (from, to) = (a.range(&case.data.offsets, row), b.range(&other.data.offsets, other_row));
        for (i, j) in from.zip(to) {
            if a.bits(i) != b.bits(j) {
                return Err((a.name, i, a.bits(i), b.bits(j)));
            }
            compared += 1;
        }
    }
    Ok(compared)
}

/// Compares the rows `rows` in their own batch, after `lead` elements, with the same rows in the whole batch.
fn same_rows(
    what: &str,
    backend: &dyn Backend,
    (case, whole): (&Case, &[Output]),
    rows: &[usize],
    lead: usize,
) -> Checked {
    let part = select(case, rows, lead);
    let outputs = launch::run(backend, &part)?;
    let first = usize::from(lead > 0);
    let mut compared = 0;
    for (position, &row) in rows.iter().enumerate() {
        compared += compare_row((case, whole, row), (&part, &outputs, position + first))
            .map_err(|found| violation(what, backend, case, found))?;
    }
    Ok(compared)
}

/// The length of a lead row for this case and number. Rows of equal length take none, and neither does a
/// batch without elements, whose arrays do not show which of them the op has.
fn lead(case: &Case, k: usize) -> usize {
    if case.params.rows_are_equal() || case.data.elements() == 0 { 0 } else { k % 33 }
}

/// A row alone has the same bits as in its batch; start offsets cycle through 0..=32.
pub fn row_alone(backend: &dyn Backend, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for case in small(cases).filter(|case| !case.params.rows_are_blocks()) {
        let whole = launch::run(backend, case)?;
        for row in 0..case.data.rows() {
            for lead in [0, lead(case, row + 1)] {
                compared += same_rows("row_alone", backend, (case, &whole), &[row], lead)?;
            }
        }
    }
    Ok(compared)
}

/// Rows keep their bits when reordered and in sub-batches of every kind (shards and micro-batches with the
/// same global denominators).
pub fn repacked(backend: &dyn Backend, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for (k, case) in cases.iter().filter(|case| !case.params.rows_are_blocks()).enumerate() {
        let whole = launch::run(backend, case)?;
        let rows: Vec<usize> = (0..case.data.rows()).collect();
        let mut shuffled = rows.clone();
        shuffled.sort_by_key(|row| Source::new(k as u64).bits(*row));
        let reversed: Vec<usize> = rows.iter().rev().copied().collect();
        let (even, odd): (Vec<usize>, Vec<usize>) = rows.iter().partition(|row| **row % 2 == 0);
        let (head, tail) = rows.split_at(rows.len() / 3);
        let twice: Vec<usize> = tail.iter().chain(tail).copied().collect();
        for (j, part) in [&shuffled, &reversed, &even, &odd, head, tail, &twice].into_iter().enumerate() {
            if !part.is_empty() {
                compared += same_rows("repacked", backend, (case, &whole), part, lead(case, 7 * k + j))?;
            }
        }
    }
    Ok(compared)
}
