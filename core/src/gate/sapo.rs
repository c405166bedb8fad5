//! The SAPO gate: a soft, sigmoid-shaped alternative to PPO's clip.
//!
//! **Formula** (2511.20347 §3, eqs 5-6; docs/maths/gates.md), with τ = `tau_pos` if A > 0, else `tau_neg`:
//!
//! ```text
//! f(r) = (4/τ)·σ(τ(r − 1));  l = −f(r)·A
//! w(r) = 4p(1 − p), p = σ(τ(r − 1))          w(1) = 1, 0 < w ≤ 1
//! ```
//!
//! **Gradient**: dl/dlogp = −A·r·w(r). On-policy it is −A, as in REINFORCE; the loss *value* at r = 1 is
//! −2A/τ.
//!
//! **Special cases**: A = 0: loss 0, gradient 0. p(1 − p) is computed as e/(1 + e)² with
//! e = exp(−|τ(r − 1)|), which does not cancel at saturation. From |τ(r − 1)| = 87 on, w (below 7e-38) and
//! r·w are 0, for every r including ∞.
//!
//! **Variants**: verl and TRL use τ_neg at A = 0 (irrelevant here, since the loss is 0) and aggregate by
//! seq-mean-token-mean; AReaL aggregates by token-mean.

use super::{Gate, Gated, Sample};
use crate::Error;
use crate::num::{self, Arith};
use crate::require;

/// The SAPO gate and its temperatures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sapo {
    tau_pos: f32,
    tau_neg: f32,
    /// 4/τ, stored because LLVM would otherwise divide for every token.
    scale_pos: f32,
    scale_neg: f32,
}

crate::launch_args!(Sapo { tau_pos, tau_neg, scale_pos, scale_neg });

impl Sapo {
    /// A gate with temperature `tau_pos` for positive advantages (1.0 in the paper) and `tau_neg` for all
    /// others (1.05 in the paper).
    pub fn new(tau_pos: f32, tau_neg: f32) -> Self {
        Sapo { tau_pos, tau_neg, scale_pos: num::div(4.0, tau_pos), scale_neg: num::div(4.0, tau_neg) }
    }
}

/// From this |τ(r − 1)| on, the weight, which is below 7e-38 there, is set to 0. e then stays a normal
/// number, and its exponential takes half the work.
const SATURATED: f32 = 87.0;

impl Gate for Sapo {
    const POLICY_LOSS: &'static str = "policy_loss_sapo";

    const STAGED: bool = true;

    const STAGE_FINITE: bool = true;

    const SHORT_OFFSETS: bool = true;

    /// e = exp(−|τ(r − 1)|), 0 from `SATURATED` on.
    #[inline(always)]
    fn stage<A: Arith>(&self, Sample { ratio, advantage, .. }: Sample) -> f32 {
        let tau = if advantage > 0.0 { self.tau_pos } else { self.tau_neg };
        let z = (tau * (ratio - 1.0)).abs();
        num::exp_normal::<A>(num::select(z < SATURATED, -z, num::EXP_IS_ZERO))
    }

    #[inline(always)]
    fn gate_staged<A: Arith>(&self, Sample { ratio, finite, advantage, .. }: Sample, e: f32) -> Gated {
        let scale = if advantage > 0.0 { self.scale_pos } else { self.scale_neg };
        let inverse = num::reciprocal::<A>(1.0 + e);
        let p = if ratio >= 1.0 { inverse } else { e * inverse };
        let quarter = (e * inverse) * inverse;
        // r = ∞ (without a guard) has weight 0; r is bounded because ∞·0 would be NaN.
        let bounded = if !finite && ratio > f32::MAX { f32::MAX } else { ratio };
        Gated {
            loss: (scale * p) * -advantage,
            gradient: (bounded * quarter) * (-4.0 * advantage),
            weight: 4.0 * quarter,
            clipped: 0,
        }
    }

    fn check(&self) -> Result<(), Error> {
        require::positive("tau_pos", self.tau_pos)?;
        require::positive("tau_neg", self.tau_neg)
    }
}
