//! Rows of at most 32 elements, 16 or 32 places at a time: LLVM unrolls a loop over fewer before it
//! vectorises.

use core::cell::Cell;
use lockstep_core::num::{self, Arith};
use lockstep_core::team::fold::LANES;
use lockstep_core::team::{Key, Terms};

/// A number for each element, aligned to cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Slots(pub(crate) [f32; LANES]);

/// The fold of [`lockstep_core::team::fold`] when all but the first N columns are +0: x + 0 = x, because no
/// column is −0.
#[inline(always)]
fn fold<const N: usize>(columns: &[f64; N]) -> f64 {
    let mut lanes = *columns;
    for half in [16, 8, 4, 2, 1] {
        if half < N {
            for l in 0..half {
                lanes[l] += lanes[l + half];
            }
        }
    }
    num::canonical64(lanes[0])
}

/// See [`Team::sum_of`](lockstep_core::team::Team::sum_of).
#[inline(always)]
pub(crate) fn sums<const N: usize, const J: usize, const K: usize, F: Terms<J, K>>(
    rows: [&[f32]; J],
    f: F,
) -> [f64; K] {
    let mut x = [[0.0f32; N]; J];
    for j in 0..J {
        load(&mut x[j], rows[j]);
    }
    let length = rows.first().map_or(0, |row| row.len());
    let mut columns = [[0.0f64; N]; K];
    for l in 0..N {
        let terms = f.terms(|j| x[j][l]);
        for k in 0..K {
            columns[k][l] = if l < length { 0.0 + terms[k] } else { 0.0 };
        }
    }
    let mut sums = [0.0; K];
    for k in 0..K {
        sums[k] = fold(&columns[k]);
    }
    sums
}

/// Copies to the first places. Lengths of 8 and 16 are constants, so that they do not become calls to
/// `memcpy`.
#[inline(always)]
fn load<const N: usize>(to: &mut [f32; N], from: &[f32]) {
    match from.len() {
        8 => to[..8].copy_from_slice(&from[..8]),
        16 => to[..16].copy_from_slice(&from[..16]),
        _ => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
    }
}

/// See [`Team::shares`](lockstep_core::team::Team::shares): turns values into shares, in place. Computes
/// numerators for N places, of which at most the first D have a slot.
#[inline(always)]
pub(crate) fn shares<const N: usize, const D: usize, const SUM: bool, A: Arith, F: Key>(
    x: &mut Slots,
    count: usize,
    key: F,
    factor: impl Fn(f64) -> f64,
) {
    let Slots(x) = x;
    for l in 0..N {
        x[l] = num::canonical(key.key::<A>(x[l], 0.0, l));
    }
    let mut total = 0.0;
    if SUM {
        let mut columns = [0.0f64; D];
        for l in 0..D {
            columns[l] = if l < count { 0.0 + f64::from(x[l]) } else { 0.0 };
        }
        total = fold(&columns);
    }
    let factor = factor(total);
    for l in 0..D {
        x[l] = num::canonical((f64::from(x[l]) * factor) as f32);
    }
}

/// Writes the first places; exactly 8 are unrolled.
#[inline(always)]
pub(crate) fn put(cells: &[Cell<f32>], Slots(slots): &Slots) {
    if cells.len() == 8 {
        for l in 0..8 {
            cells[l].set(slots[l]);
        }
    } else {
        for (cell, slot) in cells.iter().zip(slots) {
            cell.set(*slot);
        }
    }
}
