//! CISPO, docs/maths/gates.md.

/// Absolute bounds of the weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cispo {
    pub low: f64,
    pub high: f64,
}

impl Cispo {
    /// clip(r, low, high).
    pub fn weight(&self, r: f64) -> f64 {
        r.max(self.low).min(self.high)
    }
}
