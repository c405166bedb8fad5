//! Batch normalisation of importance weights: each weight divided by the mean over the batch.
//!
//! **Formula** (verl rollout_is_batch_normalize; docs/maths/correction.md): w ← w / m with
//! `m = totals[numerator] / totals[denominator]`. If m ≤ 1e-8 or the denominator is 0, w is unchanged.
//! `numerator` and `denominator` select two of the [sums](super::weights::sum): over tokens, m = Σ w / M;
//! over sequences, m is the sum of the rows' means / S₊.
//!
//! **Shapes**: `weights`, `normalized` `[N]`; `totals` `[SUMS]`, as `fold_rows` left it on the device, so
//! that the host does not wait.
//!
//! **Special cases**: masked tokens write 0.
//!
//! **Accuracy**: binary64 inside, rounded once.

use crate::Error;
use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::require;
use crate::team::Team;

/// A mean of at most this leaves the weights unchanged.
pub const LEAST_MEAN: f64 = 1e-8;

crate::kernel! {
    /// The op `normalize_weights`: one normalised weight per token.
    pub struct NormalizeWeights<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Importance weights, `[N]`.
        pub weights: In<'a, f32> [tokens],
        /// Sums over the whole batch, `[SUMS]`; see [`sum`](super::weights::sum).
        pub totals: In<'a, f64>,
        /// Index in `totals` of the mean's numerator.
        pub numerator: u32,
        /// Index in `totals` of the mean's denominator.
        pub denominator: u32,
        /// Normalised weights, `[N]`.
        pub normalized: Out<'a, f32> [tokens],
    }
    unsafe "normalize_weights", over cu_seqlens (tokens, _), check |k| k.check_indices();
}

/// The divisor of the weights: numerator / denominator, or 1 if that is at most [`LEAST_MEAN`] or the
/// denominator is not positive.
#[inline(always)]
pub fn factor(numerator: f64, denominator: f64) -> f64 {
    let mean = num::div64(numerator, denominator);
    if denominator > 0.0 && mean > LEAST_MEAN { mean } else { 1.0 }
}

impl NormalizeWeights<'_> {
    fn check_indices(&self) -> Result<(), Error> {
        for (argument, which) in [("numerator", self.numerator), ("denominator", self.denominator)] {
            if which as usize >= self.totals.len() {
                return Err(require::value(argument, None, "an index into `totals`", which));
            }
        }
        Ok(())
    }
}

impl Kernel for NormalizeWeights<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (weights, mask, normalized) = (self.weights, self.loss_mask, *self.normalized);
        let mean = factor(self.totals.at(self.numerator as usize), self.totals.at(self.denominator as usize));
        team.for_each(self.cu_seqlens.span(row), move |i| {
            let y = num::canonical(num::div64(f64::from(weights.at(i)), mean) as f32);
            normalized.put(i, if mask.at(i) { y } else { 0.0 });
        });
    }
}
