//! Gates: the loss of a token and its gradient, as functions of the importance ratio and the advantage.

pub mod cispo;
pub mod dppo;
pub mod mini_rl;
pub mod ppo_clip;
pub mod reinforce;
pub mod remix;
pub mod sapo;
pub mod trust_region;

pub use cispo::Cispo;
pub use dppo::{DppoKl, DppoTv};
pub use mini_rl::MiniRl;
pub use ppo_clip::PpoClip;
pub use reinforce::Reinforce;
pub use remix::Remix;
pub use sapo::Sapo;
pub use trust_region::{Divergence, TrustRegion};

use crate::Error;
use crate::num::Arith;
use crate::op::Arg;
use crate::ragged::flag;
use crate::ratio::Guard;

/// The token took the upper clip (A > 0, r above the band; where a gate clips both signs alike, r above the
/// band).
pub const CLIP_HIGH: u32 = 1;
/// The token took the lower clip (A < 0, r below the band; or just r below the band).
pub const CLIP_LOW: u32 = 2;
/// The token took the dual clip (A < 0, r above c).
pub const CLIP_DUAL: u32 = 4;

/// Bound on the log-ratio of [`Sample::own_ratio`]; equal to the usual guard's, so that one ratio serves for
/// both.
pub const OWN_BOUND: f32 = Guard::LOG_RATIO_CLAMP;

/// The result of a gate for one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gated {
    /// Loss l, to be minimised.
    pub loss: f32,
    /// dl/dlogp; the advantage is a constant.
    pub gradient: f32,
    /// The gradient relative to plain importance-weighted REINFORCE, gradient = −A·r·weight; for a
    /// [score](Gate::SCORE) gate, relative to REINFORCE, gradient = −A·weight.
    pub weight: f32,
    /// [`CLIP_HIGH`], [`CLIP_LOW`] or [`CLIP_DUAL`]; 0 if no clip applies.
    pub clipped: u32,
}

/// The inputs of a gate for one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Importance ratio r ≥ 0, after the guard.
    pub ratio: f32,
    /// Whether the ratio is known to be finite.
    pub finite: bool,
    /// Advantage A.
    pub advantage: f32,
    /// Log-probability under the current policy.
    pub logp: f32,
    /// Log-probability under the proximal policy.
    pub logp_old: f32,
    /// Log-probability under a second policy, or another per-token input of the gate; 0 unless the gate
    /// [reads](Gate::SECOND) it.
    pub logp_second: f32,
    /// The token's own ratio, with its logarithm clamped to ±[`OWN_BOUND`], whatever the level of `ratio`;
    /// only for a gate that [reads](Gate::READS_OWN) it.
    pub own_ratio: f32,
}

/// A gate: computes the loss and gradient of a token.
///
/// A token with advantage 0 must have loss 0 and gradient 0 (of either sign, never 0·∞).
pub trait Gate: Arg + Copy + core::fmt::Debug {
    /// Name of the fused policy-loss op that uses the gate.
    const POLICY_LOSS: &'static str;

    /// Whether the gradient flows through logp itself and the ratio is a constant (l = −w·A·logp). The guard
    /// of the log-ratio then bounds w and does not affect the gradient.
    const SCORE: bool = false;

    /// Whether the gate reads the ratio.
    const RATIO: bool = true;

    /// Whether the gate's [weight](Gated::weight) is always 0 or 1.
    const SWITCH: bool = false;

    /// Whether the gate uses [`stage`](Gate::stage).
    const STAGED: bool = false;

    /// Whether the stage is finite whatever its inputs are, so that nothing has to check it.
    const STAGE_FINITE: bool = false;

    /// [`Element::SHORT_OFFSETS`](crate::team::Element::SHORT_OFFSETS) of the policy loss.
    const SHORT_OFFSETS: bool = false;

    /// Whether the gate reads a second policy's log-probabilities, or another array in their place.
    const SECOND: bool = false;

    /// Whether the gate reads `logp_old` itself, beyond the ratio.
    const READS_OLD: bool = false;

    /// Whether the gate reads the token's own ratio.
    const READS_OWN: bool = false;

    /// The alarm for an element of the second array.
    #[inline(always)]
    fn second_fault(&self, second: f32) -> u32 {
        flag::logp(second)
    }

    /// The expensive part of the gate (an exponential), computed as a separate stage.
    #[inline(always)]
    fn stage<A: Arith>(&self, sample: Sample) -> f32 {
        let _ = sample;
        0.0
    }

    /// The rest of the gate, given the result of [`stage`](Gate::stage).
    fn gate_staged<A: Arith>(&self, sample: Sample, staged: f32) -> Gated;

    /// The whole gate for one token.
    #[inline(always)]
    fn gate<A: Arith>(&self, sample: Sample) -> Gated {
        self.gate_staged::<A>(sample, self.stage::<A>(sample))
    }

    /// Checks that the parameters are in their domains.
    ///
    /// Errors: [`Error::Value`] that names the first parameter outside its domain.
    fn check(&self) -> Result<(), Error>;
}
