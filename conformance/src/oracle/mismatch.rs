//! Mismatch between trainer and sampler over a sequence's live log-ratios d = logp_old − logp_rollout:
//! docs/maths/routing.md, docs/maths/correction.md.

/// Thresholds τ for extreme tokens.
pub const TAU: [f64; 4] = [1.25, 2.0, 5.0, 10.0];

/// e^x − 1 − x.
pub fn k3(x: f64) -> f64 {
    if x.abs() < 1e-3 { x * x / 2.0 + x * x * x / 6.0 + x.powi(4) / 24.0 } else { x.exp_m1() - x }
}

/// Whether a token is beyond τ: max(ρ, 1/ρ) > τ.
pub fn extreme(d: f64, tau: f64) -> bool {
    d.exp().max((-d).exp()) > tau
}

/// ρ_s − 1 of a sequence.
pub fn sequence(d: &[f64], bound: f64) -> f64 {
    d.iter().sum::<f64>().clamp(-bound, bound).exp_m1()
}

/// exp(mean logp_rollout − mean logp_old) − 1.
pub fn perplexity(d: &[f64]) -> f64 {
    (-d.iter().sum::<f64>() / d.len() as f64).exp_m1()
}
