//! Effective sample size, maths.md §4.6.

/// (Σ w)² / (Σ w² + eps).
pub fn ess(w: &[f64], eps: f64) -> f64 {
    let (total, squares): (f64, f64) = (w.iter().sum(), w.iter().map(|w| w * w).sum());
    if squares + eps == 0.0 { 0.0 } else { total * total / (squares + eps) }
}
