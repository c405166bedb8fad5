//! GAE, docs/maths/advantages.md: verl's loop with its carry (nv, acc), and TD(λ) by its own recursion.

/// A token's advantage and return, and the sum of the magnitudes that entered them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Credit {
    /// A; for a masked token, that of the next live token.
    pub advantage: f64,
    /// A + V; for a masked token, that of the next live token.
    pub returns: f64,
    /// Sum of magnitudes, for error bounds.
    pub magnitude: f64,
}

/// Runs the loop from the last token to the first.
pub fn row(
    rewards: &[f64],
    values: &[f64],
    live: &[bool],
    behind: f64,
    gamma: f64,
    lambda: f64,
) -> Vec<Credit> {
    let mut out = vec![Credit::default(); rewards.len()];
    let (mut nv, mut acc, mut magnitude) = (behind, 0.0, behind.abs());
    for t in (0..rewards.len()).rev() {
        if live[t] {
            let delta = rewards[t] + gamma * nv - values[t];
            let terms = rewards[t].abs() + gamma * nv.abs() + values[t].abs();
            (nv, acc, magnitude) =
                (values[t], delta + gamma * lambda * acc, terms + gamma * lambda * magnitude);
        }
        out[t] = Credit { advantage: acc, returns: acc + nv, magnitude };
    }
    out
}

/// λ-returns without a mask, by their own recursion.
pub fn td_lambda(rewards: &[f64], values: &[f64], behind: f64, gamma: f64, lambda: f64) -> Vec<f64> {
    let mut returns = vec![0.0; rewards.len()];
    let (mut next_value, mut next_return) = (behind, behind);
    for t in (0..rewards.len()).rev() {
        returns[t] = rewards[t] + gamma * ((1.0 - lambda) * next_value + lambda * next_return);
        (next_value, next_return) = (values[t], returns[t]);
    }
    returns
}

/// VAPO's λ.
pub fn length_adaptive_lambda(alpha: f64, length: usize) -> f64 {
    (1.0 - 1.0 / (alpha * length as f64)).clamp(0.0, 1.0)
}
