//! Gates: what a ratio and an advantage make of a token's loss, value and gradient together.

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

/// The token took the upper clip (A > 0, r above the band; where a gate clips both signs alike, r above the band).
pub const CLIP_HIGH: u32 = 1;
/// The token took the lower clip (A < 0, r below the band; or just r below the band).
pub const CLIP_LOW: u32 = 2;
/// The token took the dual clip (A < 0, r above c).
pub const CLIP_DUAL: u32 = 4;

/// Bound of the log-ratio of [`Sample::own_ratio`]; that of the usual guard, so that one ratio serves for both.
pub const OWN_BOUND: f32 = Guard::LOG_RATIO_CLAMP;

/// A token after the gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gated {
    /// Loss l, minimised.
    pub loss: f32,
    /// dl/dlogp; the ratio is differentiated, the advantage is a constant.
    pub gradient: f32,
    /// The gradient relative to plain importance-weighted REINFORCE: gradient = −A·r·weight; for a
    /// [score](Gate::SCORE) gate relative to REINFORCE: gradient = −A·weight.
    pub weight: f32,
    /// [`CLIP_HIGH`], [`CLIP_LOW`], [`CLIP_DUAL`].
    pub clipped: u32,
}

/// What a gate sees of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// r ≥ 0, guarded.
    pub ratio: f32,
    /// A.
    pub advantage: f32,
    /// Log-probability under the current policy.
    pub logp: f32,
    /// Log-probability under the proximal policy.
    pub logp_old: f32,
    /// Log-probability under a second policy, or what else the gate reads there; 0 for a gate that reads [none](Gate::SECOND).
    pub logp_second: f32,
    /// The token's own ratio, its logarithm bounded by ±[`OWN_BOUND`], whatever `ratio` is taken over; for a gate that
    /// [reads](Gate::READS_OWN) it.
    pub own_ratio: f32,
}

/// A gate. A token with advantage 0 has loss 0 and gradient 0 (of either sign, never 0·∞).
pub trait Gate: Arg + Copy + core::fmt::Debug {
    /// Name of the fused op that uses it.
    const POLICY_LOSS: &'static str;

    /// Whether the gradient flows through logp itself and the ratio is a constant (l = −w·A·logp). Then the guard of the
    /// log-ratio bounds w and has no say in the gradient.
    const SCORE: bool = false;

    /// Whether the ratio is read at all.
    const RATIO: bool = true;

    /// Whether [`stage`](Gate::stage) is needed.
    const STAGED: bool = false;

    /// Whether a second policy's log-probabilities are read.
    const SECOND: bool = false;

    /// Whether `logp_old` itself is read, and not only the ratio to it.
    const READS_OLD: bool = false;

    /// Whether the token's own ratio is read.
    const READS_OWN: bool = false;

    /// The alarm of the second array's element.
    #[inline(always)]
    fn second_fault(&self, second: f32) -> u32 {
        flag::logp(second)
    }

    /// What of the gate is long (an exponential).
    #[inline(always)]
    fn stage<A: Arith>(&self, sample: Sample) -> f32 {
        let _ = sample;
        0.0
    }

    /// The rest of the gate, given its stage.
    fn gate_staged(&self, sample: Sample, staged: f32) -> Gated;

    /// Gate of one token.
    #[inline(always)]
    fn gate<A: Arith>(&self, sample: Sample) -> Gated {
        self.gate_staged(sample, self.stage::<A>(sample))
    }

    /// Whether the parameters are in their domain.
    fn check(&self) -> Result<(), Error>;
}

/// Domain check of a scalar parameter.
pub(crate) fn check_scalar(
    argument: &'static str,
    value: f32,
    ok: bool,
    expected: &'static str,
) -> Result<(), Error> {
    if ok {
        return Ok(());
    }
    Err(Error::Value { argument, index: None, expected, got: f64::from(value) })
}
