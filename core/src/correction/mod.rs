//! Rollout correction: importance weights and rejections that make up for the sampler's probabilities
//! differing from the trainer's.
//!
//! ```text
//! d = logp_old − logp_rollout,  x = clip(d, ±bound),  ρ = exp(x)
//! rollout_mismatch     how far the two policies are apart, per sequence
//! rollout_correction   weights, a stricter loss mask, which sequences are left
//! normalize_weights    weights divided by their mean over the batch
//! ```
//!
//! Sources: verl's rollout correction, TRL, slime, NeMo RL, AReaL (docs/maths/correction.md); [`weights`] and
//! [`reject`] list each framework's choices. Weights are constants: no gradient flows through them.

pub mod mismatch;
pub mod normalize;
pub mod reject;
pub mod weights;

pub use mismatch::RolloutMismatch;
pub use normalize::NormalizeWeights;
pub use reject::{Differences, K1Band, Rejections, Statistic};
pub use weights::{RolloutCorrection, Rule, WeightLevel};

use crate::num::{self, Arith};

/// verl's bound on a log-ratio before it is exponentiated.
pub const LOG_BOUND: f32 = 20.0;

/// clip(d, ±bound). A NaN becomes −bound; its alarm is raised elsewhere.
#[inline(always)]
pub(crate) fn clip(d: f32, bound: f32) -> f32 {
    let low = if d > -bound { d } else { -bound };
    if low < bound { low } else { bound }
}

/// x²/2 and e^x − 1 − x, the k2 and k3 estimates of KL(rollout ‖ old) for one token.
#[inline(always)]
pub(crate) fn k2_k3<A: Arith>(x: f32) -> [f32; 2] {
    [0.5 * (x * x), num::expm1mx::<A>(x)]
}
