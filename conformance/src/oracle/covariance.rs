//! Covariance of a token, docs/maths/gates.md.

/// (A − mean A)·(logp − mean logp).
pub fn covariance(a: f64, mean_a: f64, logp: f64, mean_logp: f64) -> f64 {
    (a - mean_a) * (logp - mean_logp)
}
