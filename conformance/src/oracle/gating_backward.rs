//! The gradient of a router's scores, with the Jacobian of the gates written out: dg_a/ds_b for every pair.

use super::gating_forward::{Of, Rule, activation, gates};

/// dL/ds of every expert, with the magnitude of its terms.
pub fn row(scores: &[f64], chosen: &[usize], coef: &[f64], rule: &Rule) -> Vec<(f64, f64)> {
    let g = gates(scores, chosen, rule);
    // Shares of the denominator: over the chosen experts, or over all.
    let all: Vec<usize> = (0..scores.len()).collect();
    let unscaled = Rule { scale: 1.0, ..*rule };
    let share = if rule.of != Of::Softmax {
        Vec::new()
    } else {
        gates(scores, if rule.over_chosen { chosen } else { &all }, &unscaled)
    };
    let total: f64 = chosen.iter().map(|e| activation(scores[*e], rule.of)).sum::<f64>() + 1e-20;
    let of = |b: usize| {
        let mut sum = (0.0, 0.0);
        for (a, e) in chosen.iter().enumerate() {
            let own = if *e == b { 1.0 } else { 0.0 };
            // a and d ln a / ds.
            let (p, rest) = (activation(scores[b], rule.of), relative(scores[b], rule.of));
            let inside = if chosen.contains(&b) { 1.0 } else { 0.0 };
            let (first, second) = if rule.of != Of::Softmax {
                let taken = if rule.over_chosen { inside * g[a] * p / total } else { 0.0 };
                (own * g[a] * rest, taken * rest)
            } else {
                let place = if rule.over_chosen { chosen.iter().position(|e| *e == b) } else { Some(b) };
                (own * g[a], place.map_or(0.0, |at| g[a] * share[at]))
            };
            sum.0 += coef[a] * (first - second);
            sum.1 += coef[a].abs() * (first + second);
        }
        sum
    };
    (0..scores.len()).map(of).collect()
}

/// d ln a / ds: 1 − σ(s), or σ(s) / (2 ln(1 + e^s)), which is 1/2 far below 0.
fn relative(s: f64, of: Of) -> f64 {
    match of {
        Of::SqrtSoftplus if s < -40.0 => 0.5,
        Of::SqrtSoftplus => activation(s, Of::Sigmoid) / (2.0 * activation(s, of).powi(2)),
        Of::Softmax | Of::Sigmoid => 1.0 / (1.0 + s.exp()),
    }
}
