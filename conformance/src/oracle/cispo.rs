//! CISPO, docs/maths/gates.md.

/// Absolute bounds of the weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cispo {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Cispo {
    /// clip(r, low, high).
    pub fn weight(&self, r: f64) -> f64 {
        r.max(self.low).min(self.high)
    }
}
