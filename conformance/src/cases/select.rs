//! The same rows in a different batch: reordered, repeated, alone, at another offset.

use super::{Case, Data};
use std::ops::Range;

/// The rows `rows` of `data` in that order, after `lead` masked elements of garbage in a row of their own (0:
/// no such row).
///
/// Scalar arguments are kept, including a denominator that is a global count.
pub fn select(case: &Case, rows: &[usize], lead: usize) -> Case {
    let old = &case.data;
    let mut new = Data {
        offsets: vec![0],
        mask: old.mask.as_ref().map(|_| Vec::new()),
        element: vec![Vec::new(); old.element.len()],
        row: vec![Vec::new(); old.row.len()],
        ..Data::default()
    };
    if lead > 0 {
        // These values must not reach the neighbours. They may be live, since a batch can be without a mask,
        // so they are valid.
        for values in &mut new.element {
            values.extend((0..lead).map(|i| -0.25 - i as f32 / 64.0));
        }
        if !old.index.is_empty() {
            new.index.extend((0..lead).map(|i| i as u32));
        }
        if !old.element64.is_empty() {
            new.element64.extend((0..lead).map(|i| -0.5 - i as f64 / 64.0));
        }
        new.mask.iter_mut().for_each(|mask| mask.extend(vec![1; lead]));
        new.row.iter_mut().for_each(|values| values.push(-0.5));
        new.offsets.push(lead as u32);
    }
    for &row in rows {
        let span = old.span(row);
        for (new, old) in new.element.iter_mut().zip(&old.element) {
            new.extend(&old[span.clone()]);
        }
        for (new, old) in new.mask.iter_mut().zip(&old.mask) {
            new.extend(&old[span.clone()]);
        }
        new.element64.extend(part(&old.element64, &span));
        new.index.extend(part(&old.index, &span));
        for (new, old) in new.row.iter_mut().zip(&old.row) {
            new.push(old[row]);
        }
        new.offsets.push(new.offsets[new.offsets.len() - 1] + span.len() as u32);
    }
    Case { data: new, ..case.clone() }
}

/// The elements of a row, unless the op has no such array.
fn part<'a, T>(array: &'a [T], span: &Range<usize>) -> &'a [T] {
    if array.is_empty() { &[] } else { &array[span.clone()] }
}
