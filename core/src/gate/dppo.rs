//! The DPPO gates: trust regions that bound the divergence of the token's own probability instead of its
//! ratio.
//!
//! **Formula** (2602.04879; docs/maths/gates.md), with p = exp(logp), q = exp(logp_old) and c the bound of
//! the weight:
//!
//! ```text
//! l = −sg[min(r, c)]·valid·A·logp
//! TV: valid = p − q ≤ clip_ratio_high          if A > 0, else p − q ≥ −clip_ratio_low
//! KL: valid = not (kl > clip_ratio_high and p ≥ q) if A > 0, else not (kl > clip_ratio_low and p ≤ q)
//!     kl = q·(logp_old − logp) + (1 − q)·ln((1 − q + 1e-8)/(1 − p + 1e-8)) = KL(Bernoulli(q) ‖ Bernoulli(p))
//! ```
//!
//! **Gradient**: dl/dlogp = −min(r, c)·valid·A. The mask is one-sided, like PPO's clip.
//!
//! **Special cases**: A = 0: loss 0, gradient 0, never counted as clipped. `CLIP_HIGH`, `CLIP_LOW`: not valid
//! (A > 0, A < 0); `CLIP_DUAL`: valid, but the weight was truncated at c.
//!
//! **Accuracy**: for TV, p − q is within 1.5e-7, as much as the last bit of logp alone moves it; a token that
//! close to the bound may be decided either way. For KL, 1 − p comes from `expm1`, so that a nearly certain
//! token keeps its digits. As in the formula, one logarithm is taken of the quotient; that loses less than a
//! difference of two logarithms.
//!
//! **Variants**: the bound c of the weight is verl's `clip_ratio_c` (3 if not set); the released description
//! truncates at 20.

use super::{CLIP_DUAL, CLIP_HIGH, CLIP_LOW, Gate, Gated, Sample};
use crate::Error;
use crate::num::{self, Arith};
use crate::require;

/// The DPPO gate that bounds the total variation p − q.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DppoTv {
    /// How far the token's probability may fall, at least 0.
    pub clip_ratio_low: f32,
    /// How far the token's probability may rise, at least 0.
    pub clip_ratio_high: f32,
    /// Upper bound c of the importance weight; ∞ = none.
    pub clip_ratio_c: f32,
}

crate::launch_args!(DppoTv { clip_ratio_low, clip_ratio_high, clip_ratio_c });

/// The DPPO gate that bounds the binary KL divergence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DppoKl {
    /// Largest divergence in nats if the token's probability falls, at least 0.
    pub clip_ratio_low: f32,
    /// Largest divergence in nats if the token's probability rises, at least 0.
    pub clip_ratio_high: f32,
    /// Upper bound c of the importance weight; ∞ = none.
    pub clip_ratio_c: f32,
}

crate::launch_args!(DppoKl { clip_ratio_low, clip_ratio_high, clip_ratio_c });

/// Added to 1 − q and 1 − p, as verl does.
const EPS: f32 = 1e-8;

/// KL(Bernoulli(q) ‖ Bernoulli(p)).
#[inline(always)]
pub(super) fn binary_kl<A: Arith>(logp: f32, logp_old: f32) -> f32 {
    let (q, not_q) = num::exp_and_rest::<A>(logp_old);
    let not_p = -num::expm1_nonpositive::<A>(logp);
    // Both sums are between 1e-8 and 1, so their quotient is a normal number.
    let outside = num::ln_normal::<A>(num::div(not_q + EPS, not_p + EPS));
    // q = 0 with logp_old = −1e30 must not become 0·∞: the product is bounded by 1/e·….
    let inside = if q > 0.0 { q * (logp_old - logp) } else { 0.0 };
    A::fma(not_q, outside, inside)
}

/// The result for a token, given whether it is valid.
#[inline(always)]
fn gated(Sample { ratio, advantage, logp, .. }: Sample, valid: bool, c: f32) -> Gated {
    let truncated = if ratio > c { c } else { ratio };
    let weight = if valid { truncated } else { 0.0 };
    let gradient = weight * -advantage;
    let refused = if advantage > 0.0 { CLIP_HIGH } else { CLIP_LOW };
    let clipped = if !valid {
        refused
    } else if ratio > c {
        CLIP_DUAL
    } else {
        0
    };
    Gated { loss: gradient * logp, gradient, weight, clipped: if advantage == 0.0 { 0 } else { clipped } }
}

pub(super) fn check(low: f32, high: f32, c: f32) -> Result<(), Error> {
    require::not_negative("clip_ratio_low", low)?;
    require::not_negative("clip_ratio_high", high)?;
    require::bound("clip_ratio_c", c)
}

impl Gate for DppoTv {
    const POLICY_LOSS: &'static str = "policy_loss_dppo_tv";

    const SCORE: bool = true;

    const STAGED: bool = true;

    const READS_OLD: bool = true;

    const READS_OWN: bool = true;

    /// max(p, q)·(r − 1) with the token's own r, which saves one exponential. It equals p − q if the
    /// probability falls and (p − q)·r if it rises.
    #[inline(always)]
    fn stage<A: Arith>(&self, Sample { logp, logp_old, own_ratio, .. }: Sample) -> f32 {
        num::exp_nonpositive::<A>(if logp > logp_old { logp } else { logp_old }) * (own_ratio - 1.0)
    }

    #[inline(always)]
    fn gate_staged<A: Arith>(&self, sample: Sample, moved: f32) -> Gated {
        let scale = if sample.own_ratio > 1.0 { sample.own_ratio } else { 1.0 };
        let valid = if sample.advantage > 0.0 {
            moved <= self.clip_ratio_high * scale
        } else {
            moved >= -self.clip_ratio_low * scale
        };
        gated(sample, valid, self.clip_ratio_c)
    }

    fn check(&self) -> Result<(), Error> {
        check(self.clip_ratio_low, self.clip_ratio_high, self.clip_ratio_c)
    }
}

impl Gate for DppoKl {
    const POLICY_LOSS: &'static str = "policy_loss_dppo_kl";

    const SCORE: bool = true;

    const STAGED: bool = true;

    const READS_OLD: bool = true;

    #[inline(always)]
    fn stage<A: Arith>(&self, Sample { logp, logp_old, .. }: Sample) -> f32 {
        binary_kl::<A>(logp, logp_old)
    }

    #[inline(always)]
    fn gate_staged<A: Arith>(&self, sample: Sample, divergence: f32) -> Gated {
        let valid = if sample.advantage > 0.0 {
            !((divergence > self.clip_ratio_high) & (sample.logp >= sample.logp_old))
        } else {
            !((divergence > self.clip_ratio_low) & (sample.logp <= sample.logp_old))
        };
        gated(sample, valid, self.clip_ratio_c)
    }

    fn check(&self) -> Result<(), Error> {
        check(self.clip_ratio_low, self.clip_ratio_high, self.clip_ratio_c)
    }
}
