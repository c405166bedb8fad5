//! The weight W of a token's loss, L = Σ W·l (docs/maths/aggregation.md).
//!
//! | aggregation | W of a live token | `per_row` | `denominator` |
//! |---|---|---|---|
//! | token-mean (DAPO, BNPO) | 1/M | `One` | M |
//! | token-sum | 1 | `One` | 1 |
//! | seq-mean-token-sum | 1/N₊ | `One` | N₊ |
//! | seq-mean-token-mean (GRPO, GSPO, SAPO) | 1/(N₊·Lᵢ) | `Length` or `AtLeastOne` | N₊ |
//! | seq-mean-token-sum-norm (Dr.GRPO) | 1/(N₊·C) | `Constant(C)` | N₊ |
//!
//! M live tokens, Lᵢ of them in sequence i, N₊ sequences (with a live token, or all). Denominators are
//! *arguments*: a global count makes the loss independent of micro-batching and of the number of ranks.
//! Divided in binary64, rounded to `f32` once.
//!
//! A launch may read the denominator and C from memory, where the op `batch_counts` left them:
//! [`WeightFrom`]. Its arguments are then the same for every batch, so that it can be captured into a graph
//! and replayed.

use crate::Error;
use crate::num;
use crate::op::{Arg, Decoder, Encoder};
use crate::ragged::In;
use crate::team::Team;

/// What a sequence's own sum is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PerRow {
    /// 1.
    One,
    /// Lᵢ + eps (verl: eps 1e-8).
    Length {
        /// Added to the count.
        eps: f64,
    },
    /// max(Lᵢ, 1) (TRL, AReaL, slime).
    AtLeastOne,
    /// A constant C (Dr.GRPO).
    Constant(f64),
}

#[allow(unsafe_code)]
impl Arg for PerRow {
    const POINTERS: usize = 0;
    const WORDS: usize = 2;
    #[inline(always)]
    fn encode<E: Encoder>(&self, to: &mut E) {
        let (kind, number) = match *self {
            PerRow::One => (0, 0.0),
            PerRow::Length { eps } => (1, eps),
            PerRow::AtLeastOne => (2, 0.0),
            PerRow::Constant(c) => (3, c),
        };
        to.word(kind);
        number.encode(to);
    }
    #[inline(always)]
    unsafe fn decode(from: &mut Decoder) -> Self {
        let (kind, number) = (from.word(), f64::from_bits(from.word()));
        match kind {
            1 => PerRow::Length { eps: number },
            2 => PerRow::AtLeastOne,
            3 => PerRow::Constant(number),
            _ => PerRow::One,
        }
    }
}

/// The weight of every live token of a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// What a sequence's own sum is divided by.
    pub per_row: PerRow,
    /// What the whole is divided by; 0 gives weight 0 (an all-empty batch has loss 0, not NaN).
    pub denominator: f64,
    /// Multiplies the loss (1, or the number of ranks where a framework averages gradients over them).
    pub scale: f64,
}

crate::launch_args!(Weight { per_row, denominator, scale });

impl Weight {
    /// Whether every number is in its domain and W is a finite `f32` for every length.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |argument, expected, got| Err(Error::Value { argument, index: None, expected, got });
        if !(self.denominator >= 0.0 && self.denominator.is_finite()) {
            return wrong("aggregation denominator", "a finite number of at least 0", self.denominator);
        }
        if !self.scale.is_finite() {
            return wrong("aggregation scale", "a finite number", self.scale);
        }
        match self.per_row {
            PerRow::Length { eps } if !(eps >= 0.0 && eps.is_finite()) => {
                return wrong("aggregation eps", "a finite number of at least 0", eps);
            }
            PerRow::Constant(c) if !(c > 0.0 && c.is_finite()) => {
                return wrong("aggregation horizon", "a positive finite number", c);
            }
            _ => {}
        }
        // The largest weight is that of the shortest sequence.
        let largest = self.of(1);
        if largest.is_nan() || largest.abs() > f64::from(f32::MAX) {
            return wrong("aggregation weight", "a weight that f32 can hold", largest);
        }
        Ok(())
    }

    /// Whether the weight of a sequence depends on its number of live tokens.
    #[inline(always)]
    pub fn needs_length(&self) -> bool {
        matches!(self.per_row, PerRow::Length { .. } | PerRow::AtLeastOne)
    }

    /// W for a sequence with `length` live tokens; 0 for one without.
    #[inline(always)]
    pub fn of(&self, length: u64) -> f64 {
        let length = length as f64;
        let own = match self.per_row {
            PerRow::One => 1.0,
            PerRow::Length { eps } => length + eps,
            PerRow::AtLeastOne => {
                if length > 1.0 {
                    length
                } else {
                    1.0
                }
            }
            PerRow::Constant(c) => c,
        };
        let divisor = self.denominator * own;
        if divisor == 0.0 || length == 0.0 { 0.0 } else { num::div64(self.scale, divisor) }
    }
}

/// The most partial counts of one number that are read from memory: every row reads them all.
pub const PARTS: usize = 64;

/// Which numbers of a [`Weight`] a launch reads from memory, as partial counts such as those of
/// [`BatchCounts`](super::BatchCounts) (of all micro-batches and ranks, where there are several): at most
/// [`PARTS`] of each. What the weight itself says of them is ignored.
///
/// The bits are those of the same numbers given by value. Counts below 2⁵³ are exact.
#[derive(Clone, Copy, Debug)]
pub struct WeightFrom<'a> {
    /// The denominator is the sum of these.
    pub denominator: Option<In<'a, u64>>,
    /// C of [`PerRow::Constant`] is the largest of these, at least 1.
    pub horizon: Option<In<'a, u64>>,
}

crate::launch_args!(WeightFrom<'_> { denominator, horizon });

impl WeightFrom<'_> {
    /// Every number is the weight's own.
    pub const ABSENT: WeightFrom<'static> = WeightFrom { denominator: None, horizon: None };

    /// Whether these numbers go with `weight`, and what is left of it is in its domain: [`Weight::check`].
    pub fn check(&self, weight: &Weight) -> Result<(), Error> {
        let mut left = *weight;
        if let Some(partials) = self.denominator {
            check_partials("aggregation denominator", partials)?;
            // The smallest count that gives a weight other than 0.
            left.denominator = 1.0;
        }
        if let Some(partials) = self.horizon {
            check_partials("aggregation horizon", partials)?;
            if !matches!(weight.per_row, PerRow::Constant(_)) {
                return Err(Error::Combination {
                    argument: "aggregation horizon",
                    expected: "given, but sums are not divided by a constant: leave it out",
                });
            }
            left.per_row = PerRow::Constant(1.0);
        }
        left.check()
    }

    /// `weight` with the numbers that stand in memory.
    #[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
    #[inline(always)]
    pub fn fill<T: Team>(&self, team: &T, weight: Weight) -> Weight {
        let per_row = match (self.horizon, weight.per_row) {
            (Some(partials), PerRow::Constant(_)) => PerRow::Constant(largest(team, partials)),
            _ => weight.per_row,
        };
        Weight { per_row, denominator: total(team, self.denominator, weight.denominator), ..weight }
    }

    /// `weight` with the numbers that stand in memory.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline(always)]
    pub fn fill<T: Team>(&self, _team: &T, weight: Weight) -> Weight {
        if self.denominator.is_none() && self.horizon.is_none() { weight } else { self.read(weight) }
    }

    /// A CPU's batch gives its numbers by value: what reads memory stays out of the way of the loops over
    /// tokens.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[cold]
    #[inline(never)]
    fn read(&self, weight: Weight) -> Weight {
        let per_row = match (self.horizon, weight.per_row) {
            (Some(partials), PerRow::Constant(_)) => PerRow::Constant(largest(&(), partials)),
            _ => weight.per_row,
        };
        let denominator = self.denominator.map_or(weight.denominator, |partials| sum(&(), partials));
        Weight { per_row, denominator, ..weight }
    }
}

/// Whether an array of partial counts is of a length that rows may read.
pub fn check_partials(argument: &'static str, partials: In<'_, u64>) -> Result<(), Error> {
    if partials.is_empty() {
        return Err(Error::Empty { argument, expected: "at least one partial count" });
    }
    if partials.len() > PARTS {
        return Err(Error::Length {
            argument,
            expected: PARTS,
            because: "the most partial counts",
            got: partials.len(),
        });
    }
    Ok(())
}

/// The sum of the partial counts, or `absent` without any.
#[inline(always)]
pub fn total<T: Team>(team: &T, partials: Option<In<'_, u64>>, absent: f64) -> f64 {
    partials.map_or(absent, |partials| sum(team, partials))
}

// On a GPU the lanes fold the partials: a loop in which each lane reads them all keeps registers through the
// loop over rows (measured: a step of occupancy of nine losses on sm_90). On a CPU the loop is out of line,
// or each of a gate's loops would have a copy. Both are exact, so equal.

#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
mod fold {
    use crate::ragged::{In, Span};
    use crate::team::Team;

    #[inline(always)]
    pub(super) fn sum<T: Team>(team: &T, partials: In<'_, u64>) -> f64 {
        // Exact: integers below 2^53.
        team.sum(Span::new(0, partials.len()), |i| [partials.at(i) as f64])[0]
    }

    #[inline(always)]
    pub(super) fn largest<T: Team>(team: &T, partials: In<'_, u64>) -> f64 {
        let span = Span::new(0, partials.len());
        // Halves of 16 bits, which binary32 holds: a length is below 2^32.
        let high = |i: usize| ((partials.at(i) >> 16) as u32) as f32;
        let highest = team.max(span, high);
        let low = |i: usize| if high(i) == highest { (partials.at(i) as u32 & 0xffff) as f32 } else { 0.0 };
        let largest = f64::from(highest) * 65536.0 + f64::from(team.max(span, low));
        if largest < 1.0 { 1.0 } else { largest }
    }
}

#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
mod fold {
    use crate::ragged::In;

    #[cold]
    #[inline(never)]
    pub(super) fn sum<T>(_team: &T, partials: In<'_, u64>) -> f64 {
        (0..partials.len()).map(|i| partials.at(i)).sum::<u64>() as f64
    }

    #[cold]
    #[inline(never)]
    pub(super) fn largest<T>(_team: &T, partials: In<'_, u64>) -> f64 {
        (0..partials.len()).map(|i| partials.at(i)).fold(1, u64::max) as f64
    }
}
use fold::{largest, sum};
