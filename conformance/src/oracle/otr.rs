//! One-token rollout in expectation, docs/maths/correction.md.

use super::statistics::Softmax;

/// L_t.
pub fn loss(policy: &Softmax, candidates: &Softmax, label: usize, beta: f64) -> f64 {
    let reward = |a: usize| if a == label { 1.0 } else { beta };
    let term = |a: usize| match candidates.p[a] {
        0.0 => 0.0,
        p => p * reward(a) * policy.logp[a],
    };
    -(0..policy.p.len()).map(term).sum::<f64>()
}

/// dL_t/dz = −[q − p Σ q].
pub fn gradient(policy: &Softmax, candidates: &Softmax, label: usize, beta: f64) -> Vec<f64> {
    let (miss, missed) = (policy.miss(label), candidates.miss(label));
    let (hit, p) = (candidates.p[label], policy.p[label]);
    let rewards = hit + beta * missed;
    let at = |v: usize| match v == label {
        // −[q_x − p_x (q_x + β miss')] with p_x = 1 − miss, which avoids subtracting numbers near 1.
        true => -(hit * miss - p * beta * missed),
        false => -(beta * candidates.p[v] - policy.p[v] * rewards),
    };
    (0..policy.p.len()).map(at).collect()
}
