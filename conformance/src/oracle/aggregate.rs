//! The five aggregations, docs/maths/aggregation.md.

/// How per-token losses are reduced to one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Σ l / M.
    TokenMean,
    /// Σ l.
    TokenSum,
    /// (1/N₊) Σ_i Σ_t l.
    SeqMeanTokenSum,
    /// (1/N₊) Σ_i Σ_t l / (L_i + 1e-8), or / max(L_i, 1).
    SeqMeanTokenMean { at_least_one: bool },
    /// (1/(N₊ C)) Σ l.
    SeqMeanTokenSumNorm { horizon: f64 },
}

/// M and N₊ of the whole batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Denominators {
    /// M: live tokens.
    pub tokens: f64,
    /// N₊: number of sequences, with or without the empty ones.
    pub sequences: f64,
}

impl Mode {
    /// W of a live token in a sequence with `length` live tokens; 0 if there is nothing to divide by.
    pub fn weight(self, length: usize, whole: Denominators) -> f64 {
        let length = length as f64;
        let divisor = match self {
            Mode::TokenMean => whole.tokens,
            Mode::TokenSum => 1.0,
            Mode::SeqMeanTokenSum => whole.sequences,
            Mode::SeqMeanTokenMean { at_least_one: true } => whole.sequences * length.max(1.0),
            Mode::SeqMeanTokenMean { at_least_one: false } => whole.sequences * (length + 1e-8),
            Mode::SeqMeanTokenSumNorm { horizon } => whole.sequences * horizon,
        };
        if divisor == 0.0 { 0.0 } else { 1.0 / divisor }
    }
}

/// Masked sum, sum of magnitudes and count of live elements of a row.
pub fn row(values: &[f64], live: &[bool]) -> (f64, f64, usize) {
    let terms = || values.iter().zip(live).filter(|(_, live)| **live).map(|(x, _)| *x);
    (exact_sum(terms()), terms().map(f64::abs).sum(), terms().count())
}

/// A sum with collected rounding errors (Neumaier), so that the oracle's own error does not show at a million
/// terms.
pub fn exact_sum(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for x in terms {
        let next = sum + x;
        lost += if sum.abs() >= x.abs() { (sum - next) + x } else { (x - next) + sum };
        sum = next;
    }
    sum + lost
}
