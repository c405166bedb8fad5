//! Discounted returns: the rewards from a token on, each by its distance.
//!
//! **Formula** (REINFORCE++ 2501.03262, plain; MARS 2510.15414 with gamma 1; docs/maths/advantages.md), over the live tokens of a sequence:
//!
//! ```text
//! G_t = r_t + γ G_{t+1},   G behind the last token = 0
//! ```
//!
//! **Shapes**: `rewards`, `returns` `[N]`; `cu_seqlens` `[S+1]`. A reward for the whole answer stands on its last live token.
//!
//! **Special cases**: a masked token (tool output) takes no part and costs no step: it receives the return of the live token
//! after it, and credit passes over it undiscounted. γ = 0 leaves each token its own reward.
//!
//! **Accuracy**: a [scan](crate::team::scan) of affine maps in binary64, rounded to `f32` once.

use crate::Error;
use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::{Affine, AffineF64, Direction, Team};

/// The op `discounted_return`.
#[derive(Debug)]
pub struct DiscountedReturn<'a> {
    /// Offsets of sequences, `[S+1]`.
    pub cu_seqlens: Offsets<'a>,
    /// Which tokens take part, `[N]`.
    pub loss_mask: Mask<'a>,
    /// Per-token rewards, `[N]`.
    pub rewards: In<'a, f32>,
    /// Discount of one live token, 0 to 1.
    pub gamma: f64,
    /// `[N]`.
    pub returns: Out<'a, f32>,
}

crate::kernel_args!(unsafe DiscountedReturn<'_> { cu_seqlens, loss_mask, rewards, gamma, returns });

impl DiscountedReturn<'_> {
    /// Whether the scalar parameters are in their domain.
    pub fn check(&self) -> Result<(), Error> {
        super::unit("gamma", self.gamma)
    }
}

impl Kernel for DiscountedReturn<'_> {
    const NAME: &'static str = "discounted_return";

    fn check_bounds(&self) -> Result<(), Error> {
        let tokens = self.cu_seqlens.sizes().0;
        crate::lengths!(self; tokens => loss_mask, rewards, returns);
        Ok(())
    }

    fn rows(&self) -> usize {
        self.cu_seqlens.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.cu_seqlens.span(row).len()
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        team.scan(
            AffineF64,
            self.cu_seqlens.span(row),
            Direction::Suffix,
            |i| match self.loss_mask.at(i) {
                true => Affine { rate: self.gamma, offset: f64::from(self.rewards.at(i)) },
                false => Affine::IDENTITY,
            },
            |i, y| self.returns.put(i, num::canonical(y.offset as f32)),
        );
    }
}
