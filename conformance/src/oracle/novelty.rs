//! EVOL-RL, docs/maths/rewards.md.

/// Novelty of member i among those with a class; `class[i]` is `None` for members without one.
pub fn novelty(similarity: &[Vec<f64>], class: &[Option<u32>], i: usize, mean_weight: f64) -> f64 {
    let others: Vec<usize> = (0..class.len()).filter(|j| *j != i && class[*j].is_some()).collect();
    let peers: Vec<usize> = others.iter().copied().filter(|j| class[*j] == class[i]).collect();
    if others.is_empty() {
        return 0.0;
    }
    let mean_over = if peers.is_empty() { &others } else { &peers };
    let mean = mean_over.iter().map(|j| similarity[i][*j]).sum::<f64>() / mean_over.len() as f64;
    let max = others.iter().map(|j| similarity[i][*j]).fold(f64::NEG_INFINITY, f64::max);
    1.0 - (mean_weight * mean + (1.0 - mean_weight) * max)
}

/// Relative position of `u` among the novelties of its class, 0 to 1.
pub fn place(u: f64, class: &[f64]) -> f64 {
    let low = class.iter().copied().fold(f64::INFINITY, f64::min);
    let high = class.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match class.len() {
        1 => 1.0,
        _ if high == low => 0.5,
        _ => (u - low) / (high - low),
    }
}
