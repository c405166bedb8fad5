//! PPO clip with separate bounds (DAPO's clip-higher) and dual clip.
//!
//! **Formula** (PPO 1707.06347 eq. 7; DAPO 2503.14476; dual clip 1912.09729; maths.md §2.1):
//!
//! ```text
//! l = max(−A·r, −A·clip(r, 1 − clip_ratio_low, 1 + clip_ratio_high))
//! A < 0: l = min(l, −clip_ratio_c·A)
//! ```
//!
//! **Gradient**: dl/dlogp = −A·r, or 0 where a clip holds. At exact equality r = bound the token counts as *inside*
//! and keeps its gradient (PyTorch's `max` splits such a tie; the set has measure zero).
//!
//! **Special cases**: A = 0: loss 0, gradient 0. NaN ratio: NaN.
//!
//! **Variants**: TRL's `delta` clamps r from above for both signs, which acts only for A < 0 and equals dual clip with
//! c = delta. AReaL's sgn(A)·c·A bound never holds for A > 0: the same. Dual clip is off with `clip_ratio_c = ∞`.

use super::{CLIP_DUAL, CLIP_HIGH, CLIP_LOW, Gate, Gated, check_scalar};
use crate::Error;
use crate::num::Arith;

/// Parameters of the clip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PpoClip {
    /// Distance of the lower bound from 1, in 0..=1.
    pub clip_ratio_low: f32,
    /// Distance of the upper bound from 1, at least 0.
    pub clip_ratio_high: f32,
    /// Dual-clip constant c > 1; ∞ = off.
    pub clip_ratio_c: f32,
}

impl Gate for PpoClip {
    const POLICY_LOSS: &'static str = "policy_loss_ppo";

    #[inline(always)]
    fn gate<A: Arith>(&self, ratio: f32, advantage: f32) -> Gated {
        let (low, high, dual) = (1.0 - self.clip_ratio_low, 1.0 + self.clip_ratio_high, self.clip_ratio_c);
        let (positive, negative) = (advantage > 0.0, advantage < 0.0);
        let at_high = positive & (ratio > high);
        let at_low = negative & (ratio < low);
        let at_dual = negative & (ratio > dual);
        let clipped = at_high | at_low | at_dual;
        let bounded = if at_high { high } else { ratio };
        let bounded = if at_low { low } else { bounded };
        let bounded = if at_dual { dual } else { bounded };
        let none = advantage == 0.0;
        Gated {
            loss: if none { 0.0 } else { -advantage * bounded },
            gradient: if none | clipped { 0.0 } else { -advantage * ratio },
            weight: if clipped { 0.0 } else { 1.0 },
            clipped: u32::from(at_high) * CLIP_HIGH
                | u32::from(at_low) * CLIP_LOW
                | u32::from(at_dual) * CLIP_DUAL,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let (low, high, dual) = (self.clip_ratio_low, self.clip_ratio_high, self.clip_ratio_c);
        check_scalar("clip_ratio_low", low, (0.0..=1.0).contains(&low), "a number in 0..=1")?;
        check_scalar(
            "clip_ratio_high",
            high,
            high >= 0.0 && high.is_finite(),
            "a finite number of at least 0",
        )?;
        check_scalar("clip_ratio_c", dual, dual > 1.0, "a number above 1 (or none)")
    }
}
