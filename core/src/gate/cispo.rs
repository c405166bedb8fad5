//! The CISPO gate: a clipped importance weight as a constant factor of REINFORCE.
//!
//! **Formula** (MiniMax-M1 2506.13585; docs/maths/gates.md):
//!
//! ```text
//! l = −sg[clip(r, low, high)]·A·logp
//! ```
//!
//! **Gradient**: dl/dlogp = −clip(r, low, high)·A. A clipped token keeps a gradient, and a guard of the
//! log-ratio bounds r without cutting the gradient.
//!
//! **Special cases**: A = 0: loss 0, gradient 0, never counted as clipped. A token at a bound is not counted.
//!
//! **Variants** (docs/maths/disagreements.md, rows 7 and 8): the bounds are *absolute* here. verl and slime
//! use 1 − `clip_ratio_low` and 1 + `clip_ratio_high`; TRL uses no lower bound (0) and `epsilon_high` as the
//! upper bound; the paper has no lower bound.

use super::{CLIP_HIGH, CLIP_LOW, Gate, Gated, Sample};
use crate::Error;
use crate::num::Arith;
use crate::require;

/// The CISPO gate and its clip range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cispo {
    /// Lower bound of the weight, as a ratio; 0 or less = none.
    pub low: f32,
    /// Upper bound of the weight, as a ratio: positive, finite and at least `low`.
    pub high: f32,
}

crate::launch_args!(Cispo { low, high });

impl Gate for Cispo {
    const POLICY_LOSS: &'static str = "policy_loss_cispo";

    const SCORE: bool = true;

    #[inline(always)]
    fn gate_staged<A: Arith>(&self, Sample { ratio, advantage, logp, .. }: Sample, _staged: f32) -> Gated {
        let weight = A::at_most(A::at_least(ratio, self.low), self.high);
        let gradient = weight * -advantage;
        let clip = if ratio > self.high { CLIP_HIGH } else { CLIP_LOW };
        Gated {
            loss: gradient * logp,
            gradient,
            weight,
            clipped: if (weight == ratio) | (advantage == 0.0) { 0 } else { clip },
        }
    }

    fn check(&self) -> Result<(), Error> {
        require::scalar(
            "cispo.low",
            self.low.is_finite(),
            "a finite number (0 or less = no bound)",
            self.low,
        )?;
        let ok = self.high > 0.0 && self.high >= self.low && self.high.is_finite();
        require::scalar("cispo.high", ok, "a positive finite number of at least cispo.low", self.high)
    }
}
