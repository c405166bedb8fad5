//! DPPO gates whose weight is taken against the rollout policy, or whose divergences are given.
//!
//! **Formula** (2602.04879 §4, the `_recompute` and top-k modes of the released code), with D a token's
//! divergence from the proximal policy and c the bound of the weight:
//!
//! ```text
//! l = −sg[w]·valid·A·logp
//! valid = not (D > clip_ratio_high and logp ≥ logp_old)  if A > 0,
//!         else not (D > clip_ratio_low and logp ≤ logp_old)
//! TotalVariation  D = |p − q|, p = exp(logp), q = exp(logp_old)      w = min(exp(logp − logp_rollout), c)
//! BinaryKl        D = KL(Bernoulli(q) ‖ Bernoulli(p)), as in DppoKl  w = min(exp(logp − logp_rollout), c)
//! Given           D is the second array (over the top k tokens)      w = min(r, c)
//! ```
//!
//! **Gradient**: dl/dlogp = −w·valid·A.
//!
//! **Special cases**: A = 0: loss 0, gradient 0, never counted as clipped. `CLIP_HIGH`, `CLIP_LOW`: not valid
//! (A > 0, A < 0); `CLIP_DUAL`: valid, with w = c (truncated, or exactly c). Without a second array, the
//! weight is taken against `logp_old`; a given divergence is then missing, which the recipe reports.
//!
//! **Accuracy**: |p − q| is computed as exp of the greater logp times −expm1 of −|logp − logp_old|, without
//! subtracting two probabilities.

use super::dppo::{binary_kl, check};
use super::{CLIP_DUAL, CLIP_HIGH, CLIP_LOW, Gate, Gated, Sample};
use crate::Error;
use crate::num::{self, Arith};
use crate::ragged::flag;
use crate::require;

/// The divergence that measures how far a token has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Divergence {
    /// Total variation, |p − q|.
    TotalVariation,
    /// KL(Bernoulli(q) ‖ Bernoulli(p)): the token against all others.
    BinaryKl,
    /// The divergence in the second array.
    Given,
}

crate::launch_args!(
    enum Divergence {
        TotalVariation,
        BinaryKl,
        Given,
    }
);

/// The trust-region gate: its divergence, the divergence's bounds and the weight's bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrustRegion {
    /// The divergence that is bounded.
    pub divergence: Divergence,
    /// Largest divergence if the token's probability falls, at least 0.
    pub clip_ratio_low: f32,
    /// Largest divergence if the token's probability rises, at least 0.
    pub clip_ratio_high: f32,
    /// Upper bound c of the importance weight, positive and finite.
    pub clip_ratio_c: f32,
}

crate::launch_args!(TrustRegion { divergence, clip_ratio_low, clip_ratio_high, clip_ratio_c });

/// Whether a token's program branches on the divergence, which is the same for all tokens. On a CPU a branch
/// would keep the loop from being vectorised, so all divergences are computed and one is taken.
const BRANCHES: bool = cfg!(any(target_arch = "nvptx64", target_arch = "amdgpu"));

/// Stands for the weight of a token that is not valid.
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
        let binary_kl = || binary_kl::<A>(logp, logp_old);
        let total_variation = || {
            let (most, least) = if logp > logp_old { (logp, logp_old) } else { (logp_old, logp) };
            num::exp_nonpositive::<A>(most) * -num::expm1_nonpositive::<A>(least - most)
        };
        let of_sampler = || num::exp::<A>(logp - logp_second);
        let (moved, weight) = if BRANCHES {
            match self.divergence {
                Divergence::Given => (logp_second, ratio),
                Divergence::BinaryKl => (binary_kl(), of_sampler()),
                Divergence::TotalVariation => (total_variation(), of_sampler()),
            }
        } else {
            let (kl, variation, of_sampler) = (binary_kl(), total_variation(), of_sampler());
            let moved = if self.divergence == Divergence::BinaryKl { kl } else { variation };
            let given = self.divergence == Divergence::Given;
            (if given { logp_second } else { moved }, if given { ratio } else { of_sampler })
        };
        let refused = if advantage > 0.0 {
            (moved > self.clip_ratio_high) & (logp > logp_old)
        } else {
            (moved > self.clip_ratio_low) & (logp < logp_old)
        };
        let truncated = if weight > self.clip_ratio_c { self.clip_ratio_c } else { weight };
        if refused { REFUSED } else { truncated }
    }

    #[inline(always)]
    fn gate_staged<A: Arith>(&self, Sample { advantage, logp, .. }: Sample, staged: f32) -> Gated {
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
        require::scalar("clip_ratio_c", c.is_finite(), "a positive finite number", c)
    }
}
