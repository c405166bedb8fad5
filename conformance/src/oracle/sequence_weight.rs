//! VESPO's weight, TOPR's weight, and the off-policy sequence mask: docs/maths/gates.md. A token is (d, u):
//! its log-ratio and the caller's weight.

/// φ = exp(λ + k·ln W − λ·W), or 0 if that is not a finite binary32 number; `weighted` says whether there are
/// weights.
pub fn vespo(tokens: &[(f64, f64)], k: f64, lambda: f64, weighted: bool) -> f64 {
    let low = 1e-8f64.ln();
    let u: f64 = tokens.iter().map(|(_, u)| u.ln().clamp(low, 20.0)).sum();
    let d: f64 = tokens.iter().map(|(d, _)| d.clamp(-20.0, 20.0)).sum();
    let log_w = (d + if weighted { u } else { 0.0 }).clamp(low, 20.0);
    let phi = (lambda + k * log_w - lambda * log_w.exp()).exp();
    if phi > f64::from(f32::MAX) { 0.0 } else { phi }
}

/// min(exp(Σ d), 1) for A < 0, otherwise 1.
pub fn topr(tokens: &[(f64, f64)], a: f64) -> f64 {
    let d: f64 = tokens.iter().map(|(d, _)| d).sum();
    if a < 0.0 { d.min(0.0).exp() } else { 1.0 }
}

/// 0 if A < 0 and mean(−d) > delta, otherwise 1.
pub fn off_policy_mask(tokens: &[(f64, f64)], a: f64, delta: f64) -> f64 {
    let mean = -tokens.iter().map(|(d, _)| d).sum::<f64>() / tokens.len().max(1) as f64;
    if a < 0.0 && mean > delta { 0.0 } else { 1.0 }
}
