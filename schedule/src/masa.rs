//! MASA: rewards for a model's predictions about its own rollouts.
//!
//! **Formula** (2510.03259, official code; docs/maths/schedules.md); the model predicts notions, length, and
//! passes of 8:
//!
//! ```text
//! notion     = share of the predicted notions (not in the problem's text) that occur in more right
//!              than wrong responses
//! length     = 1 if min < predicted < max over the lengths of the right responses (strict), else 0
//! difficulty = 0.01^|passes/8 − accuracy|
//! reward     = mean of the three
//! filters (our reading):
//!     skip a prompt whose predicted passes are 0 or 8, once the predictor is reliable
//!     cut rollouts at ⌈predicted length · margin⌉
//! ```
//!
//! **Special cases**: the notion score is 0 if no notion is left. The length score is 0 without a right
//! response, or if all right responses have the same length.

use crate::numbers;
use lockstep_core::Error;
use lockstep_core::num;
use lockstep_core::require;

/// Number of attempts to which a pass prediction refers.
pub const ATTEMPTS: u32 = 8;

/// Computes the notion score. For each predicted notion: the numbers of right and wrong responses in which it
/// occurs, and whether the problem's text contains it.
///
/// Errors: lengths that disagree.
pub fn notion_score(right: &[u32], wrong: &[u32], in_problem: &[bool]) -> Result<f64, Error> {
    require::length("wrong", right.len(), "one per notion", wrong.len())?;
    require::length("in_problem", right.len(), "one per notion", in_problem.len())?;
    let (mut good, mut all) = (0.0, 0.0);
    for i in (0..right.len()).filter(|i| !in_problem[*i]) {
        all += 1.0;
        good += f64::from(u8::from(right[i] > wrong[i]));
    }
    Ok(if all > 0.0 { good / all } else { 0.0 })
}

/// Computes the length score: 1 if `predicted` is strictly between the shortest and the longest right
/// response, else 0.
pub fn length_score(predicted: u32, right_lengths: &[u32]) -> f64 {
    let below = right_lengths.iter().any(|l| *l < predicted);
    let above = right_lengths.iter().any(|l| *l > predicted);
    f64::from(u8::from(below && above))
}

/// Computes the difficulty score, 0.01^|passes/8 − accuracy|. Errors: more than 8 predicted passes; an
/// accuracy outside 0..=1.
pub fn difficulty_score(passes: u32, accuracy: f64) -> Result<f64, Error> {
    require::scalar("passes", passes <= ATTEMPTS, "0 to 8", passes)?;
    require::unit("accuracy", accuracy)?;
    let off = (f64::from(passes) / f64::from(ATTEMPTS) - accuracy).abs();
    Ok(num::exp64(off * num::ln64(0.01)))
}

/// Computes the reward, the mean of the three scores.
pub fn reward(notion: f64, length: f64, difficulty: f64) -> f64 {
    (notion + length + difficulty) / 3.0
}

/// Whether a prompt is skipped before sampling: its predicted passes are 0 or 8 and the predictor is
/// reliable.
pub fn skips(passes: u32, reliable: bool) -> bool {
    reliable && (passes == 0 || passes >= ATTEMPTS)
}

/// Length at which a rollout is cut, ⌈predicted · margin⌉. Errors: a margin that is not above 0 or not
/// finite.
pub fn cut(predicted: u32, margin: f64) -> Result<u32, Error> {
    require::positive("margin", margin)?;
    Ok(numbers::ceil(f64::from(predicted) * margin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_and_their_edges() {
        assert_eq!(notion_score(&[3, 1, 5, 2], &[1, 1, 0, 4], &[false, false, true, false]), Ok(1.0 / 3.0));
        assert_eq!(notion_score(&[3], &[0], &[true]), Ok(0.0));
        assert_eq!(notion_score(&[], &[], &[]), Ok(0.0));
        assert_eq!([9, 10, 15, 20, 21].map(|p| length_score(p, &[10, 20, 12])), [0.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!((length_score(5, &[]), length_score(5, &[5])), (0.0, 0.0));
        for (passes, accuracy, expected) in
            [(4, 0.5, 1.0), (8, 0.0, 0.01), (4, 0.25, 0.316_227_766_016_837_94)]
        {
            assert!((difficulty_score(passes, accuracy).unwrap() - expected).abs() < 1e-15);
        }
        assert!((reward(1.0, 0.0, 0.5) - 0.5).abs() < 1e-15);
        assert!(matches!(difficulty_score(9, 0.5), Err(Error::Value { argument: "passes", .. })));
    }

    #[test]
    fn filters() {
        assert_eq!([0, 1, 7, 8].map(|p| skips(p, true)), [true, false, false, true]);
        assert!(!skips(0, false));
        assert_eq!(cut(100, 1.25), Ok(125));
        assert_eq!(cut(101, 1.25), Ok(127));
        assert!(matches!(cut(1, 0.0), Err(Error::Value { argument: "margin", .. })));
    }
}
