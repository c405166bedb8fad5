//! Effective sample size, docs/maths/correction.md.

use super::aggregate::exact_sum;

/// (Σ w)² / (Σ w² + eps).
pub fn ess(w: &[f64], eps: f64) -> f64 {
    let (total, squares): (f64, f64) = (exact_sum(w.iter().copied()), exact_sum(w.iter().map(|w| w * w)));
    if squares + eps == 0.0 { 0.0 } else { total * total / (squares + eps) }
}
