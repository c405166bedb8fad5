//! CISPO: the importance weight is clipped, and never differentiated.
//!
//! **Formula** (MiniMax-M1 2506.13585; docs/maths/gates.md):
//!
//! ```text
//! l = −sg[clip(r, low, high)]·A·logp
//! ```
//!
//! **Gradient**: dl/dlogp = −clip(r, low, high)·A: no token is without gradient because it was clipped, and a guard of the
//! log-ratio bounds r without cutting the gradient.
//!
//! **Special cases**: A = 0: loss 0, gradient 0, never counted as clipped. A token at a bound is not counted.
//!
//! **Variants** (docs/maths/disagreements.md, rows 7 and 8): bounds are *absolute* here. verl and slime: 1 − `clip_ratio_low` and
//! 1 + `clip_ratio_high`; TRL: no lower bound (0) and `epsilon_high` as it is; the paper: no lower bound.

use super::{CLIP_HIGH, CLIP_LOW, Gate, Gated, Sample, check_scalar};
use crate::Error;

/// Parameters of the clip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cispo {
    /// Least weight; 0 or less = none.
    pub low: f32,
    /// Greatest weight.
    pub high: f32,
}

crate::launch_args!(Cispo { low, high });

impl Gate for Cispo {
    const POLICY_LOSS: &'static str = "policy_loss_cispo";

    const SCORE: bool = true;

    #[inline(always)]
    fn gate_staged(&self, Sample { ratio, advantage, logp, .. }: Sample, _staged: f32) -> Gated {
        let raised = if ratio < self.low { self.low } else { ratio };
        let weight = if raised > self.high { self.high } else { raised };
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
        check_scalar("cispo.low", self.low, self.low.is_finite(), "a finite number (0 or less = no bound)")?;
        let ok = self.high > 0.0 && self.high >= self.low && self.high.is_finite();
        check_scalar("cispo.high", self.high, ok, "a positive finite number of at least cispo.low")
    }
}
