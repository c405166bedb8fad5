//! Random cases: any op, generated from a seed alone, so that a seed reproduces a reported difference.

use super::Case;
use super::corpus::tokens;
use super::hash::Source;
use super::masks::Mask;
use super::shapes::Shape;
use super::values::Range;
use crate::ops::AnyOp;

const CATCHES: &str = "whatever nobody thought of";

/// A sequence of random draws.
pub struct Draw {
    source: Source,
    next: usize,
    most: usize,
    given: Option<Vec<u32>>,
}

impl Draw {
    /// In 0..n.
    pub fn below(&mut self, n: usize) -> usize {
        self.next += 1;
        self.source.below(self.next, n)
    }

    /// A fair coin flip.
    pub fn yes(&mut self) -> bool {
        self.below(2) == 1
    }

    /// In 0..1.
    pub fn unit(&mut self) -> f32 {
        self.next += 1;
        self.source.unit(self.next)
    }

    /// One of a list.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// A separate stream, for arrays.
    pub fn source(&mut self) -> Source {
        self.next += 1;
        self.source.fork(self.next as u64)
    }

    /// Row lengths: mostly short, with empty rows; some batches exceed a column cycle or have many rows.
    pub fn lengths(&mut self) -> Vec<u32> {
        if let Some(given) = &self.given {
            return given.clone();
        }
        let most = self.most;
        let rows = (1 + self.below(24)).min(most.max(1));
        (0..rows)
            .map(|_| match self.below(10) {
                0 | 1 => self.below(3),
                2..7 => self.below(70),
                7 | 8 => 120 + self.below(200),
                _ => self.below(3000),
            })
            .map(|length| length.min(most) as u32)
            .collect()
    }

    /// Such rows as a shape.
    pub fn shape(&mut self) -> Shape {
        Shape { name: "random", catches: CATCHES, lengths: self.lengths() }
    }

    /// A temperature.
    pub(crate) fn temperature(&mut self) -> f32 {
        if self.yes() { 1.0 } else { 0.25 + 2.0 * self.unit() }
    }

    /// The length of a row of logits, one of `kinds` kinds: short, middle, long.
    pub(crate) fn vocab(&mut self, kinds: usize) -> usize {
        match self.below(kinds) {
            0 => 1 + self.below(40),
            1 => 100 + self.below(200),
            _ => 1 + self.below(5000),
        }
    }

    /// In 0..n, or the most rows of the case if that is less.
    pub fn at_most(&mut self, n: usize) -> u32 {
        self.below(n).min(self.most) as u32
    }

    /// The stream that all draws come from.
    pub(crate) fn root(&self) -> Source {
        self.source
    }

    /// A case of an op on [`tokens`].
    pub(crate) fn tokens(&mut self, params: impl Into<AnyOp>) -> Case {
        let (shape, mask, range) = (self.shape(), self.pick(&Mask::ALL), self.pick(&Range::ALL));
        let data = tokens(&shape, mask, range, self.source.fork(3));
        Case { label: String::new(), catches: CATCHES, params: params.into(), data }
    }
}

/// Case number `seed` of `op`, or `None` if there is no such op.
pub fn random(op: &str, seed: u64) -> Option<Case> {
    drawn(op, seed, usize::MAX, None)
}

/// Like [`random`], with at most `most` rows and `most` elements in each, where the op leaves the shape open.
/// Failures are shrunk with it.
pub fn random_within(op: &str, seed: u64, most: usize) -> Option<Case> {
    drawn(op, seed, most, None)
}

/// Like [`random`], with rows of these lengths where the op leaves the shape open, for benchmarks.
pub fn random_of(op: &str, seed: u64, lengths: Vec<u32>) -> Option<Case> {
    drawn(op, seed, usize::MAX, Some(lengths))
}

fn drawn(op: &str, seed: u64, most: usize, given: Option<Vec<u32>>) -> Option<Case> {
    let mut draw = Draw { source: Source::new(seed).fork(0x0c0f_fee0), next: 0, most, given };
    let case = AnyOp::random(op, &mut draw)?;
    let label = if case.label.is_empty() { String::new() } else { format!(": {}", case.label) };
    Some(Case { label: format!("seed {seed}{label}"), ..case })
}
