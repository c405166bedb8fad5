//! Reward shaping, docs/maths/advantages.md, docs/maths/rewards.md.

/// DAPO's overlong shaping: the amount added to the reward.
pub fn overlong(length: f64, max_length: f64, buffer: f64, factor: f64, saturate: bool) -> f64 {
    let penalty = f64::min(-(length - (max_length - buffer)) / buffer * factor, 0.0);
    if saturate { penalty.max(-factor) } else { penalty }
}

/// PSR, NSR, W-REINFORCE.
pub fn signs(reward: f64, correct: f64, wrong: f64) -> f64 {
    match reward {
        1.0 => correct,
        0.0 => wrong,
        other => other,
    }
}

/// FAPO.
pub fn flawed(correct: bool, flawed: bool, lambda: f64) -> f64 {
    match (correct, flawed) {
        (true, false) => 1.0,
        (true, true) => 1.0 - lambda,
        (false, _) => -1.0,
    }
}

/// ConciseR stage 2 (our reading): the rewards of a group's members.
pub fn brevity(rewards: &[f64], lengths: &[f64], counted: &[bool], threshold: f64, limit: f64) -> Vec<f64> {
    let all_correct = (0..rewards.len()).all(|i| !counted[i] || rewards[i] > threshold);
    let one = |i: usize| (1.0 - lengths[i] / limit).clamp(0.0, 1.0);
    (0..rewards.len()).map(|i| if all_correct { one(i) } else { rewards[i] }).collect()
}
