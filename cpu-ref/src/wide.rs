//! The team as vectors: blocks of 32 lanes whose loops LLVM turns into SIMD under the caller's target features.
//!
//! ```text
//! for each block of 32 elements: load lanes; y = f(x) for all lanes; select by mask; store; add to the block's columns
//! ```
//!
//! Beyond the plain version: (1) a short last block is copied to a padded buffer with its padding masked, so the
//! vector body is the only body; (2) results pass through buffers on the stack, whose stores cannot alias an input,
//! so that LLVM needs no run-time alias checks, of which it allows too few; (3) columns that no element reaches are not folded
//! specially: they hold +0, and x + 0 = x.

use core::array::from_fn;
use core::cell::Cell;
use core::marker::PhantomData;
use lockstep_core::num::{self, Arith};
use lockstep_core::ragged::{Mask, Sink, Span, Stream};
use lockstep_core::team::fold::{COLUMNS, LANES, PER_LANE, fold_columns};
use lockstep_core::team::scan::scan_block;
use lockstep_core::team::{Direction, Lane, Semigroup, Swept, Team};

/// A team of vectors with arithmetic `A`.
#[derive(Clone, Copy)]
pub(crate) struct Wide<A>(PhantomData<A>);

impl<A> Wide<A> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Wide(PhantomData)
    }
}

/// One row's view of an input: its elements, or a block of the constant.
#[derive(Clone, Copy)]
enum Source<'a> {
    Row(&'a [f32]),
    Constant([f32; LANES]),
}

impl<'a> Source<'a> {
    #[inline(always)]
    fn new(stream: Stream<'a>, span: Span) -> Self {
        match stream {
            Stream::Array(array) => Source::Row(array.row(span)),
            Stream::Constant(value) => Source::Constant([value; LANES]),
        }
    }
}

#[inline(always)]
fn block_of<T>(row: &[T], start: usize) -> &[T; LANES] {
    match row[start..start + LANES].try_into() {
        Ok(block) => block,
        Err(_) => unreachable!("a slice of LANES elements is an array of LANES"),
    }
}

impl<A: Arith> Team for Wide<A> {
    type Arith = A;

    #[inline(always)]
    fn sweep<const J: usize, const M: usize, const K: usize, const E: usize>(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
        outs: [Sink<'_>; M],
        f: impl Fn([f32; J]) -> Lane<M, K, E>,
    ) -> Swept<K, E> {
        let length = span.len();
        let sources: [Source<'_>; J] = from_fn(|j| Source::new(ins[j], span));
        let sinks: [Option<&[Cell<f32>]>; M] = from_fn(|m| outs[m].map(|out| out.row(span)));
        let bytes = mask.bytes().map(|bytes| bytes.row(span));

        let mut columns = [[[0.0f64; LANES]; PER_LANE]; K];
        let mut maxima = [[f32::NEG_INFINITY; LANES]; E];
        let mut flags = [0u32; LANES];
        let mut tail = [[0.0f32; LANES]; J];
        let mut tail_mask = [0u8; LANES];
        let all = [1u8; LANES];

        let mut start = 0;
        let mut column = 0;
        while start < length {
            let live = LANES.min(length - start);
            if live < LANES {
                for j in 0..J {
                    if let Source::Row(row) = sources[j] {
                        tail[j][..live].copy_from_slice(&row[start..]);
                    }
                }
                match bytes {
                    Some(bytes) => tail_mask[..live].copy_from_slice(&bytes[start..]),
                    None => tail_mask[..live].fill(1),
                }
            }
            let x: [&[f32; LANES]; J] = from_fn(|j| match &sources[j] {
                Source::Constant(block) => block,
                Source::Row(_) if live < LANES => &tail[j],
                Source::Row(row) => block_of(row, start),
            });
            let m: &[u8; LANES] = match bytes {
                _ if live < LANES => &tail_mask,
                Some(bytes) => block_of(bytes, start),
                None => &all,
            };

            let mut out = [[0.0f32; LANES]; M];
            let mut sum = [[0.0f32; LANES]; K];
            for l in 0..LANES {
                let lane = f(from_fn(|j| x[j][l]));
                let on = m[l] != 0;
                for j in 0..M {
                    out[j][l] = if on { num::canonical(lane.out[j]) } else { 0.0 };
                }
                for k in 0..K {
                    sum[k][l] = if on { lane.sum[k] } else { 0.0 };
                }
                for e in 0..E {
                    maxima[e][l] = if on { num::max(maxima[e][l], lane.max[e]) } else { maxima[e][l] };
                }
                flags[l] |= if on { lane.flags } else { 0 };
            }
            for k in 0..K {
                for l in 0..LANES {
                    columns[k][column][l] += f64::from(sum[k][l]);
                }
            }
            for j in 0..M {
                if let Some(sink) = sinks[j] {
                    for (cell, value) in sink[start..start + live].iter().zip(&out[j]) {
                        cell.set(*value);
                    }
                }
            }
            start += LANES;
            column = (column + 1) % PER_LANE;
        }
        Swept {
            sums: from_fn(|k| num::canonical64(fold_columns(flatten(&columns[k])))),
            maxima: from_fn(|e| maxima[e].iter().fold(f32::NEG_INFINITY, |a, b| num::max(a, *b))),
            flags: flags.iter().fold(0, |a, b| a | b),
        }
    }

    #[inline(always)]
    fn sum<const K: usize>(&self, span: Span, f: impl Fn(usize) -> [f64; K]) -> [f64; K] {
        let mut columns = [[0.0f64; COLUMNS]; K];
        for i in 0..span.len() {
            let terms = f(span.start + i);
            for k in 0..K {
                columns[k][i % COLUMNS] += terms[k];
            }
        }
        from_fn(|k| num::canonical64(fold_columns(&columns[k])))
    }

    #[inline(always)]
    fn max(&self, span: Span, f: impl Fn(usize) -> f32) -> f32 {
        let mut maximum = f32::NEG_INFINITY;
        for i in span.start..span.end {
            maximum = num::max(maximum, f(i));
        }
        maximum
    }

    #[inline(always)]
    fn count(&self, span: Span, mask: Mask<'_>) -> u64 {
        match mask.bytes() {
            Some(bytes) => bytes.row(span).iter().map(|byte| u64::from(*byte != 0)).sum(),
            None => span.len() as u64,
        }
    }

    #[inline(always)]
    fn for_each(&self, span: Span, f: impl Fn(usize)) {
        for i in span.start..span.end {
            f(i);
        }
    }

    #[inline(always)]
    fn scan<S: Semigroup>(
        &self,
        op: S,
        span: Span,
        direction: Direction,
        get: impl Fn(usize) -> S::Value,
        put: impl Fn(usize, S::Value),
    ) {
        let element = |j: usize| match direction {
            Direction::Prefix => span.start + j,
            Direction::Suffix => span.end - 1 - j,
        };
        let mut carry = op.identity();
        let mut start = 0;
        while start < span.len() {
            let live = LANES.min(span.len() - start);
            let mut x = [op.identity(); LANES];
            for (l, lane) in x.iter_mut().enumerate().take(live) {
                *lane = get(element(start + l));
            }
            carry = scan_block(op, carry, &mut x);
            for (l, value) in x.into_iter().enumerate().take(live) {
                put(element(start + l), value);
            }
            start += LANES;
        }
    }

    #[inline(always)]
    fn leader(&self, f: impl FnOnce()) {
        f();
    }
}

/// The columns in the order of [`fold_columns`]: block by block is column by column.
#[inline(always)]
fn flatten(columns: &[[f64; LANES]; PER_LANE]) -> &[f64; COLUMNS] {
    match columns.as_flattened().try_into() {
        Ok(flat) => flat,
        Err(_) => unreachable!("PER_LANE blocks of LANES are COLUMNS"),
    }
}
