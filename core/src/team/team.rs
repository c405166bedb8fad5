//! The team: 32 logical lanes that own one row.
//!
//! One file beyond 400 lines, because it is one trait with the traits and results of its methods.

use super::pairs::{PAIRED, two_largest};
use super::recur::Recurrence;
use super::rows;
use super::scan::{Direction, Semigroup};
use crate::num::{self, Arith, Storage};
use crate::op::Kernel;
use crate::ragged::{Cells, In, Mask, Out, Sink, Span, Stream};
use core::cell::Cell;

/// One lane's results for one element of a [`Team::sweep`]: M values to write, K terms to sum, E values to
/// take the maximum of, and an alarm.
#[derive(Clone, Copy, Debug)]
pub struct Lane<const M: usize, const K: usize, const E: usize> {
    /// Values to write, one per output. A NaN must come with an alarm: backends canonicalise only rows that
    /// have one.
    pub out: [f32; M],
    /// Terms to sum, converted exactly to binary64.
    pub sum: [f32; K],
    /// Values to take the maximum of.
    pub max: [f32; E],
    /// Above [`flag::LIMIT`](crate::ragged::flag::LIMIT) if the element is bad; reduced by maximum.
    pub alarm: u32,
}

/// The element program of a [`Team::sweep`].
///
/// A trait rather than a closure, so that its method can be `#[inline(always)]`; otherwise a backend's target
/// features do not reach the arithmetic (measured on AVX2: 34 ns a token instead of 2).
pub trait Element<const J: usize, const M: usize, const K: usize, const E: usize> {
    /// Computes what is written, summed and reduced from the inputs of an element, `input(0)` to
    /// `input(J - 1)`.
    ///
    /// Inputs should be read where they are needed: an early load occupies a register, and LLVM interleaves
    /// several elements only while registers are left.
    fn element<A: Arith>(&self, staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<M, K, E>;

    /// The sums whose terms are all 0 or 1, as bits: sum k is bit k. A GPU counts these in integers.
    const COUNTS: u32 = 0;

    /// Whether a GPU chooses between two chunks of a row by offsets of 32 bits instead of addresses: fewer
    /// registers, where the assembler runs out of them, and slower elsewhere.
    const SHORT_OFFSETS: bool = false;

    /// Number of [`stage`](Element::stage)s before the element: 0, 1 or 2.
    const STAGES: usize = 0;

    /// Computes stage `number`, 0 or 1: its value, which later stages and the element receive in
    /// `staged[number]`, and its alarm.
    ///
    /// On a CPU, stages split a long formula into several loops, each short enough to be interleaved
    /// (measured: SAPO from 2.05 to 1.3 ns a token); on a GPU the stages simply follow each other.
    #[inline(always)]
    fn stage<A: Arith>(&self, number: usize, staged: [f32; 2], input: impl Fn(usize) -> f32) -> (f32, u32) {
        let _ = (number, staged, input);
        (0.0, 0)
    }
}

/// Terms of one element for a [`Team::sum_live`] or [`Team::sum_of`], in binary64. A trait for the reason
/// given at [`Element`].
pub trait Terms<const J: usize, const K: usize>: Copy {
    /// Computes the terms from the inputs of an element.
    fn terms(self, input: impl Fn(usize) -> f32) -> [f64; K];
}

/// A 32-bit number for each element, for a [`Team::number`]. A trait for the reason given at [`Element`].
pub trait Number<const J: usize>: Copy {
    /// Computes the number from the inputs of live element `i` of the array.
    fn number<A: Arith>(self, i: usize, input: impl Fn(usize) -> f32) -> u32;
}

/// The results of a sweep over a row.
#[derive(Clone, Copy, Debug)]
pub struct Swept<const K: usize, const E: usize> {
    /// Sums in the fixed order of [`fold`](super::fold); +0 for a row without live elements.
    pub sums: [f64; K],
    /// Maxima; −∞ for a row without live elements, the canonical NaN if any value was NaN.
    pub maxima: [f32; E],
    /// The largest alarm; 0 for a row without live elements.
    pub alarm: u32,
}

/// Elements that [`Team::first`] checks before it tests whether one was found: enough that the test costs
/// little.
const SEARCHED: usize = 512;

/// The range in which keys of elements without bias follow their values: for v in `from..=to`, an element
/// whose value is more than `below` under v has a smaller key than every element whose value is v or more.
#[derive(Clone, Copy, Debug)]
pub struct Near {
    /// Lowest v.
    pub from: f32,
    /// Largest v.
    pub to: f32,
    /// Distance, above 0; v − `below` is rounded to nearest.
    pub below: f32,
}

/// The key by which a [`Team::largest`] orders the elements of a short row. A trait for the reason given at
/// [`Element`].
pub trait Key {
    /// The range in which keys follow values, if any; a backend may then compare values and compute the keys
    /// of only a few elements.
    const NEAR: Option<Near> = None;

    /// Whether the key is the value itself.
    const VALUE: bool = false;

    /// Computes the key of element `element` of the row from its value and its bias.
    fn key<A: Arith>(&self, value: f32, bias: f32, element: usize) -> f32;
}

/// The results of a [`Team::largest`].
#[derive(Clone, Copy, Debug)]
pub struct Picked<S> {
    /// The keys of the first [`LANES`](super::fold::LANES) picks; −0 becomes +0.
    pub keys: S,
    /// Sum of the picked keys, added in binary32 in pick order.
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
/// Picks per row of a [`Team::largest_of_rows`].
pub const PICKS: usize = 8;

/// The results of a [`Team::largest_of_rows`].
#[derive(Clone, Copy, Debug)]
pub struct PickedRows {
    /// The key of pick j of row r, at j·16 + r; −0 becomes +0.
    pub keys: [f32; ROWS * PICKS],
    /// The alarm of each row; see [`Picked::alarm`].
    pub alarms: [u32; ROWS],
}

/// Largest number of elements of a row of [`Team::largest`].
pub const MAX_LARGEST: usize = 512;

/// A team of [`LANES`](super::fold::LANES) lanes.
///
/// A row program is a sequence of these calls with scalar arithmetic between them, which every lane of a GPU
/// computes redundantly. Values per lane exist only inside closures, so the same program is a loop over
/// vectors on a CPU and a strided loop of threads on a GPU.
///
/// Order: sums follow [`fold`](super::fold), scans [`scan`](super::scan) and recurrences
/// [`recur`](super::recur); maxima, minima, counts and alarms are exact and independent of order.
pub trait Team {
    /// This backend's fused multiply-add and square root.
    type Arith: Arith;

    /// One number for each of at most [`LANES`](super::fold::LANES) elements: on a GPU, one in each lane.
    type Slots: Copy;

    /// Whether a kernel may run variants that exist for speed alone. Without them a row runs the variant that
    /// serves every call of its kind: less code, and a reference that the fast variants are compared with.
    const FAST_VARIANTS: bool = true;

    /// Runs row `row` with variant V: on a CPU, in a function of its own. The compiler's time grows with the
    /// square of a function's length, so a kernel with many long variants calls each of them this way.
    #[inline(always)]
    fn row_as<const V: usize, K: Kernel>(&self, kernel: &K, row: usize)
    where
        Self: Sized,
    {
        kernel.row_as::<V, Self>(self, row);
    }

    /// Reads `ins` at every live element of `span`, applies `f`, writes its `out` to `outs` (masked elements
    /// get 0), and reduces the rest. A row has fewer than 2³² elements. The arrays are stored as `S`.
    fn sweep<
        S: Storage,
        const J: usize,
        const M: usize,
        const K: usize,
        const E: usize,
        F: Element<J, M, K, E>,
    >(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_, S>; J],
        outs: [Sink<'_, S>; M],
        f: &F,
    ) -> Swept<K, E>;

    /// A [`sweep`](Team::sweep) that several variants of a row have in common: on a CPU, in a function of its
    /// own.
    #[inline(always)]
    fn sweep_apart<
        S: Storage,
        const J: usize,
        const M: usize,
        const K: usize,
        const E: usize,
        F: Element<J, M, K, E>,
    >(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_, S>; J],
        outs: [Sink<'_, S>; M],
        f: &F,
    ) -> Swept<K, E> {
        self.sweep(span, mask, ins, outs, f)
    }

    /// Computes K sums of `f(i)` over the elements of `span`; for short rows and index arithmetic.
    fn sum<const K: usize>(&self, span: Span, f: impl Fn(usize) -> [f64; K]) -> [f64; K];

    /// Computes K sums over the elements of `span`, at most [`LANES`](super::fold::LANES), as
    /// [`sum`](Team::sum) does.
    #[inline(always)]
    fn sum_of<const J: usize, const K: usize, F: Terms<J, K>>(
        &self,
        span: Span,
        ins: [In<'_, f32>; J],
        f: F,
    ) -> [f64; K] {
        self.sum(span, move |i| f.terms(|j| ins[j].at(i)))
    }

    /// Returns `value(j)` for j in 0..count, at most [`LANES`](super::fold::LANES), each on the thread to
    /// which [`for_each`](Team::for_each) assigns element j.
    fn slots(&self, count: usize, value: impl Fn(usize) -> f32) -> Self::Slots;

    /// Returns n_j · factor for the numerators n_j = `key` of slot j, j in 0..count. The factor is computed
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

    /// Writes `value` to every live element of `span` and 0 to the others, each on the thread to which
    /// [`for_each`](Team::for_each) assigns it. A plain loop rather than a sweep, whose reductions would be
    /// unused and whose shuffles ended up behind a branch on the lane on a GPU (`cargo xtask artifacts`
    /// rejected it).
    #[inline(always)]
    fn fill(&self, span: Span, mask: Mask<'_>, out: Cells<'_, f32>, value: f32) {
        self.for_each(span, move |i| out.put(i, if mask.at(i) { value } else { 0.0 }));
    }

    /// Computes K sums of the terms of the live elements of `span`, in the order of [`sum`](Team::sum).
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

    /// Writes a number for every live element of `span`, and 0 for the others.
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

    /// Computes the maximum of `f(i)`; −∞ for an empty span, the canonical NaN if any value is NaN.
    fn max(&self, span: Span, f: impl Fn(usize) -> f32) -> f32;

    /// Computes the largest of `values` in `span` (the canonical NaN if any is NaN, −∞ for an empty span),
    /// and the offset of its first occurrence in the span (0 if there is none).
    #[inline(always)]
    fn top<S: Storage>(&self, span: Span, values: In<'_, S>) -> (f32, u32) {
        crate::logits::top(self, span, values)
    }

    /// Computes the minimum of `f(i)`; +∞ for an empty span, the canonical NaN if any value is NaN.
    #[inline(always)]
    fn min(&self, span: Span, f: impl Fn(usize) -> f32) -> f32 {
        let negated = self.max(span, |i| -f(i));
        num::canonical(-negated)
    }

    /// Returns the lowest i of `span` for which `f(i)` holds, or its end. The result is exact, so a backend
    /// may stop anywhere after it.
    #[inline(always)]
    fn first(&self, span: Span, f: impl Fn(usize) -> bool) -> usize {
        let mut start = span.start;
        while start < span.end {
            let end = if span.end - start > SEARCHED { start + SEARCHED } else { span.end };
            // Distances are far below 2²⁴.
            let least =
                self.min(Span::new(start, end), |i| if f(i) { (i - start) as f32 } else { f32::INFINITY });
            if least < f32::INFINITY {
                // Via 32 bits, because the conversion to 64 is not a single instruction.
                return start + least as u32 as usize;
            }
            start = end;
        }
        span.end
    }

    /// Returns how many of the `length` tokens from `a` on equal those from `b` on, up to the first
    /// difference.
    #[inline(always)]
    fn common_prefix(&self, tokens: In<'_, u32>, a: usize, b: usize, length: usize) -> usize {
        self.first(Span::new(0, length), |t| tokens.at(a + t) != tokens.at(b + t))
    }

    /// Counts the live elements.
    fn count(&self, span: Span, mask: Mask<'_>) -> u64;

    /// Calls `f(i)` for every element, in no particular order.
    fn for_each(&self, span: Span, f: impl Fn(usize));

    /// Computes an inclusive scan of `get(i)` over `span`; `put(i, y)` receives each result. A masked element
    /// is the identity, but `get` may be called for it.
    fn scan<S: Semigroup>(
        &self,
        op: S,
        span: Span,
        mask: Mask<'_>,
        direction: Direction,
        get: impl Fn(usize) -> S::Value,
        put: impl Fn(usize, S::Value),
    );

    /// Runs a linear recurrence from the last live element of `span` to its first. Reads `ins`, writes `outs`
    /// at every element, including masked ones, and returns the largest alarm of the live elements and of all
    /// that was written. `behind` is the value after the last live element. Order: [`recur`](super::recur).
    fn recur<const J: usize, const K: usize, const M: usize, F: Recurrence<J, K, M>>(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
        outs: [Sink<'_>; M],
        behind: f32,
        f: F,
    ) -> u32;

    /// Finds the `count` elements of `span` with the largest keys, largest first, equal keys by the lower
    /// index. `put(j, e)` receives the j-th, counted from the start of the span, on the thread to which
    /// [`for_each`](Team::for_each) assigns element j.
    ///
    /// `span` has at least `count` and at most [`MAX_LARGEST`] elements; `bias` has one value for each, or is
    /// 0 if absent. −0 equals +0; NaN is above everything and raises the alarm.
    fn largest<F: Key>(
        &self,
        span: Span,
        values: In<'_, f32>,
        bias: Option<In<'_, f32>>,
        count: usize,
        key: &F,
        put: impl Fn(usize, usize),
    ) -> Picked<Self::Slots>;

    /// Runs [`largest`](Team::largest) for sixteen consecutive rows of `E` values from `start` on, with 8
    /// picks each: pick j of row r is `chosen[8·r + j]`. For a [`block`](crate::op::Kernel::block), on one
    /// thread. If `alarms` is given these are the rows' alarms, and the values may be −∞.
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

    /// [`largest_of_rows`](Team::largest_of_rows) for row `r` of the sixteen.
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

    /// Transposes `from[8·r + j]` to slots j·16 + r.
    #[inline(always)]
    fn take_rows(&self, from: &[f32; ROWS * PICKS]) -> [f32; ROWS * PICKS] {
        rows::take_rows(from)
    }

    /// Computes the sum of the two largest of each group of [`PAIRED`] keys, for sixteen rows of eight
    /// groups; the sum of group g of row r is at 8·r + g. Rows without an alarm have finite keys.
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

    /// Calls `put(j, i)` for j in 0..count, where i = `span.start` + `at(j)`, on the thread to which
    /// [`for_each`](Team::for_each) and [`sweep`](Team::sweep) over `span` assign element i, so that it
    /// overwrites what they wrote there before.
    fn place(&self, span: Span, count: usize, at: impl Fn(usize) -> usize, put: impl Fn(usize, usize));

    /// Makes the earlier writes of all threads of the team visible to all of them. Without it a thread reads
    /// only its own writes.
    fn settle(&self);

    /// A hint that `span` of an array of `length` elements, starting at `first`, will be read or written
    /// soon. Parts of `span` beyond the array are ignored.
    #[inline(always)]
    fn soon(&self, first: *const f32, length: usize, span: Span) {
        let _ = (first, length, span);
    }

    /// Writes `values` to `to`, which has the same length and is not read again soon; bypasses the caches
    /// where that is faster.
    #[inline(always)]
    fn leave(&self, to: &[Cell<f32>], values: &[f32]) {
        for (cell, value) in to.iter().zip(values) {
            cell.set(*value);
        }
    }

    /// Whether this is the thread that writes a row's single outputs. A condition rather than a closure,
    /// because the reference that a closure captures keeps the whole kernel in memory on AMD (`assume` of a
    /// non-null private pointer, 344 bytes of scratch).
    fn leads(&self) -> bool;
}
