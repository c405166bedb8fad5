//! The loops over the 128 lanes of a chunk that a [`Team::sweep`] is made of.
//!
//! They are functions because `&mut` parameters tell LLVM that no output overlaps an input: written inline,
//! the loops checked every chunk's addresses for overlap (40 instructions). Each starts its alarm at 0, so
//! that no chunk waits for the previous one.
//!
//! [`Team::sweep`]: lockstep_core::team::Team::sweep

use crate::level::Piece;
use crate::wide::Chunk;
use core::cell::Cell;
use lockstep_core::num::{self, Arith};
use lockstep_core::team::Element;
use lockstep_core::team::fold::{COLUMNS, fold_columns};

/// Which lanes of a chunk are live: all bits for a byte of the mask that is not 0, else none.
#[derive(Clone, Copy)]
pub(crate) struct Live<'a> {
    mask: &'a Chunk<u8>,
    bits: Option<&'a Chunk<u32>>,
}

impl<'a> Live<'a> {
    /// With `stored`, the bits are in memory before the loops that select by them. LLVM makes one branch of
    /// many choices by the byte itself, and then stores both sides of it under a mask, which takes some
    /// machines 18 cycles a store. For a loop of few choices it is one more array.
    #[inline(always)]
    pub(crate) fn new(stored: bool, mask: &'a Chunk<u8>, to: &'a mut Chunk<u32>) -> Self {
        if !stored {
            return Live { mask, bits: None };
        }
        for l in 0..COLUMNS {
            to[l] = u32::from(mask[l] != 0).wrapping_neg();
        }
        Live { mask, bits: Some(to) }
    }

    #[inline(always)]
    fn at(self, l: usize) -> u32 {
        match self.bits {
            Some(bits) => bits[l],
            None => u32::from(self.mask[l] != 0).wrapping_neg(),
        }
    }
}

/// Computes stage `number` of a chunk, given stage 0 if `number` is 1; returns the alarm.
#[inline(always)]
pub(crate) fn stage<
    A: Arith,
    const J: usize,
    const M: usize,
    const K: usize,
    const E: usize,
    F: Element<J, M, K, E>,
>(
    f: &F,
    number: usize,
    staged: Option<&Chunk<f32>>,
    x: [&Chunk<f32>; J],
    live: Live<'_>,
    to: &mut Chunk<f32>,
) -> u32 {
    let mut alarm = 0;
    for l in 0..COLUMNS {
        let (value, raised) =
            f.stage::<A>(number, [staged.map_or(0.0, |staged| staged[l]), 0.0], |j| x[j][l]);
        to[l] = value;
        alarm = alarm.max(raised & live.at(l));
    }
    alarm
}

/// Computes the elements of a chunk, given their stages; returns their alarm. The alarm is one variable
/// rather than an array because LLVM interleaves a loop with a reduction: several chains in flight instead of
/// one.
#[inline(always)]
pub(crate) fn elements<
    A: Arith,
    const J: usize,
    const M: usize,
    const K: usize,
    const E: usize,
    F: Element<J, M, K, E>,
>(
    f: &F,
    staged: [&Chunk<f32>; 2],
    x: [&Chunk<f32>; J],
    live: Live<'_>,
    out: &mut [Chunk<f32>; M],
    sum: &mut [Chunk<f32>; K],
    max: &mut [Chunk<f32>; E],
) -> u32 {
    let mut alarm = 0;
    for l in 0..COLUMNS {
        let lane = f.element::<A>([staged[0][l], staged[1][l]], |j| x[j][l]);
        let live = live.at(l);
        for j in 0..M {
            out[j][l] = f32::from_bits(lane.out[j].to_bits() & live);
        }
        for k in 0..K {
            sum[k][l] = f32::from_bits(lane.sum[k].to_bits() & live);
        }
        for e in 0..E {
            max[e][l] =
                f32::from_bits((lane.max[e].to_bits() & live) | (f32::NEG_INFINITY.to_bits() & !live));
        }
        alarm = alarm.max(lane.alarm & live);
    }
    alarm
}

/// Selects every other byte of a word.
const EVEN: u64 = 0x00ff_00ff_00ff_00ff;

/// Counts the bytes that are not 0: [`count`].
pub(crate) struct Count<'a>(pub(crate) &'a [u8]);

impl Piece for Count<'_> {
    type Out = u64;
    #[inline(always)]
    fn run(self) -> u64 {
        count(self.0)
    }
}

/// Counts the bytes that are not 0. Each column counts in 8 bits, over at most 255 chunks at a time.
#[inline(always)]
fn count(bytes: &[u8]) -> u64 {
    let (chunks, rest) = bytes.as_chunks::<COLUMNS>();
    let mut total = 0;
    for chunks in chunks.chunks(u8::MAX.into()) {
        let mut columns = [0u8; COLUMNS];
        for chunk in chunks {
            for l in 0..COLUMNS {
                columns[l] += u8::from(chunk[l] != 0);
            }
        }
        // Eight bytes at a time, even and odd bytes added into 16-bit lanes: 16 words add up to at most
        // 16·2·255.
        let mut lanes = 0;
        for word in columns.as_chunks::<8>().0 {
            let word = u64::from_le_bytes(*word);
            lanes += (word & EVEN) + ((word >> 8) & EVEN);
        }
        // Sums the four lanes into the highest: at most 4·8160.
        total += lanes.wrapping_mul(0x0001_0001_0001_0001) >> 48;
    }
    total + rest.iter().map(|byte| u64::from(*byte != 0)).sum::<u64>()
}

/// Number of chunks whose terms are added to the columns in one pass.
pub(crate) const TOGETHER: usize = 2;

/// Adds chunks to the columns, in order.
#[inline(always)]
pub(crate) fn add_all<const C: usize>(columns: &mut Chunk<f64>, terms: [&Chunk<f32>; C]) {
    for l in 0..COLUMNS {
        let mut column = columns[l];
        for c in 0..C {
            column += f64::from(terms[c][l]);
        }
        columns[l] = column;
    }
}

/// Adds C chunks to the columns of several sums: [`add_all`].
pub(crate) struct Add<'a, const C: usize> {
    pub(crate) columns: &'a mut [Chunk<f64>],
    pub(crate) terms: [&'a [Chunk<f32>]; C],
}

impl<const C: usize> Piece for Add<'_, C> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (k, columns) in self.columns.iter_mut().enumerate() {
            add_all(columns, self.terms.map(|terms| &terms[k]));
        }
    }
}

/// Folds the columns of several sums.
pub(crate) struct Fold<'a> {
    pub(crate) columns: &'a [Chunk<f64>],
    pub(crate) sums: &'a mut [f64],
}

impl Piece for Fold<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (columns, sum) in self.columns.iter().zip(self.sums) {
            *sum = num::canonical64(fold_columns(columns));
        }
    }
}

/// The first 128 elements of `sink` as the output array of a sweep with a single output. Being `&mut`, it
/// tells [`elements`] that no input overlaps it.
#[inline(always)]
#[allow(unsafe_code, clippy::mut_from_ref)]
pub(crate) fn only_output<const M: usize>(sink: &[Cell<f32>]) -> &mut [Chunk<f32>; M] {
    assert!(M == 1 && sink.len() >= COLUMNS, "{M} outputs, {} elements", sink.len());
    // SAFETY: in bounds, and one array of 128. No other view holds the row's elements while the sweep runs:
    // no other thread's (rows are disjoint), no input's (a view's constructor requires that nobody else reads
    // what it writes), and there is no second output.
    unsafe { &mut *sink.as_ptr().cast_mut().cast() }
}

/// Writes a whole chunk to the first 128 elements of `sink`, in its format. The length is known to LLVM,
/// which avoids a call to memcpy, around which every vector is spilled.
#[inline(always)]
pub(crate) fn store_whole<T: Copy, S>(sink: &[Cell<S>], values: &Chunk<T>, narrow: impl Fn(T) -> S) {
    let cells = &sink[..COLUMNS];
    for l in 0..COLUMNS {
        cells[l].set(narrow(values[l]));
    }
}

/// Writes the short last chunk of `sink`, if there is one. Called after the loop over chunks, whose stores
/// keep their fixed length.
#[inline(always)]
pub(crate) fn store_rest<T: Copy, S>(sink: &[Cell<S>], values: &Chunk<T>, narrow: impl Fn(T) -> S) {
    let rest = sink.len() % COLUMNS;
    sink[sink.len() - rest..].iter().zip(values).for_each(|(cell, value)| cell.set(narrow(*value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_beyond_what_eight_bits_hold() {
        for length in
            [0, 1, 127, 128, 129, 255 * COLUMNS, 255 * COLUMNS + 1, 256 * COLUMNS, 600 * COLUMNS + 77]
        {
            let all: Vec<u8> = (0..length).map(|i| (i % 255) as u8 + 1).collect();
            assert_eq!(count(&all), length as u64);
            let some: Vec<u8> = (0..length).map(|i| if i % 3 == 0 { 0 } else { 255 }).collect();
            assert_eq!(count(&some), (length - length.div_ceil(3)) as u64);
        }
    }
}
