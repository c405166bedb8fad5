//! A KL estimate weighted by the importance ratio, for tokens sampled by another policy.
//!
//! **Formula** (DeepSeek-V3.2; TRL's `use_bias_correction_kl`, slime's `use_unbiased_kl`; docs/maths/kl.md),
//! with k any [estimator](crate::kl) of KL(policy ‖ reference) and r = exp(guard(logp − logp_old)):
//!
//! ```text
//! value = r·k
//! d/dlogp = r·(k' + k)    through r, which is differentiated too (TRL)
//! d/dlogp = r·k'          detached
//! ```
//!
//! The estimator's `clamp_out` bounds the value, r·k, as in NeMo RL and slime. Where it or `clamp_in` is
//! active, the gradient is 0, including the part through r, unless it is straight-through.
//!
//! For k3 without clamps, k + k' = −u = x: with differentiation through r, the gradient of r·k3 is r·x, the
//! importance-weighted gradient of k2, and it is computed that way. A penalty is the term β·W·value of a
//! loss; its coefficients β·W·d/dlogp add to those of a policy loss.
//!
//! **Shapes**: per token `[N]`, per sequence `[S]`.
//!
//! **Special cases**: outside a clamp [guard](Guard), no gradient flows through r; k' still contributes. At r
//! = 1, value and detached gradient are those of the op `kl`, bit for bit. Bad inputs of live tokens and
//! results that overflow raise the row's [alarm](crate::ragged::flag).
//!
//! **Variants**: TRL and slime do not guard r; verl does not have this term.

use crate::kl::{Kl, KlFormula};
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Stream, flag, sink};
use crate::ratio::Guard;
use crate::team::{Element, Lane, Team};

crate::kernel! {
    /// The op `kl_importance`: importance-weighted KL estimate and its gradient for each token.
    pub struct KlImportance<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Tokens that count, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Log-probabilities of the policy, `[N]`; the only differentiable input.
        pub logp: In<'a, f32> [tokens],
        /// Log-probabilities under the policy that sampled, `[N]`.
        pub logp_old: In<'a, f32> [tokens],
        /// Log-probabilities of the reference policy, `[N]`.
        pub logp_ref: In<'a, f32> [tokens],
        /// Estimator and its clamps.
        pub kl: Kl where valid,
        /// Guard applied to the log-ratio before r = exp(·).
        pub guard: Guard where valid,
        /// Whether the gradient also flows through r.
        pub through_ratio: bool,
        /// Value r·k, `[N]`.
        pub value: Option<Out<'a, f32>> [tokens],
        /// d value / d logp, `[N]`.
        pub gradient: Option<Out<'a, f32>> [tokens],
        /// Sum of the value over live tokens, `[S]`.
        pub row_sum: Out<'a, f64> [sequences],
        /// Above [`flag::LIMIT`] if a live input or result is bad, `[S]`.
        pub row_alarm: Out<'a, u32> [sequences],
    }
    unsafe "kl_importance", over cu_seqlens (tokens, sequences);
}

/// Any estimator, chosen per token.
const ANY: u8 = 0;
/// An estimator without an exponential: see [`Kl::linear`].
const LINEAR: u8 = 1;
/// k3.
const K3: u8 = 2;

#[derive(Clone, Copy)]
struct Token<const ESTIMATOR: u8> {
    kl: Kl,
    guard: Guard,
    through_ratio: bool,
}

impl<const ESTIMATOR: u8> Element<3, 2, 1, 0> for Token<ESTIMATOR> {
    const STAGES: usize = 1;

    #[inline(always)]
    fn stage<A: Arith>(&self, _number: usize, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> (f32, u32) {
        let alarm = flag::worse(flag::logp(input(0)), flag::logp(input(1)));
        (num::exp::<A>(self.guard.apply_as::<A>(input(0) - input(1)).0), alarm)
    }

    #[inline(always)]
    fn element<A: Arith>(&self, staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<2, 1, 0> {
        let ratio = staged[0];
        let (_, inside) = self.guard.apply_as::<A>(input(0) - input(1));
        let unweighted = self.kl.unbounded();
        let (kl, slope) = match ESTIMATOR {
            LINEAR => unweighted.linear(input(0), input(2)),
            K3 => unweighted.token_k3::<A>(input(0), input(2)),
            _ => unweighted.token::<A>(input(0), input(2)),
        };
        let is_k3 = match ESTIMATOR {
            LINEAR => false,
            K3 => true,
            _ => self.kl.estimator == KlFormula::K3,
        };
        // k3 + k3' is x; adding the two would cancel e^u. Where `clamp_in` is active the slope is 0 and
        // nothing flows; elsewhere a slope of 0 implies a value of 0.
        let whole = if slope == 0.0 {
            0.0
        } else if is_k3 & !self.kl.straight_through {
            input(0) - input(2)
        } else {
            slope + kl
        };
        let passes = self.through_ratio & (self.guard.gradient(1.0, inside) != 0.0);
        let slope = if passes { whole } else { slope };
        let (value, bounded) = self.kl.bounded(ratio * kl, ratio * slope);
        let gradient = if self.kl.straight_through { ratio * slope } else { bounded };
        let results = flag::worse(flag::finite(value), flag::finite(gradient));
        Lane {
            out: [value, gradient],
            sum: [value],
            max: [],
            alarm: flag::worse(flag::logp(input(2)), results),
        }
    }
}

impl Kernel for KlImportance<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        // On a CPU the loop must know its estimator, or it stays scalar.
        match self.kl.estimator {
            KlFormula::K3 => self.sweep::<K3, T>(team, row),
            KlFormula::K1 | KlFormula::Abs | KlFormula::K2 => self.sweep::<LINEAR, T>(team, row),
        }
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        self.sweep::<ANY, T>(team, row);
    }
}

impl KlImportance<'_> {
    #[inline(always)]
    fn sweep<const ESTIMATOR: u8, T: Team>(&self, team: &T, row: usize) {
        let ins = [Stream::Array(self.logp), Stream::Array(self.logp_old), Stream::Array(self.logp_ref)];
        let token = Token::<ESTIMATOR> { kl: self.kl, guard: self.guard, through_ratio: self.through_ratio };
        let swept = team.sweep(
            self.cu_seqlens.span(row),
            self.loss_mask,
            ins,
            [sink(&self.value), sink(&self.gradient)],
            &token,
        );
        if team.leads() {
            self.row_sum.put(row, swept.sums[0]);
            self.row_alarm.put(row, swept.alarm);
        }
    }
}
