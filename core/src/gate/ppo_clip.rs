//! The PPO gate: PPO's clip with separate bounds (DAPO's clip-higher) and dual clip.
//!
//! **Formula** (PPO 1707.06347 eq. 7; DAPO 2503.14476; dual clip 1912.09729; docs/maths/gates.md):
//!
//! ```text
//! l = max(−A·r, −A·clip(r, 1 − clip_ratio_low, 1 + clip_ratio_high))
//! A < 0: l = min(l, −clip_ratio_c·A)
//! ```
//!
//! **Gradient**: dl/dlogp = −A·r, or 0 where a clip is active. At exact equality, r = bound, the token counts
//! as *inside* and keeps its gradient (PyTorch's `max` splits the gradient of such a tie; the set has measure
//! zero).
//!
//! **Special cases**: A = 0: loss 0, gradient 0, never counted as clipped. NaN ratio: NaN loss.
//!
//! **Variants**: TRL's `delta` clamps r from above for both signs of A, which only has an effect for A < 0
//! and equals dual clip with c = delta. AReaL's bound sgn(A)·c·A is never active for A > 0, so it is the
//! same. `clip_ratio_c = ∞` turns dual clip off.

use super::{CLIP_DUAL, CLIP_HIGH, CLIP_LOW, Gate, Gated, Sample};
use crate::Error;
use crate::num::Arith;
use crate::require;

/// The PPO gate and its clip range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PpoClip {
    /// Distance of the lower bound of r from 1, 0 to 1.
    pub clip_ratio_low: f32,
    /// Distance of the upper bound of r from 1, at least 0.
    pub clip_ratio_high: f32,
    /// Dual-clip constant c > 1; ∞ = off.
    pub clip_ratio_c: f32,
}

crate::launch_args!(PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c });

impl Gate for PpoClip {
    const POLICY_LOSS: &'static str = "policy_loss_ppo";

    const SWITCH: bool = true;

    #[inline(always)]
    fn gate_staged<A: Arith>(&self, Sample { ratio, advantage, .. }: Sample, _staged: f32) -> Gated {
        // The formula's max and min become one clamp, with the bounds that can be active for this sign:
        // A >= 0: r at most `high`; A < 0: r at least `low`, at most c.
        // A = 0 takes `high`, which is finite, so the loss is 0 and never 0·∞.
        let (low, high, dual) = (1.0 - self.clip_ratio_low, 1.0 + self.clip_ratio_high, self.clip_ratio_c);
        let negative = advantage < 0.0;
        let floor = A::choose(negative, low, 0.0);
        let ceiling = A::choose(negative, dual, high);
        let bounded = A::at_most(A::at_least(ratio, floor), ceiling);
        let inside = bounded == ratio;
        let clip = if !negative {
            CLIP_HIGH
        } else if ratio < low {
            CLIP_LOW
        } else {
            CLIP_DUAL
        };
        Gated {
            loss: bounded * -advantage,
            gradient: if inside { ratio * -advantage } else { 0.0 },
            weight: if inside | (advantage == 0.0) { 1.0 } else { 0.0 },
            clipped: if inside | (advantage == 0.0) { 0 } else { clip },
        }
    }

    fn check(&self) -> Result<(), Error> {
        let (low, high, dual) = (self.clip_ratio_low, self.clip_ratio_high, self.clip_ratio_c);
        require::unit("clip_ratio_low", low)?;
        require::not_negative("clip_ratio_high", high)?;
        require::scalar("clip_ratio_c", dual > 1.0, "a number above 1 (or none)", dual)
    }
}
