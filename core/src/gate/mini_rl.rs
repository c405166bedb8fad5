//! The MiniRL gate: REINFORCE with a truncated importance weight to the rollout policy, and PPO's clip as a
//! mask.
//!
//! **Formula** (2512.01374 §4.1, eq. 7; docs/maths/routing.md), with r = exp(logp − logp_old) and
//! w = min(exp(logp − logp_rollout), c):
//!
//! ```text
//! l = −M·sg[w]·A·logp
//! M = 0 if A > 0 and r > 1 + clip_ratio_high, or A < 0 and r < 1 − clip_ratio_low; else 1
//! ```
//!
//! **Gradient**: dl/dlogp = −M·w·A. r measures staleness only and decides the mask; the weight corrects for
//! the policy that sampled. Unlike in PPO, the mask is not a min(); unlike in CISPO, a masked token has no
//! gradient.
//!
//! **Special cases**: A = 0: loss 0, gradient 0, never counted as clipped. A token with r at a bound keeps
//! its gradient. `CLIP_HIGH`, `CLIP_LOW`: masked; `CLIP_DUAL`: kept, with w = c (truncated, or exactly
//! c). Without rollout log-probabilities, w = min(r, c).
//!
//! **Variants**: the paper's bounds are 0.2 and 0.27, its c is 5, its advantage is R − mean, and its
//! aggregation is seq-mean-token-sum.

use super::{CLIP_DUAL, CLIP_HIGH, CLIP_LOW, Gate, Gated, Sample};
use crate::Error;
use crate::num::{self, Arith};
use crate::require;

/// The MiniRL gate: the clip range of its mask and the bound of its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MiniRl {
    /// Distance of the lower bound of r from 1, 0 to 1.
    pub clip_ratio_low: f32,
    /// Distance of the upper bound of r from 1, at least 0.
    pub clip_ratio_high: f32,
    /// Upper bound c of the importance weight, positive and finite.
    pub clip_ratio_c: f32,
}

crate::launch_args!(MiniRl { clip_ratio_low, clip_ratio_high, clip_ratio_c });

impl Gate for MiniRl {
    const POLICY_LOSS: &'static str = "policy_loss_mini_rl";

    const SCORE: bool = true;

    const STAGED: bool = true;

    const SECOND: bool = true;

    /// exp(logp − logp_rollout), at most c.
    #[inline(always)]
    fn stage<A: Arith>(&self, Sample { logp, logp_second, .. }: Sample) -> f32 {
        let ratio = num::exp::<A>(logp - logp_second);
        if ratio > self.clip_ratio_c { self.clip_ratio_c } else { ratio }
    }

    #[inline(always)]
    fn gate_staged<A: Arith>(&self, Sample { ratio, advantage, logp, .. }: Sample, truncated: f32) -> Gated {
        let high = (advantage > 0.0) & (ratio > 1.0 + self.clip_ratio_high);
        let low = (advantage < 0.0) & (ratio < 1.0 - self.clip_ratio_low);
        let weight = if high | low { 0.0 } else { truncated };
        let gradient = weight * -advantage;
        let refused = if high { CLIP_HIGH } else { CLIP_LOW };
        let clipped = if high | low {
            refused
        } else if truncated == self.clip_ratio_c {
            CLIP_DUAL
        } else {
            0
        };
        Gated { loss: gradient * logp, gradient, weight, clipped: if advantage == 0.0 { 0 } else { clipped } }
    }

    fn check(&self) -> Result<(), Error> {
        require::unit("clip_ratio_low", self.clip_ratio_low)?;
        require::not_negative("clip_ratio_high", self.clip_ratio_high)?;
        require::positive("clip_ratio_c", self.clip_ratio_c)
    }
}
