//! MSSR's entropy shaping, maths.md §6.11.

/// −p log p of the sampled token.
pub fn sampled(logp: f64) -> f64 {
    -logp.exp() * logp
}

/// ψ.
pub fn bonus(advantage: f64, entropy: f64, alpha: f64, kappa: f64) -> f64 {
    f64::min(alpha * entropy, advantage.abs() / kappa)
}
