//! MSSR's entropy shaping, docs/maths/rewards.md.

/// −p log p of the sampled token.
pub fn sampled(logp: f64) -> f64 {
    -logp.exp() * logp
}

/// ψ.
pub fn bonus(advantage: f64, entropy: f64, alpha: f64, kappa: f64) -> f64 {
    f64::min(alpha * entropy, advantage.abs() / kappa)
}
