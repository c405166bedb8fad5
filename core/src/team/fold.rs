//! The fixed order of a sum.
//!
//! ```text
//! column[c] = 0                          c in 0..128, binary64
//! for i in 0..n: column[i mod 128] += x[i]          (in the order of i)
//! lane[l]   = (column[l] + column[l+32]) + (column[l+64] + column[l+96])         l in 0..32
//! for s in 16, 8, 4, 2, 1: lane[l] = lane[l] + lane[l xor s]
//! sum = lane[0]
//! ```
//!
//! Columns are binary64: an `f32` converts exactly, so a sum of n terms is within about (n/128 + 7)·2⁻⁵³ of
//! the sum of magnitudes, far below the 2⁻²² that the contract allows at a million terms. The alternative,
//! compensated `f32` columns, was measured to be slower on the CPU and needs the same number of registers
//! (docs/decisions/0003-f64-columns.md).

/// Lanes of a team: 32 on every backend, whatever the hardware's own width.
pub const LANES: usize = 32;
/// Columns of a reduction: each lane owns four, so that four loads are in flight.
pub const COLUMNS: usize = 128;
/// Columns per lane.
pub const PER_LANE: usize = COLUMNS / LANES;

/// Folds the four columns of each lane.
#[inline(always)]
pub fn lane_sum(columns: [f64; PER_LANE]) -> f64 {
    (columns[0] + columns[1]) + (columns[2] + columns[3])
}

/// Folds 32 lane values by the butterfly. Addition commutes, so the halving tree below gives the bits of the
/// butterfly's lane 0, and every lane of a GPU holds the same bits.
#[inline(always)]
pub fn butterfly(lanes: [f64; LANES]) -> f64 {
    let lanes: [f64; 16] = halve(&lanes);
    let lanes: [f64; 8] = halve(&lanes);
    let lanes: [f64; 4] = halve(&lanes);
    let lanes: [f64; 2] = halve(&lanes);
    lanes[0] + lanes[1]
}

/// `x[l] + x[l + H]`; a new array each time, so that a CPU keeps it in registers.
#[inline(always)]
fn halve<const N: usize, const H: usize>(x: &[f64; N]) -> [f64; H] {
    let mut sums = [0.0; H];
    for (l, sum) in sums.iter_mut().enumerate() {
        *sum = x[l] + x[l + H];
    }
    sums
}

/// Folds 128 columns, stored column by column.
#[inline(always)]
pub fn fold_columns(columns: &[f64; COLUMNS]) -> f64 {
    let mut lanes = [0.0; LANES];
    for (l, lane) in lanes.iter_mut().enumerate() {
        *lane = lane_sum([columns[l], columns[l + LANES], columns[l + 2 * LANES], columns[l + 3 * LANES]]);
    }
    butterfly(lanes)
}
