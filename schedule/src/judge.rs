//! Rewards for judges and by judges: MarsRL's roles, FAPO's detector, BRPO's reference. Plain functions that
//! return one number per output.

use crate::random::{Purpose, Stream};

/// Reward of MarsRL's solver and correctors (2511.11373; docs/maths/advantages.md): 1 if the final answer
/// equals the reference, else 0.
pub fn solver(correct: bool) -> f32 {
    if correct { 1.0 } else { 0.0 }
}

/// Reward of MarsRL's verifiers: 1 if the verdict about the judged solution is true, else 0. An unreadable
/// verdict (`None`) counts as wrong (our choice).
pub fn verifier(says_correct: Option<bool>, is_correct: bool) -> f32 {
    solver(says_correct == Some(is_correct))
}

/// Draws the answer of group `group` with which BRPO (2506.00103, secondary; docs/maths/rewards.md) compares
/// the others: uniform in 0..`members`, or 0 if `members` is 0. Store it with the group's rewards:
/// [`Shaping::Preferred`](lockstep_core::reward::Shaping::Preferred) reads it.
///
/// ```
/// use lockstep_schedule::judge::brpo_reference;
/// assert!(
///     brpo_reference(8, 1234, 0, 5) < 8
///         && brpo_reference(8, 1234, 0, 5) == brpo_reference(8, 1234, 0, 5)
/// );
/// ```
pub fn brpo_reference(members: u32, seed: u64, step: u32, group: u32) -> u32 {
    match members {
        0 => 0,
        _ => Stream::new(seed, Purpose::BRPO, step, group).below(members.into()) as u32,
    }
}

/// A verdict of FAPO's generative judge (2510.22543; docs/maths/rewards.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No erroneous step (−1 in the released code).
    Clean,
    /// Index of the first erroneous step, from 0.
    FlawedAt(u32),
    /// The verdict is unreadable. For the policy's reward this counts as not flawed.
    Unreadable,
}

/// Reward that trains FAPO's judge. For a flawed item (`first_error` is given) of `steps` steps: 1 − |t̂ −
/// t*|/steps if the judge names a step, else −1. For a clean item: 1 if it is called clean, else −1. An
/// unreadable verdict gets −1.
pub fn step_reward(said: Verdict, first_error: Option<u32>, steps: u32) -> f64 {
    match (said, first_error) {
        (Verdict::FlawedAt(step), Some(truth)) => {
            1.0 - f64::from(step.abs_diff(truth)) / f64::from(if steps == 0 { 1 } else { steps })
        }
        (Verdict::Clean, None) => 1.0,
        _ => -1.0,
    }
}
