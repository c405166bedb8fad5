//! Combining several rewards into one, docs/maths/advantages.md.

/// Σ w x over the components that are not NaN, with the sum of magnitudes; NaN if there are none.
pub fn sum(components: &[f64], weights: &[f64]) -> (f64, f64) {
    let there = || components.iter().zip(weights).filter(|(x, _)| !x.is_nan());
    if there().count() == 0 {
        return (f64::NAN, 0.0);
    }
    (there().map(|(x, w)| x * w).sum(), there().map(|(x, w)| (x * w).abs()).sum())
}
