//! Whitening, docs/maths/statistics.md, docs/maths/advantages.md.

/// Where eps is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divisor {
    /// sqrt(var + eps).
    Inside,
    /// sqrt(max(var, eps)).
    Floor,
    /// sqrt(var) + eps.
    Outside,
    /// 1.
    One,
}

/// The divisor for a variance.
pub fn divisor(kind: Divisor, variance: f64, eps: f64) -> f64 {
    match kind {
        Divisor::Inside => (variance + eps).sqrt(),
        Divisor::Floor => variance.max(eps).sqrt(),
        Divisor::Outside => variance.sqrt() + eps,
        Divisor::One => 1.0,
    }
}

/// (x − mean) / divisor; 0 for a batch with fewer than two values or with only one distinct value.
pub fn whiten(x: f64, mean: f64, divisor: f64, varied: bool) -> f64 {
    if varied { (x - mean) / divisor } else { 0.0 }
}
