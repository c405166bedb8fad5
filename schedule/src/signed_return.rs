//! Discounted returns of binary outcomes, weighted separately for correct and wrong answers. A host function,
//! not an op.
//!
//! **Formula** (RLVR-Decomposed 2506.01347, its code; docs/maths/advantages.md), with R the reward, given at
//! the last live token, and k the number of live tokens after t:
//!
//! ```text
//! G_t = γᵏ R
//! A_t = G_t · correct + offset    where R = 1
//!       G_t + wrong + offset      where R = 0
//!       G_t + offset              for other rewards
//! ```
//!
//! In this notation, (correct, wrong, offset) is (1, 0, 0) for PSR, (1, 0, −1) for NSR, and (0.1, −1, 0) for
//! W-REINFORCE.
//!
//! **Shapes**: one sequence at a time, one entry per token, `[L]`.
//!
//! **Special cases**: masked tokens get 0. A NaN reward ("no score") gives 0 for every token.
//!
//! **Variants**: with `stop_at_mask`, a masked token ends the return, as in the released code: live tokens
//! before the last masked gap have G = 0, but still get `wrong` and `offset`. Without it, gaps are skipped
//! undiscounted.

use lockstep_core::Error;
use lockstep_core::require;

/// Parameters of signed returns; the formula is in the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignedReturn {
    /// Discount γ per live token, 0 to 1.
    pub gamma: f64,
    /// Factor of the return where the reward is 1.
    pub correct: f64,
    /// Added where the reward is 0.
    pub wrong: f64,
    /// Added to every live token, unless the reward is NaN.
    pub offset: f64,
    /// Whether a masked token ends the return.
    pub stop_at_mask: bool,
}

impl SignedReturn {
    /// Checks the parameters.
    ///
    /// Errors: [`Error::Value`] if `gamma` is outside 0 to 1, or `correct`, `wrong` or `offset` is not
    /// finite.
    pub fn check(&self) -> Result<(), Error> {
        require::unit("gamma", self.gamma)?;
        for (argument, got) in [("correct", self.correct), ("wrong", self.wrong), ("offset", self.offset)] {
            require::finite(argument, got)?;
        }
        Ok(())
    }

    /// Writes the advantages and returns of one sequence, `[L]`.
    ///
    /// `reward` is the sequence's outcome, NaN for none; `live(t)` says whether token t is unmasked. Errors:
    /// [`Error::Length`] if the lengths differ.
    ///
    /// ```
    /// use lockstep_schedule::signed_return::SignedReturn;
    /// let rule = SignedReturn { gamma: 0.5, correct: 0.1, wrong: -1.0, offset: 0.0, stop_at_mask: false };
    /// let (mut advantage, mut returns) = ([0.0; 3], [0.0; 3]);
    /// rule.row(1.0, |t| t != 1, &mut advantage, &mut returns)?;
    /// assert_eq!((advantage, returns), ([0.05, 0.0, 0.1], [0.5, 0.0, 1.0]));
    /// # Ok::<(), lockstep_core::Error>(())
    /// ```
    pub fn row(
        &self,
        reward: f32,
        live: impl Fn(usize) -> bool,
        advantage: &mut [f32],
        returns: &mut [f32],
    ) -> Result<(), Error> {
        require::length("returns", advantage.len(), "one per advantage", returns.len())?;
        let (factor, added) = match reward {
            1.0 => (self.correct, self.offset),
            0.0 => (1.0, self.wrong + self.offset),
            _ => (1.0, self.offset),
        };
        let mut behind = None;
        for (t, (advantage, returns)) in advantage.iter_mut().zip(returns).enumerate().rev() {
            (*advantage, *returns) = (0.0, 0.0);
            if reward.is_nan() {
                continue;
            }
            if live(t) {
                let own = behind.map_or(f64::from(reward), |next: f64| self.gamma * next);
                (*advantage, *returns) = ((own * factor + added) as f32, own as f32);
                behind = Some(own);
            } else if self.stop_at_mask {
                behind = behind.map(|_| 0.0);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: SignedReturn =
        SignedReturn { gamma: 0.5, correct: 0.25, wrong: -1.0, offset: 0.0, stop_at_mask: true };
    /// A hole, and padding behind the last live token.
    const LIVE: [bool; 6] = [true, true, false, true, true, false];

    fn of(rule: SignedReturn, reward: f32) -> ([f32; 6], [f32; 6]) {
        let (mut advantage, mut returns) = ([f32::NAN; 6], [f32::NAN; 6]);
        rule.row(reward, |t| LIVE[t], &mut advantage, &mut returns).unwrap();
        (advantage, returns)
    }

    #[test]
    fn worked_with_a_hole() {
        let returns = [0.0, 0.0, 0.0, 0.5, 1.0, 0.0];
        assert_eq!(of(HALF, 1.0), ([0.0, 0.0, 0.0, 0.125, 0.25, 0.0], returns));
        assert_eq!(of(HALF, 0.0), ([-1.0, -1.0, 0.0, -1.0, -1.0, 0.0], [0.0; 6]));
        assert_eq!(of(HALF, 3.0).0, [0.0, 0.0, 0.0, 1.5, 3.0, 0.0]);
        let over = SignedReturn { stop_at_mask: false, ..HALF };
        assert_eq!(of(over, 1.0).1, [0.125, 0.25, 0.0, 0.5, 1.0, 0.0]);
        let negative = SignedReturn { correct: 1.0, wrong: 0.0, offset: -1.0, ..over };
        assert_eq!(of(negative, 1.0).0, [-0.875, -0.75, 0.0, -0.5, 0.0, 0.0]);
        assert_eq!(of(negative, 0.0).0, [-1.0, -1.0, 0.0, -1.0, -1.0, 0.0]);
    }

    #[test]
    fn no_score_is_no_advantage() {
        assert_eq!(of(HALF, f32::NAN), ([0.0; 6], [0.0; 6]));
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (rule, name) in [
            (SignedReturn { gamma: 1.5, ..HALF }, "gamma"),
            (SignedReturn { correct: f64::NAN, ..HALF }, "correct"),
            (SignedReturn { offset: f64::INFINITY, ..HALF }, "offset"),
        ] {
            assert!(matches!(rule.check(), Err(Error::Value { argument, .. }) if argument == name), "{name}");
        }
    }
}
