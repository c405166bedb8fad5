//! Role-conditioned advantage estimation (RAE): the baseline of each role is a moving average of its rewards.
//!
//! **Formula** (SPIRAL 2506.24119; docs/maths/advantages.md), over the games of a role in the order of play:
//!
//! ```text
//! b_i = γ b_{i−1} + (1 − γ) R_i,    A_i = R_i − b_{i−1}  (the code)   or   R_i − b_i  (the paper)
//! ```
//!
//! SPIRAL uses γ 0.95, b = 0 at the start, and no debiasing. The state is both an input and an output, so
//! that a run can be resumed and a batch split anywhere.
//!
//! **Shapes**: `rewards`, `advantage` `[S]`, *sorted by role*: those of role p are at
//! `cu_roles[p]..cu_roles[p+1]`, in order of play; `cu_roles` `[P+1]`; `state`, `state_out` `[P]`.
//!
//! **Special cases**: a sequence with a NaN reward, or one that is not `valid`, leaves b unchanged and has
//! advantage 0.
//!
//! **Accuracy**: a [scan](crate::team::scan) of affine maps in binary64; the advantage rounds to `f32` once.
//!
//! **Variants** (docs/maths/disagreements.md, row 15): [`Order`]. Every turn and token of a role in a game
//! gets the same scalar; [`Criterion::Nonzero`](crate::reward::Criterion::Nonzero) drops games whose
//! advantage is exactly 0. To discount per step from the end, put the advantage on the last token (or turn)
//! and use [`DiscountedReturn`](super::DiscountedReturn).

use super::members::Members;
use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::{Affine, AffineF64, Direction, Team};

/// The order of subtraction and update, which decides whether a reward enters its own baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Order {
    /// R_i − b_{i−1}: the released code.
    SubtractThenUpdate,
    /// R_i − b_i: the paper.
    UpdateThenSubtract,
}

crate::launch_args!(
    enum Order {
        SubtractThenUpdate,
        UpdateThenSubtract,
    }
);

crate::kernel! {
    /// The op `role_baseline`: one advantage per game and role, and the updated baselines.
    pub struct RoleBaseline<'a> {
        /// Offsets of roles, in sequences sorted by role, `[P+1]`.
        pub cu_roles: Offsets<'a>,
        /// Reward of each game for its role, sorted by role, `[S]`.
        pub rewards: In<'a, f32> [games],
        /// Which sequences are counted, sorted by role, `[S]`.
        pub valid: Mask<'a> [games],
        /// Decay γ of the moving average, 0 to 1.
        pub decay: f64 where unit,
        /// Whether the subtraction or the update comes first.
        pub order: Order,
        /// Baseline b of each role before the batch, `[P]`.
        pub state: In<'a, f64> [roles],
        /// Advantages, sorted by role, `[S]`.
        pub advantage: Out<'a, f32> [games],
        /// Baseline b of each role after the batch, `[P]`.
        pub state_out: Out<'a, f64> [roles],
    }
    unsafe "role_baseline", over cu_roles (games, roles);
}

impl Kernel for RoleBaseline<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_roles.span(row);
        let games = Members { rewards: self.rewards, valid: self.valid };
        let (decay, start) = (self.decay, self.state.at(row));
        let before = self.order == Order::SubtractThenUpdate;
        // The affine map of one game. The first game of a row includes the state in its constant.
        let update = move |i: usize| match games.is(i) {
            true => Affine { rate: decay, offset: (1.0 - decay) * games.reward(i) },
            false => Affine::IDENTITY,
        };
        let (advantage, state_out) = (*self.advantage, *self.state_out);
        team.scan(
            AffineF64,
            span,
            Mask::all(),
            Direction::Prefix,
            move |i| {
                let first = i == span.start;
                // b_{i−1} is the state after the games up to i − 1.
                let map = if !before {
                    update(i)
                } else if first {
                    Affine::IDENTITY
                } else {
                    update(i - 1)
                };
                let started = Affine { rate: 0.0, offset: map.offset + map.rate * start };
                if first { started } else { map }
            },
            move |i, baseline| {
                let centred = games.reward(i) - baseline.offset;
                advantage.put(i, if games.is(i) { num::canonical(centred as f32) } else { 0.0 });
                if i + 1 == span.end {
                    let own = update(i);
                    let last = own.offset + own.rate * baseline.offset;
                    state_out.put(row, num::canonical64(if before { last } else { baseline.offset }));
                }
            },
        );
        if span.is_empty() && team.leads() {
            state_out.put(row, num::canonical64(start));
        }
    }
}
