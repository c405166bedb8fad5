//! Discounted returns: for each token, the discounted sum of the rewards from that token on.
//!
//! **Formula** (plain REINFORCE++ 2501.03262; MARS 2510.15414 with gamma 1; docs/maths/advantages.md), over
//! the live tokens of a sequence:
//!
//! ```text
//! G_t = r_t + γ G_{t+1},   G after the last token = 0
//! ```
//!
//! **Shapes**: `rewards`, `returns` `[N]`; `cu_seqlens` `[S+1]`. A reward for the whole answer belongs at its
//! last live token.
//!
//! **Special cases**: a masked token (tool output) is skipped: credit passes over it undiscounted, and it
//! receives the return of the next live token. With γ = 0 each live token's return is its own reward.
//!
//! **Accuracy**: a [scan](crate::team::scan) of affine maps in binary64, rounded to `f32` once.

use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::{Affine, AffineF64, Direction, Team};

crate::kernel! {
    /// The op `discounted_return`: one return per token.
    pub struct DiscountedReturn<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Per-token rewards, `[N]`.
        pub rewards: In<'a, f32> [tokens],
        /// Discount γ per live token, 0 to 1.
        pub gamma: f64 where unit,
        /// Returns G, `[N]`.
        pub returns: Out<'a, f32> [tokens],
    }
    unsafe "discounted_return", over cu_seqlens (tokens, _);
}

impl Kernel for DiscountedReturn<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        team.scan(
            AffineF64,
            self.cu_seqlens.span(row),
            self.loss_mask,
            Direction::Suffix,
            |i| Affine { rate: self.gamma, offset: f64::from(self.rewards.at(i)) },
            |i, y| self.returns.put(i, num::canonical(y.offset as f32)),
        );
    }
}
