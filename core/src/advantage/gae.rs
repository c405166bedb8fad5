//! Generalised advantage estimation (GAE), and the λ-returns that a critic is trained on.
//!
//! **Formula** (1506.02438; verl's `compute_gae_advantage_return`; docs/maths/advantages.md), with t' the
//! live token after t:
//!
//! ```text
//! δ_t = r_t + γ V_{t'} − V_t,    A_t = δ_t + γ λ A_{t'},    G_t = A_t + V_t
//! after the last live token:  A = 0,  V = bootstrap of a truncated sequence, 0 of a terminated one
//! ```
//!
//! G is exactly TD(λ): G_t = r_t + γ ((1 − λ) V_{t'} + λ G_{t'}).
//!
//! **Shapes**: `rewards`, `values`, `advantage`, `returns` `[N]`; `bootstrap`, `truncated` `[S]`;
//! `cu_seqlens` `[S+1]`. Either result may be left out. The advantages are not normalised; verl whitens them
//! over the batch ([`Whiten`](super::Whiten)).
//!
//! **Special cases**: a masked token (tool output) is skipped. Its reward and value are ignored, credit
//! passes over it undiscounted, and it receives the advantage and return of the next live token (verl writes
//! the same advantage there); after the last live token, these are 0 and the bootstrap. λ = 0 gives the TD
//! error, λ = 1 the discounted return minus V. The bootstrap of a sequence that is not truncated is ignored.
//!
//! **Accuracy**: a [recurrence](crate::team::recur) of maps in binary64, rounded to `f32` once.
//!
//! **Variants**: VAPO (2504.05118) uses a different λ for the critic (call the op twice, with one result
//! each) and a λ that depends on the length, `length_alpha`: λ = clip(1 − 1/(α L), 0, 1) with L live tokens
//! and α 0.05. MARS's older code uses V_{t+1} whether masked or not: for that, pass no mask.

use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Stream, flag, sink};
use crate::require;
use crate::team::{Affine, Recurrence, Step, Team};

crate::kernel! {
    /// The op `gae`: an advantage and a λ-return per token.
    pub struct Gae<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Per-token rewards, `[N]`.
        pub rewards: In<'a, f32> [tokens],
        /// The critic's values, `[N]`.
        pub values: In<'a, f32> [tokens],
        /// Value after the last live token, `[S]`; absent = 0.
        pub bootstrap: Option<In<'a, f32>> [sequences],
        /// Truncated sequences, whose bootstrap is used, `[S]`.
        pub truncated: Mask<'a> [sequences],
        /// Discount γ per live token, 0 to 1.
        pub gamma: f64 where unit,
        /// λ, 0 to 1.
        pub lambda: f64 where unit,
        /// α of [`length_adaptive_lambda`], which then replaces `lambda`.
        pub length_alpha: Option<f64>,
        /// Advantages A, `[N]`.
        pub advantage: Option<Out<'a, f32>> [tokens],
        /// λ-returns G, `[N]`.
        pub returns: Option<Out<'a, f32>> [tokens],
        /// Row alarm, `[S]`: above [`flag::LIMIT`] if a live reward or value, a bootstrap in use, or a result
        /// is not finite.
        pub row_alarm: Out<'a, u32> [sequences],
    }
    unsafe "gae", over cu_seqlens (tokens, sequences),
        require |k| k.length_alpha.map_or(Ok(()), |alpha| require::positive("length_alpha", alpha));
}

/// VAPO's λ for a sequence of L = `length` live tokens (2504.05118): clip(1 − 1/(α L), 0, 1); 0 if there are
/// none.
#[inline(always)]
pub fn length_adaptive_lambda(alpha: f64, length: u64) -> f64 {
    let lambda = 1.0 - num::div64(1.0, alpha * length as f64);
    if lambda > 0.0 { lambda } else { 0.0 }
}

impl Kernel for Gae<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (span, mask) = (self.cu_seqlens.span(row), self.loss_mask);
        let lambda = match self.length_alpha {
            Some(alpha) => length_adaptive_lambda(alpha, team.count(span, mask)),
            None => self.lambda,
        };
        let bootstrap = match self.bootstrap {
            Some(bootstrap) if self.truncated.at(row) => bootstrap.at(row),
            _ => 0.0,
        };
        let ins = [Stream::Array(self.rewards), Stream::Array(self.values)];
        let outs = [sink(&self.advantage), sink(&self.returns)];
        let credit = Credit { gamma: self.gamma, rate: self.gamma * lambda };
        let alarm = team.recur(span, mask, ins, outs, bootstrap, credit);
        if team.leads() {
            self.row_alarm.put(row, flag::worse(alarm, flag::finite(bootstrap)));
        }
    }
}

#[derive(Clone, Copy)]
struct Credit {
    gamma: f64,
    rate: f64,
}

impl Recurrence<2, 1, 2> for Credit {
    #[inline(always)]
    fn ready<A: Arith>(self, [reward, value]: [f32; 2]) -> ([f32; 1], f32, u32) {
        ([reward], value, flag::worse(flag::finite(reward), flag::finite(value)))
    }

    #[inline(always)]
    fn map(self, [reward]: [f32; 1], value: f32, next: f32) -> Affine {
        let offset = (f64::from(reward) + self.gamma * f64::from(next)) - f64::from(value);
        Affine { rate: self.rate, offset }
    }

    #[inline(always)]
    fn rate(self) -> Option<f64> {
        Some(self.rate)
    }

    #[inline(always)]
    fn out(self, step: Step<1>) -> [f32; 2] {
        [step.y as f32, (step.y + f64::from(step.value)) as f32]
    }
}
