//! The ReMix gate: PPO's clip, centred on the ratio of the latest policy.
//!
//! **Formula** (2507.06892; docs/maths/correction.md), for data sampled by policy k − i, with
//! r = exp(logp − logp_{k−i}) and c = sg[exp(logp_k − logp_{k−i})]:
//!
//! ```text
//! l = max(−A·r, −A·clip(r, c − clip_ratio_low, c + clip_ratio_high))
//! ```
//!
//! `logp_old` is that of policy k − i, and the second policy is policy k. For i = 0, or without a second
//! policy, c = 1, which is PPO.
//!
//! **Gradient**: dl/dlogp = −A·r, or 0 where the clip is active. A token at a bound counts as inside.
//!
//! **Special cases**: A = 0: loss 0, gradient 0, never counted as clipped. The logarithm of c is clamped to
//! at most 87.
//!
//! **Variants**: the KL-convex term is λ·KL(π ‖ base) + (1 − λ)·KL(π ‖ previous) with λ from
//! [`kl_convex_lambda`]. Its two KL terms take two launches, whose coefficients add up.

use super::{CLIP_HIGH, CLIP_LOW, Gate, Gated, Sample};
use crate::Error;
use crate::num::{self, Arith};
use crate::require;

/// The ReMix gate and its clip range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remix {
    /// Distance of the lower bound of r from c, at least 0.
    pub clip_ratio_low: f32,
    /// Distance of the upper bound of r from c, at least 0.
    pub clip_ratio_high: f32,
}

crate::launch_args!(Remix { clip_ratio_low, clip_ratio_high });

/// λ of ReMix's KL-convex term at training step `step`: max(1 − 0.1·⌈max(step − 50, 0)/10⌉, 0.5).
///
/// ```
/// use lockstep_core::gate::remix::kl_convex_lambda;
/// assert_eq!([0, 50, 51, 60, 61, 1000].map(kl_convex_lambda), [1.0, 1.0, 0.9, 0.9, 0.8, 0.5]);
/// ```
pub fn kl_convex_lambda(step: u64) -> f64 {
    let tenths = 10u64.saturating_sub(step.saturating_sub(50).div_ceil(10));
    num::div64((if tenths > 5 { tenths } else { 5 }) as f64, 10.0)
}

impl Gate for Remix {
    const POLICY_LOSS: &'static str = "policy_loss_remix";

    const SWITCH: bool = true;

    const STAGED: bool = true;

    const SECOND: bool = true;

    const READS_OLD: bool = true;

    /// The centre c of the clip range.
    #[inline(always)]
    fn stage<A: Arith>(&self, Sample { logp_old, logp_second, .. }: Sample) -> f32 {
        let d = logp_second - logp_old;
        num::exp::<A>(if d > 87.0 { 87.0 } else { d })
    }

    #[inline(always)]
    fn gate_staged<A: Arith>(&self, Sample { ratio, advantage, .. }: Sample, centre: f32) -> Gated {
        let negative = advantage < 0.0;
        let (floor, ceiling) = (centre - self.clip_ratio_low, centre + self.clip_ratio_high);
        let raised = if negative & (ratio < floor) { floor } else { ratio };
        let bounded = if !negative & (ratio > ceiling) { ceiling } else { raised };
        let inside = (bounded == ratio) | (advantage == 0.0);
        Gated {
            loss: bounded * -advantage,
            gradient: if inside { ratio * -advantage } else { 0.0 },
            weight: num::count(inside),
            clipped: if inside {
                0
            } else if negative {
                CLIP_LOW
            } else {
                CLIP_HIGH
            },
        }
    }

    fn check(&self) -> Result<(), Error> {
        require::not_negative("clip_ratio_low", self.clip_ratio_low)?;
        require::not_negative("clip_ratio_high", self.clip_ratio_high)
    }
}
