//! Step returns of an agent that is compared with an expert: credit stops at a step that differs from the
//! expert's.
//!
//! **Formula** (UI-S1 2509.11543; docs/maths/rewards.md), over the steps of a trajectory, where ok_t says
//! whether step t matches the expert:
//!
//! ```text
//! ret_t = r_t + γ s_{t+1} where ok_t, r_t elsewhere;    s after the last step = 0
//! s_t = ret_t where ok_t; elsewhere r_t (`include_first_mismatch`) or 0
//! ```
//!
//! **Shapes**: `rewards`, `matches`, `returns` `[K]`, one entry per step; `cu_steps` `[S+1]`, offsets of the
//! S trajectories in steps.
//!
//! **Special cases**: with γ = 0 each step's return is its own reward.
//!
//! **Accuracy**: a [scan](crate::team::scan) of affine maps in binary64, rounded to `f32` once.
//!
//! **Variants** (docs/maths/disagreements.md, row 19): the paper's sum includes the first step that differs;
//! in the released code, that step's reward does not reach the steps before it.

use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::{Affine, AffineF64, Direction, Team};

crate::kernel! {
    /// The op `step_return`: one return per step.
    pub struct StepReturn<'a> {
        /// Offsets of trajectories, in steps, `[S+1]`.
        pub cu_steps: Offsets<'a>,
        /// Reward of each step, `[K]`.
        pub rewards: In<'a, f32> [steps],
        /// Nonzero if the step matches the expert's, `[K]`.
        pub matches: In<'a, u8> [steps],
        /// Discount γ per step, 0 to 1.
        pub gamma: f64 where unit,
        /// Whether the reward of a step that differs is included in the returns of the steps before it.
        pub include_first_mismatch: bool,
        /// Returns, `[K]`.
        pub returns: Out<'a, f32> [steps],
    }
    unsafe "step_return", over cu_steps (steps, _);
}

/// UI-S1's reward of a step, 0 to 1 (2509.11543): 0.1 `format`, plus 0.4 `action_type` if the format is
/// right, plus 0.5 `accuracy` if both are.
///
/// Each argument, 0 to 1, says how well that part is right: the format, the type of the action, and its
/// arguments. A part counts as right if it is above 0.
pub fn step_reward(format: f64, action_type: f64, accuracy: f64) -> f64 {
    let of_type = if format > 0.0 { 0.4 * action_type } else { 0.0 };
    let of_arguments = if format > 0.0 && action_type > 0.0 { 0.5 * accuracy } else { 0.0 };
    0.1 * format + of_type + of_arguments
}

impl Kernel for StepReturn<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (rewards, matches, returns) = (self.rewards, self.matches, *self.returns);
        let (gamma, include) = (self.gamma, self.include_first_mismatch);
        team.scan(
            AffineF64,
            self.cu_steps.span(row),
            Mask::all(),
            Direction::Suffix,
            move |i| {
                let (ok, reward) = (matches.at(i) != 0, f64::from(rewards.at(i)));
                Affine { rate: if ok { gamma } else { 0.0 }, offset: if ok | include { reward } else { 0.0 } }
            },
            move |i, y| {
                let seen = matches.at(i) != 0 || include;
                returns.put(i, num::canonical(if seen { y.offset as f32 } else { rewards.at(i) }));
            },
        );
    }
}
