//! Reward shaping: the reward of a sequence as a function of its reward, its length, a flag or the rest of
//! its group.
//!
//! **Formula** (docs/maths/advantages.md and docs/maths/rewards.md), with R the reward, L the length in
//! tokens, and "correct" a reward above `threshold`:
//!
//! ```text
//! Overlong   R + min(−(L − (L_max − B))/B · factor, 0),              DAPO 2503.14476
//!            with `saturate` never less than R − factor
//! Signs      `correct` where R = 1, `wrong` where R = 0, else R      PSR, NSR 2506.01347
//! Flawed     correct: 1, or 1 − λ where the flag is set; else −1     FAPO 2510.22543
//! Brevity    clip(1 − L/L_limit, 0, 1) where all counted members     ConciseR-style, our reading
//!            of the group are correct; else R
//! Preferred  correct: 1, else −1; the group's reference 0            BRPO 2506.00103, secondary
//! ```
//!
//! **Shapes**: `rewards`, `lengths`, `flags`, `shaped` `[S]`; `reference` `[G]`, the position of a member
//! within its group; `cu_groups` `[G+1]`.
//!
//! **Special cases**: a NaN reward ("no score") or a sequence that is not `valid` gives NaN, which excludes
//! it wherever rewards are read. An infinite reward passes through `Overlong` and `Signs`. With `Overlong`,
//! length L_max − B is not penalised yet; length L_max costs `factor`.
//!
//! **Accuracy**: binary64, rounded to `f32` once.
//!
//! **Variants**: `saturate` = false is DAPO's code, where the reward keeps falling beyond L_max; true is the
//! paper. W-REINFORCE is `Signs` with correct 0.1 and wrong −1. PSR (1, 0) and NSR (0, −1) also *drop* the
//! other samples ([`Criterion::Equal`](super::Criterion::Equal)), so that denominators shrink. FAPO's λ is 1.

use crate::Error;
use crate::advantage::members::Members;
use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::require;
use crate::team::Team;

/// A shaping function; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shaping {
    /// A penalty for the last tokens before the length limit.
    Overlong {
        /// L_max, in tokens.
        max_length: u32,
        /// B, in tokens; at least 1.
        buffer: u32,
        /// Penalty at L_max.
        factor: f64,
        /// Whether the penalty is at most `factor` (the paper); if false it keeps growing (the code).
        saturate: bool,
    },
    /// Replaces the rewards 1 and 0.
    Signs {
        /// Value in place of 1.
        correct: f64,
        /// Value in place of 0.
        wrong: f64,
    },
    /// ±1, or 1 − λ if the sequence is correct but flawed according to `flags`.
    Flawed {
        /// λ.
        lambda: f64,
    },
    /// Rewards shorter answers, if all members of the group are correct.
    Brevity {
        /// L_limit, in tokens; at least 1.
        limit: u32,
    },
    /// ±1 relative to the group's `reference`, which gets 0.
    Preferred,
}

impl Shaping {
    /// Whether the function reads `lengths`.
    pub fn needs_lengths(self) -> bool {
        matches!(self, Shaping::Overlong { .. } | Shaping::Brevity { .. })
    }

    /// Checks that the function's numbers are in their domain.
    ///
    /// Errors: a number that is not finite; a `buffer` outside 1 to `max_length`; a negative `factor`; a
    /// `limit` of 0.
    pub fn check(self) -> Result<(), Error> {
        match self {
            Shaping::Overlong { max_length, buffer, factor, .. } => {
                require::scalar("buffer", (1..=max_length).contains(&buffer), "1 to max_length", buffer)?;
                require::not_negative("factor", factor)
            }
            Shaping::Signs { correct, wrong } => {
                require::finite("correct", correct)?;
                require::finite("wrong", wrong)
            }
            Shaping::Flawed { lambda } => require::finite("lambda", lambda),
            Shaping::Brevity { limit } => require::scalar("limit", limit > 0, "at least 1", limit),
            Shaping::Preferred => Ok(()),
        }
    }
}

crate::launch_args!(enum Shaping (most: u32, buffer: u32, first: f64, second: f64) {
    0 => Overlong { max_length: most, buffer, factor: first, saturate: false },
    1 => Overlong { max_length: most, buffer, factor: first, saturate: true },
    2 => Signs { correct: first, wrong: second }, 3 => Flawed { lambda: first },
    4 => Brevity { limit: most }, 5 => Preferred
});

crate::kernel! {
    /// The op `shape_rewards`: shaped reward of each sequence.
    pub struct ShapeRewards<'a> {
        /// Offsets of groups, in sequences, `[G+1]`.
        pub cu_groups: Offsets<'a>,
        /// Outcome reward of each sequence, `[S]`.
        pub rewards: In<'a, f32> [sequences],
        /// Sequences that count, `[S]`.
        pub valid: Mask<'a> [sequences],
        /// The shaping function.
        pub shaping: Shaping where valid,
        /// Rewards above this are correct, for `Flawed`, `Brevity` and `Preferred`.
        pub threshold: f32 where finite,
        /// Lengths in tokens, `[S]`; needed by `Overlong` and `Brevity`.
        pub lengths: Option<In<'a, u32>> [sequences],
        /// Nonzero for flawed sequences, `[S]`, for `Flawed`; absent if none is flawed.
        pub flags: Option<In<'a, u8>> [sequences],
        /// Position within its group of the member with which the others were compared, `[G]`; needed by
        /// `Preferred`.
        pub reference: Option<In<'a, u32>> [groups],
        /// Shaped reward, `[S]`.
        pub shaped: Out<'a, f32> [sequences],
    }
    unsafe "shape_rewards", over cu_groups (sequences, groups),
        require |k| {
            let absent = if k.shaping.needs_lengths() && k.lengths.is_none() {
                "lengths"
            } else if k.shaping == Shaping::Preferred && k.reference.is_none() {
                "reference"
            } else {
                return Ok(());
            };
            Err(Error::Combination { argument: absent, expected: "needed by this shaping" })
        };
}

impl Kernel for ShapeRewards<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_groups.span(row);
        let members = Members { rewards: self.rewards, valid: self.valid };
        let (threshold, shaping, out) = (self.threshold, self.shaping, *self.shaped);
        let (lengths, flags) = (self.lengths, self.flags);
        let mut wrong = 0.0;
        if let Shaping::Brevity { .. } = shaping {
            let missed = move |i| members.is(i) && (members.rewards.at(i) <= threshold);
            [wrong] = team.sum(span, move |i| [if missed(i) { 1.0 } else { 0.0 }]);
        }
        let reference = match self.reference {
            Some(reference) => span.start + reference.at(row) as usize,
            None => usize::MAX,
        };
        team.for_each(span, move |i| {
            let (value, reward) = (members.rewards.at(i), members.reward(i));
            let correct = value > threshold;
            let length = match lengths {
                Some(lengths) => f64::from(lengths.at(i)),
                None => 0.0,
            };
            let shaped = match shaping {
                Shaping::Overlong { max_length, buffer, factor, saturate } => {
                    let (max_length, buffer) = (f64::from(max_length), f64::from(buffer));
                    let over = num::div64(length - (max_length - buffer), buffer);
                    let over = if saturate && over > 1.0 { 1.0 } else { over };
                    reward - if over > 0.0 { over * factor } else { 0.0 }
                }
                Shaping::Signs { correct, wrong } => {
                    if value == 1.0 {
                        correct
                    } else if value == 0.0 {
                        wrong
                    } else {
                        reward
                    }
                }
                Shaping::Flawed { lambda } => {
                    let flawed = match flags {
                        Some(flags) => flags.at(i) != 0,
                        None => false,
                    };
                    let sound = if flawed { 1.0 - lambda } else { 1.0 };
                    if correct { sound } else { -1.0 }
                }
                Shaping::Brevity { limit } => {
                    let left = 1.0 - num::div64(length, f64::from(limit));
                    let left = if left > 0.0 { left } else { 0.0 };
                    if wrong == 0.0 { left } else { reward }
                }
                Shaping::Preferred => {
                    let side = if correct { 1.0 } else { -1.0 };
                    if i == reference { 0.0 } else { side }
                }
            };
            // An infinite reward stays one, so that the estimator raises its alarm.
            let shaped = if value.is_infinite() { f64::from(value) } else { shaped };
            out.put(i, if members.is(i) { num::canonical(shaped as f32) } else { num::canonical_nan() });
        });
    }
}
