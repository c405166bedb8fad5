//! UI-S1's step returns, docs/maths/rewards.md: the paper's as a sum, the code's as a loop.

/// R_t = Σ_{k=t}^{t_end} γ^{k−t} r_k, where t_end is the first step from t on that does not match, or the
/// last step.
pub fn paper(rewards: &[f64], ok: &[bool], gamma: f64) -> Vec<f64> {
    let n = rewards.len();
    let sum = |t: usize| {
        let end = (t..n).find(|k| !ok[*k]).unwrap_or(n - 1);
        (t..=end).map(|k| gamma.powi((k - t) as i32) * rewards[k]).sum()
    };
    (0..n).map(sum).collect()
}

/// Runs backwards: a step that does not match keeps its reward, and the value it passes on is 0.
pub fn code(rewards: &[f64], ok: &[bool], gamma: f64) -> Vec<f64> {
    let mut returns = rewards.to_vec();
    let mut handed = 0.0;
    for t in (0..rewards.len()).rev() {
        if ok[t] {
            returns[t] += gamma * handed;
            handed = returns[t];
        } else {
            handed = 0.0;
        }
    }
    returns
}
