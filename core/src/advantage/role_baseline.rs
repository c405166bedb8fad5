//! RAE: a moving average of the rewards of each role as its baseline.
//!
//! **Formula** (SPIRAL 2506.24119; docs/maths/advantages.md), over the games of a role in the order in which they were played:
//!
//! ```text
//! b_i = γ b_{i−1} + (1 − γ) R_i,    A_i = R_i − b_{i−1}  (the code)   or   R_i − b_i  (the paper)
//! ```
//!
//! γ 0.95, b = 0 at the start, no debiasing. The state goes in and out, so that a run may be resumed and a batch divided anywhere.
//!
//! **Shapes**: `rewards`, `advantage` `[S]`, *by role*: those of role p stand at `cu_roles[p]..cu_roles[p+1]`, in order; `cu_roles` `[P+1]`;
//! `state`, `state_out` `[P]`.
//!
//! **Special cases**: a NaN reward or a sequence that is not `valid` leaves b as it is and has advantage 0.
//!
//! **Accuracy**: a [scan](crate::team::scan) of affine maps in binary64; the advantage rounds to `f32` once.
//!
//! **Variants** (docs/maths/disagreements.md row 15): [`Order`]. The same scalar goes to every turn and token of that role in the game; games whose advantage
//! is exactly 0 are dropped by [`Criterion::Nonzero`](crate::reward::Criterion::Nonzero). With a discount per step from the end: put the advantage on the
//! last token (or turn) and take [`DiscountedReturn`](super::DiscountedReturn).

use super::members::Members;
use crate::Error;
use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::{Affine, AffineF64, Direction, Team};

/// Whether a reward is part of its own baseline.
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

/// The op `role_baseline`.
#[derive(Debug)]
pub struct RoleBaseline<'a> {
    /// Offsets of roles, in sequences by role, `[P+1]`.
    pub cu_roles: Offsets<'a>,
    /// Reward of each game for that role, by role, `[S]`.
    pub rewards: In<'a, f32>,
    /// Which are counted, by role, `[S]`.
    pub valid: Mask<'a>,
    /// γ, 0 to 1.
    pub decay: f64,
    /// Which comes first.
    pub order: Order,
    /// b before the batch, `[P]`.
    pub state: In<'a, f64>,
    /// By role, `[S]`.
    pub advantage: Out<'a, f32>,
    /// b after the batch, `[P]`.
    pub state_out: Out<'a, f64>,
}

crate::kernel_args!(unsafe RoleBaseline<'_> { cu_roles, rewards, valid, decay, order, state, advantage, state_out });

impl RoleBaseline<'_> {
    /// Whether the decay is in its domain and there is a state for each role.
    pub fn check(&self) -> Result<(), Error> {
        if !(0.0..=1.0).contains(&self.decay) {
            return Err(Error::Value { argument: "decay", index: None, expected: "0 to 1", got: self.decay });
        }
        let (expected, got) = (self.cu_roles.rows(), self.state.len());
        if got == expected {
            return Ok(());
        }
        Err(Error::Length { argument: "state", expected, because: "one per role", got })
    }
}

impl Kernel for RoleBaseline<'_> {
    const NAME: &'static str = "role_baseline";

    fn check_bounds(&self) -> Result<(), Error> {
        let (games, roles) = self.cu_roles.sizes();
        crate::lengths!(self; games => rewards, valid, advantage; roles => state, state_out);
        Ok(())
    }

    fn rows(&self) -> usize {
        self.cu_roles.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.cu_roles.span(row).len()
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_roles.span(row);
        let games = Members { rewards: self.rewards, valid: self.valid };
        let (decay, start) = (self.decay, self.state.at(row));
        let before = self.order == Order::SubtractThenUpdate;
        // The map of one game; the first game of a row carries the state in its constant.
        let update = move |i: usize| match games.is(i) {
            true => Affine { rate: decay, offset: (1.0 - decay) * games.reward(i) },
            false => Affine::IDENTITY,
        };
        let (advantage, state_out) = (*self.advantage, *self.state_out);
        team.scan(
            AffineF64,
            span,
            Direction::Prefix,
            move |i| {
                let first = i == span.start;
                // b_{i−1} is what the games up to i − 1 made of the state.
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
