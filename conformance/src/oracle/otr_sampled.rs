//! One-token rollout from candidates, docs/maths/correction.md.

use super::statistics::Softmax;

/// −(1/K) Σ_j R(a_j) ln π(a_j).
pub fn loss(policy: &Softmax, label: usize, candidates: &[usize], beta: f64) -> f64 {
    let reward = |a: usize| if a == label { 1.0 } else { beta };
    -candidates.iter().map(|a| reward(*a) * policy.logp[*a]).sum::<f64>() / candidates.len() as f64
}

/// −(1/K) Σ_j R(a_j) (1[v = a_j] − π(v)).
pub fn gradient(policy: &Softmax, label: usize, candidates: &[usize], beta: f64) -> Vec<f64> {
    let reward = |a: usize| if a == label { 1.0 } else { beta };
    let (mut of_others, mut own) = (vec![0.0; policy.p.len()], vec![0.0; policy.p.len()]);
    let all: f64 = candidates.iter().map(|a| reward(*a)).sum();
    candidates.iter().for_each(|a| own[*a] += reward(*a));
    // The token's own share is left out where it was drawn, so that 1 − π keeps its digits.
    of_others.iter_mut().zip(&own).for_each(|(others, own)| *others = all - own);
    let k = candidates.len() as f64;
    let at = |v: usize| {
        let miss = if own[v] == 0.0 { 0.0 } else { policy.miss(v) };
        -(own[v] * miss - policy.p[v] * of_others[v]) / k
    };
    (0..policy.p.len()).map(at).collect()
}
