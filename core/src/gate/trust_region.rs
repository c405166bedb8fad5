//! DPPO with a policy of its own for the weight, or with divergences that are given.
//!
//! **Formula** (2602.04879 §4, the released code's `_recompute` and top-k modes), D a token's divergence from the proximal policy:
//!
//! ```text
//! l = −sg[w]·valid·A·logp
//! valid = not (D > clip_ratio_high and logp ≥ logp_old)  if A > 0, else not (D > clip_ratio_low and logp ≤ logp_old)
//! TotalVariation  D = |p − q|, p = exp(logp), q = exp(logp_old)          w = min(exp(logp − logp_rollout), c)
//! BinaryKl        D = KL(Bernoulli(q) ‖ Bernoulli(p)), as in DppoKl      w = min(exp(logp − logp_rollout), c)
//! Given           D is the second array (over the top k of the vocabulary) w = min(r, c)
//! ```
//!
//! **Gradient**: dl/dlogp = −w·valid·A.
//!
//! **Special cases**: A = 0: loss 0, gradient 0, never counted as clipped. `CLIP_HIGH`, `CLIP_LOW`: not valid (A > 0, A < 0);
//! `CLIP_DUAL`: valid, but w was truncated at c. Without a second array the weight is of `logp_old`; a given divergence is then
//! not there, and the recipe says so.
//!
//! **Accuracy**: |p − q| is exp of the greater logp times −expm1 of −|logp − logp_old|: no difference of two probabilities.

use super::dppo::{binary_kl, check};
use super::{CLIP_DUAL, CLIP_HIGH, CLIP_LOW, Gate, Gated, Sample};
use crate::Error;
use crate::num::{self, Arith};
use crate::ragged::flag;

/// How far a token has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Divergence {
    /// |p − q|.
    TotalVariation,
    /// KL of the token against all others.
    BinaryKl,
    /// The second array.
    Given,
}

crate::launch_args!(
    enum Divergence {
        TotalVariation,
        BinaryKl,
        Given,
    }
);

/// Divergence, its bounds and that of the weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrustRegion {
    /// What is bounded.
    pub divergence: Divergence,
    /// Greatest divergence of a probability that falls, at least 0.
    pub clip_ratio_low: f32,
    /// Greatest divergence of a probability that rises, at least 0.
    pub clip_ratio_high: f32,
    /// Greatest importance weight c, finite.
    pub clip_ratio_c: f32,
}

crate::launch_args!(TrustRegion { divergence, clip_ratio_low, clip_ratio_high, clip_ratio_c });

/// In place of the weight of a token that is not valid.
const REFUSED: f32 = -1.0;

impl Gate for TrustRegion {
    const POLICY_LOSS: &'static str = "policy_loss_trust_region";

    const SCORE: bool = true;

    const STAGED: bool = true;

    const SECOND: bool = true;

    const READS_OLD: bool = true;

    #[inline(always)]
    fn second_fault(&self, second: f32) -> u32 {
        if matches!(self.divergence, Divergence::Given) { flag::weight(second) } else { flag::logp(second) }
    }

    /// The weight, or −1 for a token that is not valid.
    #[inline(always)]
    fn stage<A: Arith>(&self, Sample { ratio, advantage, logp, logp_old, logp_second, .. }: Sample) -> f32 {
        let (moved, weight) = match self.divergence {
            Divergence::Given => (logp_second, ratio),
            Divergence::BinaryKl => (binary_kl::<A>(logp, logp_old), num::exp::<A>(logp - logp_second)),
            Divergence::TotalVariation => {
                let (most, least) = if logp > logp_old { (logp, logp_old) } else { (logp_old, logp) };
                let moved = num::exp_nonpositive::<A>(most) * -num::expm1_nonpositive::<A>(least - most);
                (moved, num::exp::<A>(logp - logp_second))
            }
        };
        let refused = if advantage > 0.0 {
            (moved > self.clip_ratio_high) & (logp >= logp_old)
        } else {
            (moved > self.clip_ratio_low) & (logp <= logp_old)
        };
        let truncated = if weight > self.clip_ratio_c { self.clip_ratio_c } else { weight };
        if refused { REFUSED } else { truncated }
    }

    #[inline(always)]
    fn gate_staged(&self, Sample { advantage, logp, .. }: Sample, staged: f32) -> Gated {
        let valid = staged >= 0.0;
        let weight = if valid { staged } else { 0.0 };
        let gradient = weight * -advantage;
        let refused = if advantage > 0.0 { CLIP_HIGH } else { CLIP_LOW };
        let truncated = if staged == self.clip_ratio_c { CLIP_DUAL } else { 0 };
        let clipped = if valid { truncated } else { refused };
        Gated { loss: gradient * logp, gradient, weight, clipped: if advantage == 0.0 { 0 } else { clipped } }
    }

    fn check(&self) -> Result<(), Error> {
        check(self.clip_ratio_low, self.clip_ratio_high, self.clip_ratio_c)?;
        let c = self.clip_ratio_c;
        super::check_scalar("clip_ratio_c", c, c.is_finite(), "a positive finite number")
    }
}
