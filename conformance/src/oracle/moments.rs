//! Moments of values and of a batch of rows, docs/maths/statistics.md.

use super::aggregate::exact_sum;

/// Moments of a set of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    pub count: f64,
    pub mean: f64,
    /// Σ (x − mean)².
    pub squares: f64,
    pub low: f64,
    pub high: f64,
    /// Number of nonzero values.
    pub nonzero: f64,
    /// Mean magnitude, for error bounds.
    pub magnitude: f64,
}

impl Moments {
    /// The moments of these values.
    pub fn of(x: &[f64]) -> Moments {
        let n = x.len() as f64;
        let constant = x.iter().all(|y| *y == x[0]);
        let mean = match (x.is_empty(), constant) {
            (true, _) => 0.0,
            (_, true) => x[0],
            _ => exact_sum(x.iter().copied()) / n,
        };
        Moments {
            count: n,
            mean,
            squares: exact_sum(x.iter().map(|y| (y - mean).powi(2))),
            low: x.iter().copied().fold(f64::INFINITY, f64::min),
            high: x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            nonzero: x.iter().filter(|y| **y != 0.0).count() as f64,
            magnitude: x.iter().map(|y| y.abs()).sum::<f64>() / n.max(1.0),
        }
    }

    /// The variance with this ddof; 0 if all values are equal or there are too few.
    pub fn variance(&self, ddof: f64) -> f64 {
        if self.low == self.high || self.count <= ddof { 0.0 } else { self.squares / (self.count - ddof) }
    }
}
