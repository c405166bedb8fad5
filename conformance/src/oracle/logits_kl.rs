//! KL divergence of two distributions over a vocabulary.

use super::statistics::Softmax;

/// Σ a (ln a − ln b).
pub fn divergence(a: &Softmax, b: &Softmax) -> f64 {
    let term = |v: usize| if a.p[v] == 0.0 { 0.0 } else { a.p[v] * (a.logp[v] - b.logp[v]) };
    (0..a.p.len()).map(term).sum()
}

/// d KL(policy ‖ reference) / d(z/T).
pub fn slope(policy: &Softmax, reference: &Softmax) -> Vec<f64> {
    let kl = divergence(policy, reference);
    let at = |v: usize| match policy.p[v] {
        0.0 => 0.0,
        p => p * (policy.logp[v] - reference.logp[v] - kl),
    };
    (0..policy.p.len()).map(at).collect()
}

/// d KL(reference ‖ policy) / d(z/T).
pub fn reverse_slope(policy: &Softmax, reference: &Softmax) -> Vec<f64> {
    policy.p.iter().zip(&reference.p).map(|(p, q)| p - q).collect()
}
