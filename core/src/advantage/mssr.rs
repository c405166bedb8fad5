//! MSSR (2512.18215; docs/maths/rewards.md): the value of a prompt, remembered between its visits. One prompt, one number: plain functions.
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
    /// n₀ counts at a value, the mean of a prompt's first scores (SPO); outside 0..=1 it counts as the nearer end, NaN as 0.5.
    pub fn starting_at(value: f64) -> Self {
        let counts = 1.0 / (1.0 - RHO_MIN);
        let value = if value.is_nan() { 0.5 } else { value.clamp(0.0, 1.0) };
        ValueTracker { good: counts * value, bad: counts * (1.0 - value) }
    }

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

/// ρ for all prompts, from the KL divergences of the last steps: the released code's other choice, in place of a [`rho`] per prompt.
///
/// Above `target` ρ falls with the mean KL, to its least at `until` times the target. At or below it ρ *rises* with the KL, from its
/// least at 0 to its greatest at the target: the opposite of what the code's comments say, and a jump at the target. Kept as released.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GlobalRho {
    /// With fewer values the middle of the range.
    pub least_values: usize,
    /// The mean is of so many of the last values.
    pub window: usize,
    /// KL at which the two branches meet.
    pub target: f64,
    /// In targets: where ρ is at its least. 1: everywhere above the target.
    pub until: f64,
}

impl GlobalRho {
    /// As first released: the middle below 10 values, the last 20, target 0.1, least at 0.2.
    pub const FIRST: GlobalRho = GlobalRho { least_values: 10, window: 20, target: 0.1, until: 2.0 };
    /// As released later: from the first value on, the last 10, least above 0.1.
    pub const LATER: GlobalRho = GlobalRho { least_values: 1, window: 10, target: 0.1, until: 1.0 };
    /// Between the least and the greatest ρ: the released code's fixed ρ, and what too few values give.
    pub const MIDDLE: f64 = 0.5 * (RHO_MIN + RHO_MAX);

    /// ρ after these KL divergences, one per step, the oldest first. A mean that is no number gives the [middle](Self::MIDDLE).
    ///
    /// ```
    /// use lockstep_core::advantage::mssr::GlobalRho;
    /// assert_eq!(GlobalRho::FIRST.rho(&[0.5; 9]), GlobalRho::MIDDLE);
    /// assert_eq!(GlobalRho::FIRST.rho(&[0.5; 10]), 0.875);
    /// ```
    pub fn rho(self, divergences: &[f64]) -> f64 {
        let (n, kept) = (divergences.len(), divergences.len().min(self.window));
        if n < self.least_values || kept == 0 {
            return Self::MIDDLE;
        }
        let total: f64 = divergences[n - kept..].iter().sum();
        let share = total / kept as f64 / self.target;
        let range = RHO_MAX - RHO_MIN;
        let rho = if share > 1.0 {
            let fallen = share / self.until;
            RHO_MAX - if fallen > 1.0 { 1.0 } else { fallen } * range
        } else {
            RHO_MIN + share * range
        };
        if rho.is_nan() { Self::MIDDLE } else { rho.clamp(RHO_MIN, RHO_MAX) }
    }
}
