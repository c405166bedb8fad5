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
//! M is the number of live tokens, Lᵢ that of sequence i, N₊ the number of sequences (with a live token, or
//! all). Denominators are *arguments*: a global count makes the loss independent of micro-batching and of the
//! number of ranks. W is divided in binary64 and rounded to `f32` once.
//!
//! A launch may read the denominator and C from memory, where the op `batch_counts` left them: see
//! [`WeightFrom`]. Its arguments are then the same for every batch, so that it can be captured into a graph
//! and replayed.

use crate::Error;
use crate::num;
use crate::ragged::In;
use crate::require;
use crate::team::Team;

/// The divisor of each sequence's own sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PerRow {
    /// Divides by 1.
    One,
    /// Divides by Lᵢ + eps (verl: eps 1e-8).
    Length {
        /// Added to the token count.
        eps: f64,
    },
    /// Divides by max(Lᵢ, 1) (TRL, AReaL, slime).
    AtLeastOne,
    /// Divides by a constant C (Dr.GRPO).
    Constant(f64),
}

crate::launch_args!(enum PerRow (number: f64) {
    0 => One, 1 => Length { eps: number }, 2 => AtLeastOne, 3 => Constant(number)
});

/// The weight of every live token of a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// Divisor of each sequence's own sum.
    pub per_row: PerRow,
    /// Divisor of the whole sum; 0 gives weight 0 (the loss of an all-empty batch is 0, not NaN).
    pub denominator: f64,
    /// Multiplies the loss: 1, or the number of ranks if the framework averages gradients over ranks.
    pub scale: f64,
}

crate::launch_args!(Weight { per_row, denominator, scale });

impl Weight {
    /// Checks that every number is in its domain and that W is a finite `f32` for every length.
    pub fn check(&self) -> Result<(), Error> {
        require::not_negative("aggregation denominator", self.denominator)?;
        require::finite("aggregation scale", self.scale)?;
        match self.per_row {
            PerRow::Length { eps } => require::not_negative("aggregation eps", eps)?,
            PerRow::Constant(c) => require::positive("aggregation horizon", c)?,
            PerRow::One | PerRow::AtLeastOne => {}
        }
        // The largest weight is that of the shortest sequence.
        let largest = self.of(1);
        let fits = largest.abs() <= f64::from(f32::MAX);
        require::scalar("aggregation weight", fits, "a weight in the range of f32", largest)
    }

    /// Whether the weight of a sequence depends on its number of live tokens.
    #[inline(always)]
    pub fn needs_length(&self) -> bool {
        matches!(self.per_row, PerRow::Length { .. } | PerRow::AtLeastOne)
    }

    /// W for a sequence with `length` live tokens; 0 if `length` is 0.
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

/// The largest number of partial counts that may be read for one number; every row reads all of them.
pub const PARTS: usize = 64;

/// The numbers of a [`Weight`] that a launch reads from memory.
///
/// Each is an array of at most [`PARTS`] partial counts, such as those of
/// [`BatchCounts`](super::BatchCounts), of all micro-batches and ranks if there are several. The
/// corresponding fields of the weight are ignored.
///
/// The bits are those of the same numbers given by value. Counts below 2⁵³ are exact.
#[derive(Clone, Copy, Debug)]
pub struct WeightFrom<'a> {
    /// Partial counts whose sum is the denominator.
    pub denominator: Option<In<'a, u64>>,
    /// Partial counts whose maximum, at least 1, is C of [`PerRow::Constant`].
    pub horizon: Option<In<'a, u64>>,
}

crate::launch_args!(WeightFrom<'_> { denominator, horizon });

impl WeightFrom<'_> {
    /// Nothing is read from memory: every number is the weight's own.
    pub const ABSENT: WeightFrom<'static> = WeightFrom { denominator: None, horizon: None };

    /// Checks that these numbers are compatible with `weight` and that the rest of it is in its domain:
    /// [`Weight::check`].
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

    /// Returns `weight` with the numbers that are in memory filled in.
    #[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
    #[inline(always)]
    pub fn fill<T: Team>(&self, team: &T, weight: Weight) -> Weight {
        let per_row = match (self.horizon, weight.per_row) {
            (Some(partials), PerRow::Constant(_)) => PerRow::Constant(largest(team, partials)),
            _ => weight.per_row,
        };
        Weight { per_row, denominator: total(team, self.denominator, weight.denominator), ..weight }
    }

    /// Returns `weight` with the numbers that are in memory filled in.
    #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
    #[inline(always)]
    pub fn fill<T: Team>(&self, _team: &T, weight: Weight) -> Weight {
        if self.denominator.is_none() && self.horizon.is_none() { weight } else { self.read(weight) }
    }

    /// On a CPU a batch passes its numbers by value, so the code that reads memory is kept out of the loops
    /// over tokens.
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

/// Checks that an array of partial counts has 1 to [`PARTS`] entries.
pub fn check_partials(argument: &'static str, partials: In<'_, u64>) -> Result<(), Error> {
    if partials.is_empty() {
        return Err(Error::Empty { argument, expected: "at least one partial count" });
    }
    if partials.len() > PARTS {
        return Err(Error::Length {
            argument,
            expected: PARTS,
            because: "the maximum number of partial counts",
            got: partials.len(),
        });
    }
    Ok(())
}

/// Sum of the partial counts, or `absent` if there are none.
#[inline(always)]
pub fn total<T: Team>(team: &T, partials: Option<In<'_, u64>>, absent: f64) -> f64 {
    partials.map_or(absent, |partials| sum(team, partials))
}

// On a GPU the lanes fold the partials: if each lane looped over all of them, registers would stay live
// through the loop over rows (measured: nine losses lose a step of occupancy on sm_90). On a CPU the loop is
// out of line, or each of a gate's loops would contain a copy. Both are exact, so they agree.

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
        // In halves of 16 bits, which are exact in binary32; a length is below 2^32.
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
