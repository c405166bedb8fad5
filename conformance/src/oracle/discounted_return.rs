//! Discounted returns, docs/maths/advantages.md: masked tokens are skipped, and the running value passes
//! through them.

/// G_t of each token, with the discounted sum of magnitudes for error bounds.
pub fn row(rewards: &[f64], live: &[bool], gamma: f64) -> Vec<(f64, f64)> {
    let mut out = vec![(0.0, 0.0); rewards.len()];
    let mut running = (0.0, 0.0);
    for t in (0..rewards.len()).rev() {
        if live[t] {
            running = (rewards[t] + gamma * running.0, rewards[t].abs() + gamma * running.1);
        }
        out[t] = running;
    }
    out
}
