//! Rows of logits over a vocabulary: what a policy's last layer gives, before anything is sampled or selected.
//!
//! A row z has V entries. An entry of −∞ is a token that the vocabulary mask forbids: its probability is 0, and so is its
//! gradient. Everything is computed from y_v = (z_v − max z)·(1/T), with 1/T rounded to binary32 once, so that nothing overflows:
//!
//! ```text
//! e_v = exp(y_v), or 0 below exp(−87)      Z = Σ e_v ≥ 1      p_v = e_v / Z
//! ```
//!
//! Below e⁻⁸⁷ ≈ 1.6e-38 times the most probable token's a probability is 0: the exponential is then one for normal numbers alone,
//! half of the operations. Z is a binary64 sum: what lies below 2⁻⁵³ of its largest term adds nothing. No op keeps a row of intermediate values: exponentials are computed again where they are needed.
//!
//! A row whose largest entry is not finite (a NaN or +∞ in it, or −∞ everywhere) raises its alarm; its results are NaN.

pub mod draw;
pub mod gradient;
pub mod kl;
pub mod otr;
pub mod otr_sampled;
pub mod statistics;

pub use draw::DrawTokens;
pub use gradient::LogitsGradient;
pub use kl::LogitsKl;
pub use otr::OtrExact;
pub use otr_sampled::OtrSampled;
pub use statistics::LogitsStatistics;

use crate::Error;
use crate::num::{self, Arith};
use crate::ragged::{In, Mask, Span, Stream};
use crate::team::{Element, Lane, Team};

/// Rows of logits: a matrix, row-major, of which some rows take part.
#[derive(Clone, Copy, Debug)]
pub struct LogitRows<'a> {
    /// Logits, `[rows · vocab]`.
    pub logits: In<'a, f32>,
    /// Number of rows: one for each token.
    pub rows: usize,
    /// V, the entries of a row; at most [`LogitRows::MAX_VOCAB`].
    pub vocab: usize,
    /// Which rows take part, `[rows]`; what stands in the others is not looked at.
    pub live: Mask<'a>,
}

crate::launch_args!(LogitRows<'_> { logits, rows, vocab, live });

/// Elements among which the largest is looked for by index.
const BLOCK: usize = 2048;

/// Exponents below give 0.
const CUT: f32 = -87.0;

impl LogitRows<'_> {
    /// Largest vocabulary: binary32 counts that far.
    pub const MAX_VOCAB: usize = 1 << 24;

    /// Whether sizes are in their domain and agree.
    pub fn check(&self) -> Result<(), Error> {
        if self.vocab == 0 || self.vocab > Self::MAX_VOCAB {
            let (argument, expected) = ("vocab", "1 to 16777216");
            return Err(Error::Value { argument, index: None, expected, got: self.vocab as f64 });
        }
        let (expected, got) = (self.rows.saturating_mul(self.vocab), self.logits.len());
        if got != expected {
            return Err(Error::Length { argument: "logits", expected, because: "rows times vocab", got });
        }
        Ok(())
    }

    /// Number of rows and of logits, if the mask has one entry per row too.
    fn sizes(&self) -> Result<(usize, usize), Error> {
        self.check()?;
        crate::lengths!(self; self.rows => live);
        Ok((self.rows, self.logits.len()))
    }

    /// Elements of a row. A product, in 64 bits where the machine has them: logits of a batch pass 2³² elements.
    #[inline(always)]
    pub fn span(&self, row: usize) -> Span {
        Span::new(row * self.vocab, (row + 1) * self.vocab)
    }

    /// Elements of a row that takes part; none of another.
    #[inline(always)]
    fn live_span(&self, row: usize) -> Span {
        let span = self.span(row);
        Span::new(span.start, if self.live.at(row) { span.end } else { span.start })
    }

    /// The largest of `span`, NaN if there is one in it; −∞ of nothing.
    #[inline(always)]
    fn largest<T: Team>(&self, team: &T, span: Span) -> f32 {
        largest(team, self.logits, span)
    }

    /// The largest of `span`, NaN if there is one in it, and where it first stands, counted from the start.
    #[inline(always)]
    fn top<T: Team>(&self, team: &T, span: Span) -> (f32, u32) {
        let logits = self.logits;
        let (mut largest, mut block, mut start) = (f32::NEG_INFINITY, span.start, span.start);
        while start < span.end {
            let part = Span::new(start, if span.end - start > BLOCK { start + BLOCK } else { span.end });
            let swept = team.sweep(part, Mask::all(), [Stream::Array(logits)], [], &Largest);
            block = if swept.maxima[0] > largest { start } else { block };
            largest = num::max(largest, swept.maxima[0]);
            start += BLOCK;
        }
        // The first of the equal ones has the largest negative distance.
        let end = if span.end - block > BLOCK { block + BLOCK } else { span.end };
        let first = team.max(Span::new(block, end), move |i| {
            if logits.at(i) == largest { -((i - block) as f32) } else { f32::NEG_INFINITY }
        });
        let index = if first > f32::NEG_INFINITY { (block - span.start) as u32 + (-first) as u32 } else { 0 };
        (largest, index)
    }
}

/// The largest of `span`, NaN if there is one in it; −∞ of nothing.
#[inline(always)]
fn largest<T: Team>(team: &T, logits: In<'_, f32>, span: Span) -> f32 {
    team.sweep(span, Mask::all(), [Stream::Array(logits)], [], &Largest).maxima[0]
}

struct Largest;

impl Element<1, 0, 0, 1> for Largest {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 0, 1> {
        Lane { out: [], sum: [], max: [input(0)], alarm: 0 }
    }
}

/// How a row's logits become exponents: the largest of them, and 1/T.
#[derive(Clone, Copy)]
struct Scale {
    largest: f32,
    inverse: f32,
}

impl Scale {
    /// y of a logit: at most 0; −∞ for −∞.
    #[inline(always)]
    fn exponent(&self, logit: f32) -> f32 {
        (logit - self.largest) * self.inverse
    }
}

/// 1/T as the ops use it.
#[inline(always)]
fn inverse(temperature: f32) -> f32 {
    crate::num::div(1.0, temperature)
}

/// e^y for y ≤ 0, 0 below the cut.
#[inline(always)]
pub(crate) fn weight<A: Arith>(y: f32) -> f32 {
    let e = num::exp_normal::<A>(if y < CUT { CUT } else { y });
    if y < CUT { 0.0 } else { e }
}

/// y, or the cut for what lies below: a factor of a product whose other factor is 0 there.
#[inline(always)]
fn floored(y: f32) -> f32 {
    if y < CUT { CUT } else { y }
}

/// ln Z for Z ≥ 1. By log1p, so that a nearly certain token keeps its digits: with Z = 1 + 1e-9, ln of Z as binary32 is 0.
#[inline(always)]
fn ln_total<A: Arith>(total: f64) -> f32 {
    num::log1p::<A>((total - 1.0) as f32)
}

/// Domain check of a temperature.
fn check_temperature(argument: &'static str, temperature: f32) -> Result<(), Error> {
    // 1/T must be a number that multiplies differences of logits without making all of them 0 or −∞.
    let ok = (1e-6..=1e6).contains(&temperature);
    crate::gate::check_scalar(argument, temperature, ok, "a number in 1e-6..=1e6")
}
