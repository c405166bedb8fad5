//! Whole-batch sums of per-row partial sums.

use super::aggregate::exact_sum;

/// The sum and the sum of magnitudes.
pub fn total(partials: &[f64]) -> (f64, f64) {
    (exact_sum(partials.iter().copied()), partials.iter().map(|x| x.abs()).sum())
}
