//! Rewards of those who judge: MarsRL's roles, FAPO's detector, BRPO's reference. One number per output,
//! plain functions.

use crate::random::{Purpose, Stream};

/// MarsRL's solver and correctors (2511.11373; docs/maths/advantages.md): 1 if the final answer equals the
/// reference, else 0.
pub fn solver(correct: bool) -> f32 {
    if correct { 1.0 } else { 0.0 }
}

/// MarsRL's verifiers: 1 if the verdict is the truth about the solution that was judged, else 0. A verdict
/// that cannot be read (`None`) is wrong (ours).
pub fn verifier(says_correct: Option<bool>, is_correct: bool) -> f32 {
    solver(says_correct == Some(is_correct))
}

/// The answer of group `group` that BRPO (2506.00103, recalled; docs/maths/rewards.md) compares the others
/// with: drawn uniformly among `members`, 0 of none. Keep it with the group's rewards:
/// [`Shaping::Preferred`](super::Shaping::Preferred) wants it.
///
/// ```
/// use lockstep_core::reward::judge::brpo_reference;
/// assert!(brpo_reference(8, 1234, 0, 5) < 8 && brpo_reference(8, 1234, 0, 5) == brpo_reference(8, 1234, 0, 5));
/// ```
pub fn brpo_reference(members: u32, seed: u64, step: u32, group: u32) -> u32 {
    match members {
        0 => 0,
        _ => Stream::new(seed, Purpose::BRPO, step, group).below(members.into()) as u32,
    }
}

/// What FAPO's generative judge said (2510.22543; docs/maths/rewards.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No erroneous step (−1 in the released code).
    Clean,
    /// The first erroneous step, counted from 0.
    FlawedAt(u32),
    /// It cannot be read. For the policy's reward: not flawed.
    Unreadable,
}

/// The reward that trains FAPO's judge: for a flawed item (`first_error` is known) of `steps` steps 1 − |t̂ −
/// t*|/steps where a step is named, else −1; for a clean item 1 where it is called clean, else −1; −1 for
/// what cannot be read.
pub fn step_reward(said: Verdict, first_error: Option<u32>, steps: u32) -> f64 {
    match (said, first_error) {
        (Verdict::FlawedAt(step), Some(truth)) => {
            1.0 - f64::from(step.abs_diff(truth)) / f64::from(if steps == 0 { 1 } else { steps })
        }
        (Verdict::Clean, None) => 1.0,
        _ => -1.0,
    }
}
