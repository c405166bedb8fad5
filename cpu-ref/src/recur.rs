//! The recurrence of [`lockstep_core::team::recur`] as vectors.
//!
//! It takes four blocks at a time, then one: a load offset by one from an earlier store waits until the store
//! is done, and the other blocks fill that time (measured: 2.7 ns a token with one block, AVX-512). Arrays
//! are in memory order: place p of a block is lane 31 − p. The places are followed by what the longest step
//! reads: identity maps, and the value carried in.

use core::cell::Cell;
use lockstep_core::num::{self, Arith};
use lockstep_core::ragged::{In, Mask, Sink, Span, Stream, flag};
use lockstep_core::team::fold::LANES;
use lockstep_core::team::recur::STILL;
use lockstep_core::team::{Recurrence, Step};

/// Blocks processed at a time.
const BLOCKS: usize = 4;
/// Places in those blocks.
const PLACES: usize = BLOCKS * LANES;

/// Numbers on cache-line boundaries.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Lanes<T, const N: usize>([T; N]);

/// The maps of one block.
#[derive(Clone, Copy)]
struct Maps {
    rate: Lanes<f64, { LANES + LANES / 2 }>,
    offset: Lanes<f64, { LANES + LANES / 2 }>,
}

impl Maps {
    const STILL: Maps = Maps { rate: Lanes([STILL.rate; _]), offset: Lanes([STILL.offset; _]) };

    /// Composes each place's map with the one `S` later in memory.
    #[inline(always)]
    fn step<const S: usize>(&self, to: &mut Maps) {
        let (Lanes(rate), Lanes(offset)) = (&self.rate, &self.offset);
        let (later_rate, later_offset): ([f64; LANES], [f64; LANES]) = (later(rate, S), later(offset, S));
        for p in 0..LANES {
            to.offset.0[p] = offset[p] + rate[p] * later_offset[p];
            to.rate.0[p] = rate[p] * later_rate[p];
        }
    }
}

/// Copies N places starting at `first`. Read in place, LLVM carries a place over between iterations and
/// leaves the loop scalar.
#[inline(always)]
fn later<T: Copy + Default, const N: usize>(x: &[T], first: usize) -> [T; N] {
    let mut later = [T::default(); N];
    later.copy_from_slice(&x[first..first + N]);
    later
}

/// Values of a chunk, as bits, because selection by masks vectorises.
struct Seen {
    value: Lanes<u32, { 2 * PLACES }>,
    /// All ones where the place has a live value.
    found: Lanes<u32, { 2 * PLACES }>,
}

impl Seen {
    #[inline(always)]
    fn at(&self, p: usize) -> f32 {
        f32::from_bits(self.value.0[p])
    }

    /// Gives each place without a live value the value of the next place that has one.
    #[inline(always)]
    fn fill<const N: usize>(&mut self) {
        let mut step = 1;
        while step <= N {
            let (value, found): ([u32; N], [u32; N]) =
                (later(&self.value.0, step), later(&self.found.0, step));
            let mut all = u32::MAX;
            for p in 0..N {
                let own = self.found.0[p];
                self.value.0[p] = (self.value.0[p] & own) | (value[p] & !own);
                self.found.0[p] = own | found[p];
                all &= own | found[p];
            }
            if all == u32::MAX {
                return;
            }
            step *= 2;
        }
    }
}

/// A row in progress, from its end to its start.
struct Row<'a, const J: usize, const K: usize, const M: usize, F> {
    rows: [Option<&'a [f32]>; J],
    mask: Option<&'a [u8]>,
    sinks: [Option<&'a [Cell<f32>]>; M],
    f: F,
    input: [Lanes<f32, PLACES>; J],
    on: Lanes<u8, PLACES>,
    own: [Lanes<f32, PLACES>; K],
    seen: Seen,
    maps: [[Maps; BLOCKS]; 2],
    /// One more place: the running value after the chunk.
    y: Lanes<f64, { PLACES + 1 }>,
    out: [Lanes<f32, PLACES>; M],
    alarm: u32,
}

/// See [`Team::recur`](lockstep_core::team::Team::recur).
#[inline(always)]
pub(crate) fn recur<A: Arith, const J: usize, const K: usize, const M: usize, F: Recurrence<J, K, M>>(
    span: Span,
    mask: Mask<'_>,
    ins: [Stream<'_>; J],
    outs: [Sink<'_>; M],
    behind: f32,
    f: F,
) -> u32 {
    let bytes: Option<In<'_, u8>> = mask.bytes();
    let mut row = Row {
        rows: [None; J],
        mask: None,
        sinks: [None; M],
        f,
        input: [Lanes([0.0; _]); J],
        on: Lanes([1; _]),
        own: [Lanes([0.0; _]); K],
        seen: Seen { value: Lanes([behind.to_bits(); _]), found: Lanes([u32::MAX; _]) },
        maps: [[Maps::STILL; BLOCKS]; 2],
        y: Lanes([0.0; _]),
        out: [Lanes([0.0; _]); M],
        alarm: 0,
    };
    if let Some(bytes) = bytes {
        row.mask = Some(bytes.row(span));
    }
    for j in 0..J {
        match ins[j] {
            Stream::Array(array) => row.rows[j] = Some(array.row(span)),
            Stream::Constant(value) => row.input[j] = Lanes([value; _]),
        }
    }
    for m in 0..M {
        if let Some(out) = outs[m] {
            row.sinks[m] = Some(out.row(span));
        }
    }
    let mut end = span.len();
    while end >= PLACES {
        row.chunk::<A, BLOCKS, PLACES>(end);
        end -= PLACES;
    }
    while end > 0 {
        row.chunk::<A, 1, LANES>(end);
        end -= if end < LANES { end } else { LANES };
    }
    row.alarm
}

impl<const J: usize, const K: usize, const M: usize, F: Recurrence<J, K, M>> Row<'_, J, K, M, F> {
    /// Processes the `B` blocks (`N` places) that end at `end`.
    #[inline(always)]
    fn chunk<A: Arith, const B: usize, const N: usize>(&mut self, end: usize) {
        let inside = if end < N { end } else { N };
        let (start, first) = (end - inside, N - inside);
        for j in 0..J {
            if let Some(row) = self.rows[j] {
                load::<f32, N>(&mut self.input[j].0, &row[start..end]);
            }
        }
        let mut whole = inside == N;
        if let Some(mask) = self.mask {
            load::<u8, N>(&mut self.on.0, &mask[start..end]);
            let mut least = u8::MAX;
            for p in 0..N {
                least = if self.on.0[p] < least { self.on.0[p] } else { least };
            }
            whole &= least > 0;
        }
        for p in 0..first {
            self.on.0[p] = 0;
        }

        let f = self.f;
        // A local rather than a field: LLVM vectorises a loop with a reduction.
        let mut alarm = 0;
        for p in 0..N {
            let mut x = [0.0; J];
            for j in 0..J {
                x[j] = self.input[j].0[p];
            }
            let (own, value, flagged) = f.ready::<A>(x);
            for k in 0..K {
                self.own[k].0[p] = own[k];
            }
            self.seen.value.0[p] = value.to_bits();
            alarm = flag::worse(alarm, if self.on.0[p] != 0 { flagged } else { 0 });
        }
        if !whole {
            for p in 0..N {
                self.seen.found.0[p] = if self.on.0[p] != 0 { u32::MAX } else { 0 };
            }
            self.seen.fill::<N>();
        }
        let [maps, other] = &mut self.maps;
        for b in 0..B {
            let block = b * LANES;
            for p in 0..LANES {
                let (value, next) = (self.seen.at(block + p), self.seen.at(block + p + 1));
                let map = f.map(at(&self.own, block + p), value, next);
                let on = self.on.0[block + p] != 0;
                maps[b].rate.0[p] = if on { map.rate } else { STILL.rate };
                maps[b].offset.0[p] = if on { map.offset } else { STILL.offset };
            }
        }
        for b in 0..B {
            maps[b].step::<1>(&mut other[b]);
        }
        for b in 0..B {
            other[b].step::<2>(&mut maps[b]);
        }
        for b in 0..B {
            maps[b].step::<4>(&mut other[b]);
        }
        for b in 0..B {
            other[b].step::<8>(&mut maps[b]);
        }
        for b in 0..B {
            maps[b].step::<16>(&mut other[b]);
        }
        let mut carry = self.y.0[0];
        self.y.0[N] = carry;
        for b in (0..B).rev() {
            for p in 0..LANES {
                self.y.0[b * LANES + p] = other[b].offset.0[p] + other[b].rate.0[p] * carry;
            }
            carry = other[b].offset.0[0] + other[b].rate.0[0] * carry;
        }
        for p in 0..N {
            let values = f.out(Step {
                live: self.on.0[p] != 0,
                own: at(&self.own, p),
                value: self.seen.at(p),
                next: self.seen.at(p + 1),
                y: self.y.0[p],
                y_next: self.y.0[p + 1],
            });
            for m in 0..M {
                self.out[m].0[p] = num::canonical(values[m]);
            }
        }
        for m in 0..M {
            if let Some(sink) = self.sinks[m] {
                alarm = flag::worse(alarm, store::<N>(&sink[start..end], &self.out[m].0, first));
            }
        }
        self.alarm = flag::worse(self.alarm, alarm);
        let carried = self.seen.value.0[0];
        for p in 0..PLACES {
            self.seen.value.0[LANES + p] = carried;
            self.seen.value.0[PLACES + p] = carried;
        }
    }
}

/// Returns place `p` of K arrays.
#[inline(always)]
fn at<const K: usize>(arrays: &[Lanes<f32, PLACES>; K], p: usize) -> [f32; K] {
    let mut values = [0.0; K];
    for k in 0..K {
        values[k] = arrays[k].0[p];
    }
    values
}

/// Copies to the last of N places. A whole chunk has a constant length, so that it is no call to `memcpy`.
#[inline(always)]
fn load<T: Copy, const N: usize>(to: &mut [T; PLACES], from: &[T]) {
    if from.len() == N {
        to[..N].copy_from_slice(&from[..N]);
    } else {
        to[N - from.len()..N].copy_from_slice(from);
    }
}

/// Writes the places from `first` on and returns the largest alarm.
#[inline(always)]
fn store<const N: usize>(sink: &[Cell<f32>], values: &[f32; PLACES], first: usize) -> u32 {
    let mut alarm = 0;
    if sink.len() == N {
        for p in 0..N {
            alarm = flag::worse(alarm, flag::finite(values[p]));
            sink[p].set(values[p]);
        }
    } else {
        for (cell, value) in sink.iter().zip(&values[first..N]) {
            alarm = flag::worse(alarm, flag::finite(*value));
            cell.set(*value);
        }
    }
    alarm
}
