//! A mixture-of-experts router, docs/maths/routing.md, in binary64.

/// The activation that gates and selections are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// e^s over a sum.
    Softmax,
    /// σ(s).
    Sigmoid,
    /// √ln(1 + e^s).
    SqrtSoftplus,
}

/// The rule of a router.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The activation of the scores.
    pub of: Of,
    /// Whether there is a bias or groups: experts are compared by the activation, not by the score.
    pub by_activation: bool,
    /// Whether the denominator is over the chosen experts.
    pub over_chosen: bool,
    /// Scaling factor of the gates.
    pub scale: f64,
    pub top_k: usize,
    /// Number of groups.
    pub groups: usize,
    /// Number of groups that experts are taken from.
    pub top_groups: usize,
}

/// The experts that a router chooses, and the smallest difference between two candidates in a decision (a
/// tie, 0, does not count).
pub fn natural(scores: &[f64], bias: &[f64], rule: &Rule) -> (Vec<usize>, f64) {
    let mut gap = f64::INFINITY;
    let relative = rule.of == Of::Softmax && bias.iter().all(|b| *b == 0.0);
    let mut largest = |keys: &[f64], count: usize, from: usize| -> Vec<usize> {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        // −0 equals +0, and the sort is stable, so equal keys keep their order.
        order.sort_by(|a, b| keys[*b].partial_cmp(&keys[*a]).unwrap_or(std::cmp::Ordering::Equal));
        for pair in order.windows(2).take(count).skip(from) {
            // Without a bias, probabilities are floating-point numbers: closeness is relative.
            let unit = if relative { keys[pair[0]] } else { 1.0 };
            let difference = (keys[pair[0]] - keys[pair[1]]) / unit;
            if difference > 0.0 {
                gap = gap.min(difference);
            }
        }
        order.truncate(count);
        order
    };
    if !rule.by_activation {
        return (largest(scores, rule.top_k, 0), f64::INFINITY);
    }
    let mut keys = keys(scores, bias, rule);
    if rule.groups > 1 {
        let size = keys.len() / rule.groups;
        let sums = group_scores(scores, bias, rule);
        // The order in which groups are taken does not matter.
        let taken = largest(&sums, rule.top_groups, rule.top_groups - 1);
        for (e, key) in keys.iter_mut().enumerate() {
            if !taken.contains(&(e / size)) {
                *key = f64::NEG_INFINITY;
            }
        }
    }
    (largest(&keys, rule.top_k, 0), gap)
}

/// The keys that experts are compared by; an exponential below e⁻⁸⁷ is 0, as in core.
fn keys(scores: &[f64], bias: &[f64], rule: &Rule) -> Vec<f64> {
    let largest = scores.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
    let cut = |(p, s): (f64, &f64)| if s - largest < -87.0 { 0.0 } else { p };
    let probabilities: Vec<f64> = softmax(scores).into_iter().zip(scores).map(cut).collect();
    let own =
        |e: usize| if rule.of == Of::Softmax { probabilities[e] } else { activation(scores[e], rule.of) };
    bias.iter().enumerate().map(|(e, b)| own(e) + b).collect()
}

fn softmax(scores: &[f64]) -> Vec<f64> {
    let largest = scores.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
    let total: f64 = scores.iter().map(|s| (s - largest).exp()).sum();
    scores.iter().map(|s| (s - largest).exp() / total).collect()
}

/// σ(s) or √ln(1 + e^s).
pub fn activation(s: f64, of: Of) -> f64 {
    match of {
        Of::SqrtSoftplus => (s.max(0.0) + (-s.abs()).exp().ln_1p()).sqrt(),
        Of::Softmax | Of::Sigmoid => 1.0 / (1.0 + (-s).exp()),
    }
}

/// The scores that groups are compared by: the sum of a group's two largest keys; for a softmax, the largest.
pub fn group_scores(scores: &[f64], bias: &[f64], rule: &Rule) -> Vec<f64> {
    let members = if rule.of == Of::Softmax { 1 } else { 2 };
    let best = |group: &[f64]| {
        let mut sorted = group.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        sorted.iter().take(members).sum()
    };
    keys(scores, bias, rule).chunks(scores.len() / rule.groups).map(best).collect()
}

/// The gates of the `chosen` experts.
pub fn gates(scores: &[f64], chosen: &[usize], rule: &Rule) -> Vec<f64> {
    if rule.of != Of::Softmax {
        let p = |e: usize| activation(scores[e], rule.of);
        let total = if rule.over_chosen { chosen.iter().map(|e| p(*e)).sum::<f64>() + 1e-20 } else { 1.0 };
        return chosen.iter().map(|e| rule.scale * p(*e) / total).collect();
    }
    let all: Vec<usize> = (0..scores.len()).collect();
    let over = if rule.over_chosen { chosen } else { &all };
    let largest = over.iter().fold(f64::NEG_INFINITY, |m, e| m.max(scores[*e]));
    let total: f64 = over.iter().map(|e| (scores[*e] - largest).exp()).sum();
    chosen.iter().map(|e| rule.scale * (scores[*e] - largest).exp() / total).collect()
}
