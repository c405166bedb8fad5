//! Rows of common model shapes, sixteen at a time, for teams whose vectors belong to one thread.
//!
//! The row programs of [`gating_forward`](super::gating_forward) and
//! [`gating_backward`](super::gating_backward) are dependency chains of some 300 cycles, and a processor
//! overlaps fewer than two consecutive rows. Here everything between the picks and the dense gradient is a
//! loop over rows with compile-time lengths. The functions and the order of sums are the same, hence the same
//! bits.

mod backward;
mod forward;

use crate::logits::weight;
use crate::num::{self, Arith};
use crate::team::fold::{COLUMNS, fold_columns};

pub(super) use crate::team::ROWS;
/// Number of chosen experts.
const K: usize = crate::team::PICKS;
/// Slots of a block. Forward, slot j of row r is at j·16 + r, so that loops over rows vectorise; backward at
/// r·8 + j, as in memory.
const SLOTS: usize = ROWS * K;

/// One number per row.
type Each = [f64; ROWS];

/// Sums of the rows' slots, in the order of [`fold`](crate::team::fold): columns beyond the eighth are +0,
/// and x + 0 = x because no term is −0.
#[inline(always)]
fn sums(terms: &[f64; SLOTS]) -> Each {
    let mut sums = [0.0; ROWS];
    for r in 0..ROWS {
        let x: &[f64; K] = &terms.as_chunks().0[r];
        sums[r] = num::canonical64(((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])));
    }
    sums
}

/// The same sums for slots stored at j·16 + r.
#[inline(always)]
fn sums_across(terms: &[f64; SLOTS]) -> Each {
    let (mut halves, mut quarters, mut sums) = ([0.0; SLOTS / 2], [0.0; SLOTS / 4], [0.0; ROWS]);
    for i in 0..SLOTS / 2 {
        halves[i] = terms[i] + terms[i + SLOTS / 2];
    }
    for i in 0..SLOTS / 4 {
        quarters[i] = halves[i] + halves[i + SLOTS / 4];
    }
    for r in 0..ROWS {
        sums[r] = num::canonical64(quarters[r] + quarters[r + ROWS]);
    }
    sums
}

/// Copies each row's number to its slots j·16 + r.
#[inline(always)]
fn spread_across<N: Copy + Default>(each: &[N; ROWS]) -> [N; SLOTS] {
    let mut slots = [N::default(); SLOTS];
    for slots in slots.as_chunks_mut().0 {
        *slots = *each;
    }
    slots
}

/// Copies each row's number to its slots.
#[inline(always)]
fn spread<N: Copy + Default>(each: &[N; ROWS]) -> [N; SLOTS] {
    let mut slots = [N::default(); SLOTS];
    for r in 0..ROWS {
        for j in 0..K {
            slots[r * K + j] = each[r];
        }
    }
    slots
}

/// e^(s − largest) for all experts of a row, in place.
#[inline(always)]
fn exponentials<A: Arith, const E: usize>(x: &mut [f32; E], largest: f32) {
    for e in 0..E {
        x[e] = weight::<A>(x[e] - largest);
    }
}

/// Sum of the exponentials of a row; E is a multiple of the chunk length.
#[inline(always)]
fn total<const E: usize>(x: &[f32; E]) -> f64 {
    let mut columns = [0.0f64; COLUMNS];
    for c in 0..COLUMNS {
        columns[c] = f64::from(x[c]);
    }
    for chunk in 1..E / COLUMNS {
        for c in 0..COLUMNS {
            columns[c] += f64::from(x[chunk * COLUMNS + c]);
        }
    }
    num::canonical64(fold_columns(&columns))
}

#[inline(always)]
fn load<const E: usize>(row: &[f32]) -> [f32; E] {
    let mut x = [0.0; E];
    x.copy_from_slice(&row[..E]);
    x
}
