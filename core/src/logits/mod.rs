//! Ops on rows of logits over a vocabulary: the output of a policy's last layer, before sampling or
//! selection.
//!
//! A row z has V entries. An entry of −∞ is a token that the vocabulary mask forbids; its probability and its
//! gradient are 0. Everything is computed from y_v = (z_v − max z)·(1/T), with 1/T rounded to binary32 once,
//! so that nothing overflows:
//!
//! ```text
//! e_v = exp(y_v), or 0 below exp(−87)      Z = Σ e_v ≥ 1      p_v = e_v / Z
//! ```
//!
//! A probability below e⁻⁸⁷ ≈ 1.6e-38 times that of the most probable token is 0, so that the exponential
//! needs to handle only normal numbers, which takes half the operations. Z is a binary64 sum: terms below
//! 2⁻⁵³ of the largest add nothing. No op stores a row of intermediate values; exponentials are recomputed
//! where they are needed.
//!
//! Statistics and gradients also exist for logits that are stored in half precision: they are those of the
//! same logits in binary32, and a gradient is rounded to the format of the logits when it is written.
//!
//! A vocabulary that is spread over ranks has ops of its own ([`vocab_parallel`]).
//!
//! A row whose largest entry is not finite (it has a NaN or +∞, or is −∞ everywhere) raises its alarm, and
//! its results are NaN.

pub mod draw;
pub mod gradient;
pub mod kl;
pub mod otr;
pub mod otr_sampled;
pub mod statistics;
pub mod vocab_parallel;

pub use draw::DrawTokens;
pub use gradient::LogitsGradient;
pub use kl::LogitsKl;
pub use otr::OtrExact;
pub use otr_sampled::OtrSampled;
pub use statistics::LogitsStatistics;
pub use vocab_parallel::{VocabParallelStatistics, VocabParallelSums, VocabParallelTop};

use crate::Error;
use crate::num::{self, Arith, Storage};
use crate::op::Partition;
use crate::ragged::{In, Mask, Span, Stream};
use crate::require;
use crate::team::{Element, Lane, Team};

/// A row-major matrix of logits, of which some rows take part.
#[derive(Clone, Copy, Debug)]
pub struct LogitRows<'a, S = f32> {
    /// Logits, `[rows · vocab]`.
    pub logits: In<'a, S>,
    /// Number of rows, one per token.
    pub rows: usize,
    /// Number V of entries per row, 1 to [`LogitRows::MAX_VOCAB`].
    pub vocab: usize,
    /// Which rows take part, `[rows]`; the contents of the others are ignored.
    pub live: Mask<'a>,
}

crate::launch_args!(impl[S: Storage] LogitRows<'_, S> { logits, rows, vocab, live });

/// Number of elements per block in the search for the index of the largest.
const BLOCK: usize = 2048;

/// Exponents below this give 0.
const CUT: f32 = -87.0;

impl LogitRows<'_> {
    /// Largest vocabulary: integers up to this are exact in binary32.
    pub const MAX_VOCAB: usize = 1 << 24;
}

impl<S: Storage> LogitRows<'_, S> {
    /// Checks the sizes.
    ///
    /// Errors: [`Error::Value`] if `vocab` is outside 1 to [`MAX_VOCAB`](LogitRows::MAX_VOCAB);
    /// [`Error::Length`] unless there are rows · vocab logits.
    pub fn check(&self) -> Result<(), Error> {
        let vocab = self.vocab;
        require::scalar("vocab", (1..=LogitRows::MAX_VOCAB).contains(&vocab), "1 to 16777216", vocab as f64)?;
        require::length("logits", self.rows.saturating_mul(vocab), "rows times vocab", self.logits.len())
    }

    /// The elements of row `row`. A batch can have more than 2³² logits, so on a 64-bit machine the product
    /// has 64 bits.
    #[inline(always)]
    pub fn span(&self, row: usize) -> Span {
        Span::new(row * self.vocab, (row + 1) * self.vocab)
    }

    /// The elements of row `row` if it takes part, else an empty span.
    #[inline(always)]
    fn live_span(&self, row: usize) -> Span {
        let span = self.span(row);
        Span::new(span.start, if self.live.at(row) { span.end } else { span.start })
    }

    /// The largest logit of `span`: NaN if any is NaN, −∞ for an empty span.
    #[inline(always)]
    fn largest<T: Team>(&self, team: &T, span: Span) -> f32 {
        largest(team, self.logits, span)
    }

    /// [`Team::top`] of the logits of `span`.
    #[inline(always)]
    fn top<T: Team>(&self, team: &T, span: Span) -> (f32, u32) {
        team.top(span, self.logits)
    }
}

impl<S: Storage> Partition for LogitRows<'_, S> {
    #[inline(always)]
    fn rows(&self) -> usize {
        self.rows
    }

    fn len(&self, _row: usize) -> usize {
        self.vocab
    }

    fn sizes(&self) -> Result<(usize, usize), Error> {
        self.check()?;
        crate::lengths!(self; self.rows => live);
        Ok((self.logits.len(), self.rows))
    }
}

/// [`Team::top`] by sweeps over blocks of the span, and a search in one of them.
#[inline(always)]
pub fn top<S: Storage, T: Team + ?Sized>(team: &T, span: Span, values: In<'_, S>) -> (f32, u32) {
    let (mut found, mut block, mut start) = (f32::NEG_INFINITY, span.start, span.start);
    while start < span.end {
        let part = Span::new(start, if span.end - start > BLOCK { start + BLOCK } else { span.end });
        let part = largest(team, values, part);
        block = if part > found { start } else { block };
        found = num::max(found, part);
        start += BLOCK;
    }
    // The negated distance is largest for the first of equal entries. It is converted from 32 bits, which is
    // one instruction.
    let end = if span.end - block > BLOCK { block + BLOCK } else { span.end };
    let first = team.max(Span::new(block, end), move |i| {
        if values.at(i).widen() == found { -((i - block) as u32 as f32) } else { f32::NEG_INFINITY }
    });
    let index = if first > f32::NEG_INFINITY { (block - span.start) as u32 + (-first) as u32 } else { 0 };
    (found, index)
}

/// The largest of `span`: NaN if any is NaN, −∞ for an empty span.
#[inline(always)]
fn largest<S: Storage, T: Team + ?Sized>(team: &T, logits: In<'_, S>, span: Span) -> f32 {
    team.sweep(span, Mask::all(), [Stream::Array(logits)], [], &Largest).maxima[0]
}

struct Largest;

impl Element<1, 0, 0, 1> for Largest {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 0, 1> {
        Lane { out: [], sum: [], max: [input(0)], alarm: 0 }
    }
}

/// Maps a row's logits to exponents: the row's largest logit, and 1/T.
#[derive(Clone, Copy)]
struct Scale {
    largest: f32,
    inverse: f32,
}

impl Scale {
    /// The exponent y of a logit, at most 0; −∞ for −∞.
    #[inline(always)]
    fn exponent(&self, logit: f32) -> f32 {
        (logit - self.largest) * self.inverse
    }
}

/// 1/T, as the ops use it.
#[inline(always)]
fn inverse(temperature: f32) -> f32 {
    crate::num::div(1.0, temperature)
}

/// e^y for y ≤ 0; 0 below the cut.
#[inline(always)]
pub(crate) fn weight<A: Arith>(y: f32) -> f32 {
    factors::<A>(y).0
}

/// [`weight`], and y as the other factor of a product: bounded where the weight is 0.
#[inline(always)]
fn factors<A: Arith>(y: f32) -> (f32, f32) {
    if cfg!(any(target_arch = "nvptx64", target_arch = "amdgpu")) {
        let y = num::select(y < CUT, num::EXP_IS_ZERO, y);
        return (num::exp_normal::<A>(y), y);
    }
    // One operation more, and a tenth faster in a vector loop, which then waits for a maximum alone.
    let bounded = floored(y);
    let e = num::exp_normal::<A>(bounded);
    (if y < CUT { 0.0 } else { e }, bounded)
}

/// y, but at least the cut: a factor of a product whose other factor is 0 below the cut.
#[inline(always)]
fn floored(y: f32) -> f32 {
    num::select(y < CUT, CUT, y)
}

/// ln Z for Z ≥ 1, by log1p so that a nearly certain token keeps its digits: with Z = 1 + 1e-9, the ln of Z
/// rounded to binary32 would be 0.
#[inline(always)]
fn ln_total<A: Arith>(total: f64) -> f32 {
    num::log1p::<A>((total - 1.0) as f32)
}

/// Checks that a temperature is within 1e-6 to 1e6.
fn check_temperature(argument: &'static str, temperature: f32) -> Result<(), Error> {
    // Multiplying by 1/T must not make all differences of logits 0 or −∞.
    let ok = (1e-6..=1e6).contains(&temperature);
    require::scalar(argument, ok, "a number in 1e-6..=1e6", temperature)
}

/// Checks that the shard is inside the largest vocabulary.
fn check_shard<S: Storage>(rows: &LogitRows<'_, S>, vocab_start: u32) -> Result<(), Error> {
    rows.check()?;
    let fits = vocab_start as usize + rows.vocab <= LogitRows::MAX_VOCAB;
    require::scalar("vocab_start", fits, "at most 16777216 minus the entries of the shard", vocab_start)
}
