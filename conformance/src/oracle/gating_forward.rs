//! A mixture-of-experts router, maths.md §3.2, in binary64.

/// What the oracle needs of a router.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Scores are sigmoids, otherwise a softmax.
    pub sigmoid: bool,
    /// The denominator is over the chosen experts.
    pub over_chosen: bool,
    /// Factor of the gates.
    pub scale: f64,
    /// K.
    pub top_k: usize,
    /// Groups.
    pub groups: usize,
    /// Groups that experts are taken from.
    pub top_groups: usize,
}

/// The experts that a router chooses, and by how much the closest two candidates of a decision differ (0 = a tie, not counted).
pub fn natural(scores: &[f64], bias: &[f64], rule: &Rule) -> (Vec<usize>, f64) {
    let mut gap = f64::INFINITY;
    let mut largest = |keys: &[f64], count: usize, from: usize| -> Vec<usize> {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        // −0 equals +0; the sort is stable, so that equal keys stay in order.
        order.sort_by(|a, b| keys[*b].partial_cmp(&keys[*a]).unwrap_or(std::cmp::Ordering::Equal));
        for pair in order.windows(2).take(count).skip(from) {
            let difference = keys[pair[0]] - keys[pair[1]];
            if difference > 0.0 {
                gap = gap.min(difference);
            }
        }
        order.truncate(count);
        order
    };
    if !rule.sigmoid {
        return (largest(scores, rule.top_k, 0), f64::INFINITY);
    }
    let mut keys: Vec<f64> = scores.iter().zip(bias).map(|(s, b)| 1.0 / (1.0 + (-s).exp()) + b).collect();
    if rule.groups > 1 {
        let size = keys.len() / rule.groups;
        let of_group = |group: &[f64]| {
            let mut sorted = group.to_vec();
            sorted.sort_by(|a, b| b.total_cmp(a));
            sorted.iter().take(2).sum::<f64>()
        };
        let sums: Vec<f64> = keys.chunks(size).map(of_group).collect();
        // In which order groups are taken does not matter.
        let taken = largest(&sums, rule.top_groups, rule.top_groups - 1);
        for (e, key) in keys.iter_mut().enumerate() {
            if !taken.contains(&(e / size)) {
                *key = f64::NEG_INFINITY;
            }
        }
    }
    (largest(&keys, rule.top_k, 0), gap)
}

/// The sums of each group's two largest σ(s)+b.
pub fn group_scores(scores: &[f64], bias: &[f64], groups: usize) -> Vec<f64> {
    let keys: Vec<f64> = scores.iter().zip(bias).map(|(s, b)| 1.0 / (1.0 + (-s).exp()) + b).collect();
    let two = |group: &[f64]| {
        let mut sorted = group.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        sorted.iter().take(2).sum()
    };
    keys.chunks(scores.len() / groups).map(two).collect()
}

/// The gates of `chosen`.
pub fn gates(scores: &[f64], chosen: &[usize], rule: &Rule) -> Vec<f64> {
    if rule.sigmoid {
        let p = |e: usize| 1.0 / (1.0 + (-scores[e]).exp());
        let total = if rule.over_chosen { chosen.iter().map(|e| p(*e)).sum::<f64>() + 1e-20 } else { 1.0 };
        return chosen.iter().map(|e| rule.scale * p(*e) / total).collect();
    }
    let all: Vec<usize> = (0..scores.len()).collect();
    let over = if rule.over_chosen { chosen } else { &all };
    let largest = over.iter().fold(f64::NEG_INFINITY, |m, e| m.max(scores[*e]));
    let total: f64 = over.iter().map(|e| (scores[*e] - largest).exp()).sum();
    chosen.iter().map(|e| rule.scale * (scores[*e] - largest).exp() / total).collect()
}
