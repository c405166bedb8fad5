//! The scalars of a batch, from a policy loss's outputs for each sequence.

use super::fold::total;

/// A policy loss's outputs for S sequences.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Shares of the loss, `[S]`.
    pub loss: &'a [f64],
    /// Sums, `[K][S]`.
    pub sums: &'a [f64],
    /// Maxima, `[E][S]`.
    pub maxima: &'a [f32],
    /// Live tokens, `[S]`.
    pub tokens: &'a [u32],
    /// Alarms, `[S]`.
    pub alarm: &'a [u32],
}

impl Rows<'_> {
    /// Live tokens, nonempty sequences, all sequences, worst alarm, loss, sums, maxima; each with the
    /// magnitude that its error is measured against.
    pub fn totals(&self) -> Vec<(f64, f64)> {
        let sequences = self.tokens.len();
        let exact = |x: f64| (x, 0.0);
        let mut totals = vec![
            exact(self.tokens.iter().map(|n| f64::from(*n)).sum()),
            exact(self.tokens.iter().filter(|n| **n != 0).count() as f64),
            exact(sequences as f64),
            exact(self.alarm.iter().copied().max().unwrap_or(0).into()),
            total(self.loss),
        ];
        totals.extend(self.sums.chunks(sequences).map(total));
        let largest = |row: &[f32]| row.iter().copied().fold(f64::NEG_INFINITY, |a, b| a.max(b.into()));
        totals.extend(self.maxima.chunks(sequences).map(|row| exact(largest(row))));
        totals
    }
}
