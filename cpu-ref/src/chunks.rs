//! Vectorised [`Team::sum_live`] and [`Team::number`]: binary64 sums and 32-bit numbers, chunk by chunk.
//!
//! [`Team::sum_live`]: lockstep_core::team::Team::sum_live
//! [`Team::number`]: lockstep_core::team::Team::number

use crate::lanes::{Fold, store_rest, store_whole};
use crate::level::Picks;
use crate::wide::{Aligned, Chunk, Source, chunk_of, prefetch};
use lockstep_core::num::Arith;
use lockstep_core::ragged::{Cells, Mask, Span, Stream};
use lockstep_core::team::fold::COLUMNS;
use lockstep_core::team::{Number, Terms};

/// A row's inputs in chunks of 128. A short last chunk is copied to a buffer and its padding is masked.
struct Chunks<'a, const J: usize> {
    sources: [Source<'a>; J],
    bytes: Option<&'a [u8]>,
    padded: Aligned<[Chunk<f32>; J]>,
    padded_mask: Aligned<Chunk<u8>>,
    length: usize,
}

impl<'a, const J: usize> Chunks<'a, J> {
    #[inline(always)]
    fn new(span: Span, mask: Mask<'a>, ins: [Stream<'a>; J]) -> Self {
        let mut chunks = Chunks {
            sources: [Source::Constant; J],
            bytes: mask.bytes().map(|bytes| bytes.row(span)),
            padded: Aligned([[0.0; COLUMNS]; J]),
            padded_mask: Aligned([1; COLUMNS]),
            length: span.len(),
        };
        for j in 0..J {
            match ins[j] {
                Stream::Array(array) => chunks.sources[j] = Source::Row(array.row(span)),
                Stream::Constant(value) => chunks.padded.0[j] = [value; COLUMNS],
            }
        }
        chunks
    }

    /// Returns the chunk that begins at `start`, and its mask.
    #[inline(always)]
    fn at(&mut self, start: usize) -> ([&Chunk<f32>; J], &Chunk<u8>) {
        let live = COLUMNS.min(self.length - start);
        let whole = live == COLUMNS;
        if !whole {
            for j in 0..J {
                if let Source::Row(row) = self.sources[j] {
                    self.padded.0[j][..live].copy_from_slice(&row[start..]);
                }
            }
            self.padded_mask.0 = [0; COLUMNS];
            match self.bytes {
                Some(bytes) => self.padded_mask.0[..live].copy_from_slice(&bytes[start..]),
                None => self.padded_mask.0[..live].fill(1),
            }
        }
        for source in &self.sources {
            if let Source::Row(row) = source {
                prefetch(&row[start..]);
            }
        }
        if let Some(bytes) = self.bytes {
            prefetch(&bytes[start..]);
        }
        let mut x = [&self.padded.0[0]; J];
        for j in 0..J {
            x[j] = match self.sources[j] {
                Source::Row(row) if whole => chunk_of(&row[start..]),
                _ => &self.padded.0[j],
            };
        }
        let mask = match self.bytes {
            Some(bytes) if whole => chunk_of(&bytes[start..]),
            _ => &self.padded_mask.0,
        };
        (x, mask)
    }
}

#[inline(always)]
pub(crate) fn sum_live<L: Picks, const J: usize, const K: usize, F: Terms<J, K>>(
    span: Span,
    mask: Mask<'_>,
    ins: [Stream<'_>; J],
    f: F,
) -> [f64; K] {
    let mut chunks = Chunks::new(span, mask, ins);
    let Aligned(columns) = &mut Aligned([[0.0f64; COLUMNS]; K]);
    for start in (0..span.len()).step_by(COLUMNS) {
        let (x, mask) = chunks.at(start);
        for l in 0..COLUMNS {
            let terms = f.terms(|j| x[j][l]);
            for k in 0..K {
                columns[k][l] += if mask[l] != 0 { terms[k] } else { 0.0 };
            }
        }
    }
    let mut sums = [0.0; K];
    L::apart(Fold { columns, sums: &mut sums });
    sums
}

#[inline(always)]
pub(crate) fn number<A: Arith, const J: usize, F: Number<J>>(
    span: Span,
    mask: Mask<'_>,
    ins: [Stream<'_>; J],
    out: Cells<'_, u32>,
    f: F,
) {
    let mut chunks = Chunks::new(span, mask, ins);
    let (sink, Aligned(numbers)) = (out.row(span), &mut Aligned([0u32; COLUMNS]));
    for start in (0..span.len()).step_by(COLUMNS) {
        let (x, mask) = chunks.at(start);
        prefetch(&sink[start..]);
        for l in 0..COLUMNS {
            let number = f.number::<A>(span.start + start + l, |j| x[j][l]);
            numbers[l] = if mask[l] != 0 { number } else { 0 };
        }
        if sink.len() - start >= COLUMNS {
            store_whole(&sink[start..], numbers, |x| x);
        }
    }
    store_rest(sink, numbers, |x| x);
}
