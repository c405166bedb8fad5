//! Transposition between sixteen rows of eight numbers and eight slots of sixteen rows.

use super::{PICKS, ROWS};
use core::cell::Cell;

/// Transposes `from[8·r + j]` to slots j·16 + r.
#[inline(always)]
pub fn take_rows(from: &[f32; ROWS * PICKS]) -> [f32; ROWS * PICKS] {
    let mut slots = [0.0; ROWS * PICKS];
    for r in 0..ROWS {
        for j in 0..PICKS {
            slots[j * ROWS + r] = from[r * PICKS + j];
        }
    }
    slots
}

/// Writes slots j·16 + r to `to[8·r + j]`.
#[inline(always)]
pub fn put_rows(slots: &[f32; ROWS * PICKS], to: &[Cell<f32>]) {
    for r in 0..ROWS {
        for j in 0..PICKS {
            to[r * PICKS + j].set(slots[j * ROWS + r]);
        }
    }
}
