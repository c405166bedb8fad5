//! Proximal interpolation, docs/maths/correction.md.

/// The proximal policy's distance from the sampler's, 0 to 1.
pub fn alpha(version: i64, current: i64) -> f64 {
    if version < 0 || current <= version {
        return 0.0;
    }
    ((current - 1 - version) as f64 / (current - version) as f64).clamp(0.0, 1.0)
}

/// Interpolates between log-probabilities.
pub fn loglinear(behave: f64, logp: f64, alpha: f64) -> f64 {
    behave + alpha * (logp - behave)
}

/// Interpolates between probabilities.
pub fn linear(behave: f64, logp: f64, alpha: f64) -> f64 {
    ((1.0 - alpha) * behave.exp() + alpha * logp.exp() + 1e-10).ln().min(0.0)
}
