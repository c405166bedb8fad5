//! The team: 32 logical lanes that own one row.

use super::pairs::{PAIRED, two_largest};
use super::recur::Recurrence;
use super::rows;
use super::scan::{Direction, Semigroup};
use crate::num::{self, Arith};
use crate::ragged::{Cells, In, Mask, Out, Sink, Span, Stream};
use core::cell::Cell;

/// What one lane says of one element in a [`Team::sweep`]: M values to write, K terms to sum, E values whose
/// maximum is wanted, and an alarm.
#[derive(Clone, Copy, Debug)]
pub struct Lane<const M: usize, const K: usize, const E: usize> {
    /// Values to write, one per output. A NaN must come with an alarm: backends canonicalise only rows that
    /// have one.
    pub out: [f32; M],
    /// Terms to sum, converted exactly to binary64.
    pub sum: [f32; K],
    /// Values to take the maximum of.
    pub max: [f32; E],
    /// Above [`flag::LIMIT`](crate::ragged::flag::LIMIT) if something is wrong with the element; collected by
    /// maximum.
    pub alarm: u32,
}

/// What a [`Team::sweep`] does with one element.
///
/// A trait and not a closure: its method can be `#[inline(always)]`, without which a backend's target
/// features do not reach the arithmetic (measured on AVX2: 34 ns a token instead of 2).
pub trait Element<const J: usize, const M: usize, const K: usize, const E: usize> {
    /// From the inputs of an element, `input(0)` to `input(J - 1)`, to what is written, summed and collected.
    ///
    /// Inputs are asked for where they are needed: what is loaded early holds a register, and LLVM
    /// interleaves several elements only where registers are left.
    fn element<A: Arith>(&self, staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<M, K, E>;

    /// How many [`stage`](Element::stage)s come first: 0, 1 or 2.
    const STAGES: usize = 0;

    /// Stage `number`, 0 or 1: its value, which later stages and the element receive in `staged[number]`, and
    /// its alarm.
    ///
    /// A long formula in stages is several loops for a CPU, each short enough to be interleaved (measured:
    /// SAPO 2.05 to 1.3 ns a token); on a GPU the stages just follow each other.
    #[inline(always)]
    fn stage<A: Arith>(&self, number: usize, staged: [f32; 2], input: impl Fn(usize) -> f32) -> (f32, u32) {
        let _ = (number, staged, input);
        (0.0, 0)
    }
}

/// Terms of one element for a [`Team::sum_live`] or [`Team::sum_of`], in binary64. A trait for the reason
/// that [`Element`] is one.
pub trait Terms<const J: usize, const K: usize>: Copy {
    /// From the inputs of an element to what is summed.
    fn terms(self, input: impl Fn(usize) -> f32) -> [f64; K];
}

/// A number of 32 bits for each element, for a [`Team::number`]. A trait for the reason that [`Element`] is
/// one.
pub trait Number<const J: usize>: Copy {
    /// From the inputs of live element `i` of the array to what is written.
    fn number<A: Arith>(self, i: usize, input: impl Fn(usize) -> f32) -> u32;
}

/// What a sweep found over a row.
#[derive(Clone, Copy, Debug)]
pub struct Swept<const K: usize, const E: usize> {
    /// Sums in the fixed shape of [`fold`](super::fold); +0 for a row without live elements.
    pub sums: [f64; K],
    /// Maxima; −∞ for a row without live elements, the canonical NaN if any value was NaN.
    pub maxima: [f32; E],
    /// The largest alarm; 0 for a row without live elements.
    pub alarm: u32,
}

/// Elements that [`Team::first`] looks at before it asks whether it found one: enough that the question costs
/// little.
const SEARCHED: usize = 512;

/// Where keys of elements without bias follow their values: for v in `from..=to`, an element whose value is
/// below v by more than `below` has a key below that of every element whose value is v or more.
#[derive(Clone, Copy, Debug)]
pub struct Near {
    /// Lowest v.
    pub from: f32,
    /// Largest v.
    pub to: f32,
    /// More than 0; v − `below` is rounded to nearest.
    pub below: f32,
}

/// By what a [`Team::largest`] orders the elements of a short row. A trait for the reason that [`Element`] is
/// one.
pub trait Key {
    /// If keys follow values, a backend may look at values and make keys of a few elements only.
    const NEAR: Option<Near> = None;

    /// Whether the key is the value itself.
    const VALUE: bool = false;

    /// The key of element `element` of the row, from its value and its bias.
    fn key<A: Arith>(&self, value: f32, bias: f32, element: usize) -> f32;
}

/// What a [`Team::largest`] found.
#[derive(Clone, Copy, Debug)]
pub struct Picked<S> {
    /// The picked keys, those of the first [`LANES`](super::fold::LANES) picks; −0 is +0.
    pub keys: S,
    /// Sum of the picked keys, added in binary32 in the order of the picks.
    pub sum: f32,
    /// The largest key.
    pub first: f32,
    /// Bit e is set if element e < 32 was picked.
    pub bits: u32,
    /// The largest alarm of the values and biases of the whole row, picked or not: above the limit if one is
    /// not finite.
    pub alarm: u32,
}

/// Rows of a [`Team::largest_of_rows`].
pub const ROWS: usize = 16;
/// Picks of each.
pub const PICKS: usize = 8;

/// What a [`Team::largest_of_rows`] found.
#[derive(Clone, Copy, Debug)]
pub struct PickedRows {
    /// The key of pick j of row r at j·16 + r; −0 is +0.
    pub keys: [f32; ROWS * PICKS],
    /// The alarm of each row: see [`Picked::alarm`].
    pub alarms: [u32; ROWS],
}

/// Elements that a row of [`Team::largest`] may have.
pub const MAX_LARGEST: usize = 512;

/// A team of [`LANES`](super::fold::LANES) lanes.
///
/// A row program is a sequence of these calls with scalar arithmetic between them, which every lane of a GPU
/// computes alike. There are no lane values outside of a closure, so the same program is a loop over vectors
/// on a CPU and a strided loop of threads on a GPU.
///
/// Order: sums have the shape of [`fold`](super::fold), scans that of [`scan`](super::scan), recurrences that
/// of [`recur`](super::recur); maxima, minima, counts and alarms are exact and have no order.
pub trait Team {
    /// How this backend does its fused multiply-add and square root.
    type Arith: Arith;

    /// A number for each of at most [`LANES`](super::fold::LANES) elements: on a GPU one in each lane.
    type Slots: Copy;

    /// Reads `ins` at every live element of `span`, applies `f`, writes its `out` to `outs` (masked elements
    /// get 0), and reduces the rest.
    fn sweep<const J: usize, const M: usize, const K: usize, const E: usize, F: Element<J, M, K, E>>(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
        outs: [Sink<'_>; M],
        f: &F,
    ) -> Swept<K, E>;

    /// K sums of `f(i)` over the elements of `span`; for short rows and index arithmetic.
    fn sum<const K: usize>(&self, span: Span, f: impl Fn(usize) -> [f64; K]) -> [f64; K];

    /// K sums over the at most [`LANES`](super::fold::LANES) elements of `span`, as [`sum`](Team::sum).
    #[inline(always)]
    fn sum_of<const J: usize, const K: usize, F: Terms<J, K>>(
        &self,
        span: Span,
        ins: [In<'_, f32>; J],
        f: F,
    ) -> [f64; K] {
        self.sum(span, move |i| f.terms(|j| ins[j].at(i)))
    }

    /// `value(j)` for j in 0..count, at most [`LANES`](super::fold::LANES), each on the thread that
    /// [`for_each`](Team::for_each) gives element j to.
    fn slots(&self, count: usize, value: impl Fn(usize) -> f32) -> Self::Slots;

    /// Numerators n_j = `key` of slot j for j in 0..count, times one factor: n_j · factor. The factor is made
    /// from Σ n_j, or from 0 without `SUM`.
    fn shares<const SUM: bool, F: Key + Copy>(
        &self,
        count: usize,
        slots: Self::Slots,
        key: F,
        factor: impl Fn(f64) -> f64,
    ) -> Self::Slots;

    /// Writes the slots to the elements of `span`.
    fn put_slots(&self, span: Span, out: Cells<'_, f32>, slots: Self::Slots);

    /// Writes `value` to every live element of `span` and 0 to the others, each on the thread that
    /// [`for_each`](Team::for_each) gives it to. A plain loop: of a sweep nobody needs the reductions, and on
    /// a GPU their shuffles ended up behind a branch on the lane (`cargo xtask artifacts` refused it).
    #[inline(always)]
    fn fill(&self, span: Span, mask: Mask<'_>, out: Cells<'_, f32>, value: f32) {
        self.for_each(span, move |i| out.put(i, if mask.at(i) { value } else { 0.0 }));
    }

    /// K sums of the terms of the live elements of `span`, in the shape of [`sum`](Team::sum).
    #[inline(always)]
    fn sum_live<const J: usize, const K: usize, F: Terms<J, K>>(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
        f: F,
    ) -> [f64; K] {
        self.sum(span, move |i| if mask.at(i) { f.terms(|j| ins[j].at(i)) } else { [0.0; K] })
    }

    /// Writes a number for every live element of `span`, 0 for the others.
    #[inline(always)]
    fn number<const J: usize, F: Number<J>>(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
        out: Cells<'_, u32>,
        f: F,
    ) {
        self.for_each(span, move |i| {
            let number = f.number::<Self::Arith>(i, |j| ins[j].at(i));
            out.put(i, if mask.at(i) { number } else { 0 });
        });
    }

    /// Maximum of `f(i)`; −∞ for an empty span, the canonical NaN if any value is NaN.
    fn max(&self, span: Span, f: impl Fn(usize) -> f32) -> f32;

    /// Minimum of `f(i)`; +∞ for an empty span, the canonical NaN if any value is NaN.
    #[inline(always)]
    fn min(&self, span: Span, f: impl Fn(usize) -> f32) -> f32 {
        let negated = self.max(span, |i| -f(i));
        num::canonical(-negated)
    }

    /// The lowest i of `span` for which `f(i)` holds, or its end. Exact, so that a backend may stop where it
    /// likes.
    #[inline(always)]
    fn first(&self, span: Span, f: impl Fn(usize) -> bool) -> usize {
        let mut start = span.start;
        while start < span.end {
            let end = if span.end - start > SEARCHED { start + SEARCHED } else { span.end };
            // Distances are far below 2²⁴.
            let least =
                self.min(Span::new(start, end), |i| if f(i) { (i - start) as f32 } else { f32::INFINITY });
            if least < f32::INFINITY {
                // By way of 32 bits: the conversion to 64 is no single instruction.
                return start + least as u32 as usize;
            }
            start = end;
        }
        span.end
    }

    /// How many of the `length` tokens from `a` on equal those from `b` on, up to the first that does not.
    #[inline(always)]
    fn common_prefix(&self, tokens: In<'_, u32>, a: usize, b: usize, length: usize) -> usize {
        self.first(Span::new(0, length), |t| tokens.at(a + t) != tokens.at(b + t))
    }

    /// Number of live elements.
    fn count(&self, span: Span, mask: Mask<'_>) -> u64;

    /// Calls `f(i)` for every element, in no order.
    fn for_each(&self, span: Span, f: impl Fn(usize));

    /// Inclusive scan of `get(i)` over `span`; `put(i, y)` receives each result.
    fn scan<S: Semigroup>(
        &self,
        op: S,
        span: Span,
        direction: Direction,
        get: impl Fn(usize) -> S::Value,
        put: impl Fn(usize, S::Value),
    );

    /// A linear recurrence from the last live element of `span` to its first: reads `ins`, writes `outs` at
    /// every element, masked ones too, and returns the largest alarm of the live elements and of all that was
    /// written. `behind` is the value behind the last live element. Shape: [`recur`](super::recur).
    fn recur<const J: usize, const K: usize, const M: usize, F: Recurrence<J, K, M>>(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
        outs: [Sink<'_>; M],
        behind: f32,
        f: F,
    ) -> u32;

    /// The `count` elements of `span` with the largest keys, largest first, equal keys by the lower index;
    /// `put(j, e)` receives the j-th, counted from the start of the span, on the thread that
    /// [`for_each`](Team::for_each) gives element j to.
    ///
    /// `span` has at least `count` and at most [`MAX_LARGEST`] elements; `bias` has one value for each or
    /// is 0. −0 equals +0; a NaN is above everything, and raises the alarm.
    fn largest<F: Key>(
        &self,
        span: Span,
        values: In<'_, f32>,
        bias: Option<In<'_, f32>>,
        count: usize,
        key: &F,
        put: impl Fn(usize, usize),
    ) -> Picked<Self::Slots>;

    /// [`largest`](Team::largest) of sixteen rows of `E` values, one behind the other from `start` on, 8
    /// picks of each: pick j of row r is `chosen[8·r + j]`. For a [`block`](crate::op::Kernel::block): one
    /// thread's. With `alarms` these are the rows' alarms, and their values may be −∞.
    #[inline(always)]
    fn largest_of_rows<const E: usize, F: Key>(
        &self,
        values: In<'_, f32>,
        start: usize,
        bias: Option<In<'_, f32>>,
        key: &F,
        alarms: Option<&[u32; ROWS]>,
        chosen: &[Cell<u8>],
    ) -> PickedRows {
        let mut picked = PickedRows { keys: [0.0; ROWS * PICKS], alarms: [0; ROWS] };
        for r in 0..ROWS {
            self.largest_of_row::<E, F>(values, start, bias, key, chosen, r, &mut picked);
        }
        if let Some(alarms) = alarms {
            picked.alarms = *alarms;
        }
        picked
    }

    /// The same of row `r` of the sixteen.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn largest_of_row<const E: usize, F: Key>(
        &self,
        values: In<'_, f32>,
        start: usize,
        bias: Option<In<'_, f32>>,
        key: &F,
        chosen: &[Cell<u8>],
        r: usize,
        picked: &mut PickedRows,
    ) {
        let start = start + r * E;
        let chosen = &chosen[r * PICKS..(r + 1) * PICKS];
        let put = move |j: usize, e: usize| chosen[j].set(e as u8);
        let found = self.largest(Span::new(start, start + E), values, bias, PICKS, key, put);
        let mut keys = [0.0; PICKS];
        self.put_slots(Span::new(0, PICKS), *Out::new(&mut keys), found.keys);
        for j in 0..PICKS {
            picked.keys[j * ROWS + r] = keys[j];
        }
        picked.alarms[r] = found.alarm;
    }

    /// Slots 8·r + j as j·16 + r.
    #[inline(always)]
    fn take_rows(&self, from: &[f32; ROWS * PICKS]) -> [f32; ROWS * PICKS] {
        rows::take_rows(from)
    }

    /// The sum of the two largest of each group of [`PAIRED`] keys of sixteen rows that have eight groups,
    /// that of group g of row r at 8·r + g. Rows without an alarm have finite keys.
    #[inline(always)]
    fn pairs_of_rows(&self, keys: &[f32], alarms: &[u32; ROWS]) -> [f32; ROWS * PICKS] {
        let _ = alarms;
        let (groups, mut sums) = (keys.as_chunks::<PAIRED>().0, [0.0; ROWS * PICKS]);
        for i in 0..ROWS * PICKS {
            sums[i] = two_largest(&groups[i]);
        }
        sums
    }

    /// Writes slots j·16 + r to `to[8·r + j]`.
    #[inline(always)]
    fn put_rows(&self, slots: &[f32; ROWS * PICKS], to: &[Cell<f32>]) {
        rows::put_rows(slots, to);
    }

    /// Calls `put(j, i)` for j in 0..count, where i = `span.start` + `at(j)`, on the thread that
    /// [`for_each`](Team::for_each) and [`sweep`](Team::sweep) over `span` give element i to: what one of
    /// them wrote there before is overwritten.
    fn place(&self, span: Span, count: usize, at: impl Fn(usize) -> usize, put: impl Fn(usize, usize));

    /// What any thread of the team wrote before, all read after. Without it a thread reads what it wrote
    /// itself, and no more.
    fn settle(&self);

    /// A hint: `span` of an array of `length` elements, the first of them at `first`, will be read or written
    /// soon. Where it reaches beyond the array, nothing happens.
    #[inline(always)]
    fn soon(&self, first: *const f32, length: usize, span: Span) {
        let _ = (first, length, span);
    }

    /// Writes `values` to `to`, which is as long and is not read again soon: past the caches, where that is
    /// faster.
    #[inline(always)]
    fn leave(&self, to: &[Cell<f32>], values: &[f32]) {
        for (cell, value) in to.iter().zip(values) {
            cell.set(*value);
        }
    }

    /// Whether this is the thread that writes what a row has one of. A condition and not a closure: the
    /// reference that a closure captures keeps the whole kernel in memory on AMD (`assume` of a non-null
    /// private pointer, 344 bytes of scratch).
    fn leads(&self) -> bool;
}
