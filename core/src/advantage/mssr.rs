//! MSSR (2512.18215; maths.md §6.11): the value of a prompt, remembered between its visits. One prompt, one number: plain functions.
//!
//! The advantage is score − value ([`Baseline::Given`](super::Baseline::Given)), [whitened](super::Whiten) over the batch with the
//! population variance, at least 1e-6; tokens are shaped by [`EntropyBonus`](super::EntropyBonus).

use crate::num::{self, Arith};

/// Least ρ: how much of a prompt's past remains after a large drift.
pub const RHO_MIN: f64 = 0.875;
/// Greatest ρ.
pub const RHO_MAX: f64 = 0.96;
/// Drift that halves ρ.
pub const HALF_DRIFT: f64 = 0.06;

/// Beta counts of one prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueTracker {
    /// Decayed successes.
    pub good: f64,
    /// Decayed failures.
    pub bad: f64,
}

impl Default for ValueTracker {
    /// n₀ = 1/(1 − ρ_min) = 8 counts at value 0.5.
    fn default() -> Self {
        ValueTracker { good: 4.0, bad: 4.0 }
    }
}

impl ValueTracker {
    /// v = a/(a + b): read it before the update.
    pub fn value(self) -> f64 {
        self.good / (self.good + self.bad)
    }

    /// After a rollout: a ← ρ a + o, b ← ρ b + (1 − o), with o = 1 where the score is above 0.5.
    #[must_use]
    pub fn updated(self, score: f64, rho: f64) -> Self {
        let hit = if score > 0.5 { 1.0 } else { 0.0 };
        ValueTracker { good: rho * self.good + hit, bad: rho * self.bad + (1.0 - hit) }
    }

    /// Weight of the prompt's sampler: √(v (1 − v)) + 1e-6.
    pub fn sampling_weight<A: Arith>(self) -> f64 {
        priority::<A>(self.value(), 1e-6)
    }
}

/// What SPO adds to a priority (recalled).
pub const SPO_FLOOR: f64 = 0.05;

/// Weight of a prompt of value v in prioritised sampling: √(v (1 − v)) + floor; MSSR 1e-6, SPO [0.05](SPO_FLOOR). A v outside 0..=1 counts as the nearer end.
///
/// ```
/// use lockstep_core::{advantage::mssr::{SPO_FLOOR, priority}, num::Soft};
/// assert_eq!([0.5, 0.0, 1.5].map(|v| priority::<Soft>(v, SPO_FLOOR)), [0.55, 0.05, 0.05]);
/// ```
pub fn priority<A: Arith>(value: f64, floor: f64) -> f64 {
    let spread = value * (1.0 - value);
    A::sqrt64(if spread > 0.0 { spread } else { 0.0 }) + floor
}

/// ρ = clip(2^(−D/0.06), 0.875, 0.96), D = Σ (logp_prev − logp_now) over live tokens; 0.96 at the first visit (`None`) or where D is not
/// finite. One `f32` exponential: within 2 ULP of `f32`. The released code compares with the prompt's previous rollout, position by position,
/// which is another response; pass a real KL estimate where there is one.
pub fn rho<A: Arith>(drift: Option<f64>) -> f64 {
    let drift = drift.unwrap_or(f64::NAN);
    let kept = f64::from(num::exp::<A>((-drift / HALF_DRIFT * core::f64::consts::LN_2) as f32));
    let kept = if kept > RHO_MAX { RHO_MAX } else { kept };
    let kept = if kept < RHO_MIN { RHO_MIN } else { kept };
    if drift.is_finite() { kept } else { RHO_MAX }
}
