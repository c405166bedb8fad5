//! XRPO-style sharpening (our reading) and ACE, docs/maths/rewards.md.

/// A' of a correct response with log-probability `x` per token, relative to the group's `mean`.
pub fn novelty(a: f64, x: f64, mean: f64, lambda: f64, kappa: f64) -> f64 {
    let eta = (x - mean).exp();
    a + f64::min(f64::max(lambda * (1.0 - eta), 0.0), kappa * a.max(0.0))
}

/// The factor applied to a negative advantage.
pub fn factor(x: f64, alpha: f64, cap: f64, relu: bool) -> f64 {
    let softplus = x.max(0.0) + (-x.abs()).exp().ln_1p();
    (1.0 + alpha * if relu { x.max(0.0) } else { softplus }).min(cap)
}
