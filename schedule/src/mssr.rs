//! MSSR's value tracker (2512.18215; docs/maths/rewards.md): an estimate of each prompt's value, kept between
//! its visits. One number per prompt, so these are plain host functions.
//!
//! The advantage is score − value ([`Baseline::Given`]), [whitened] over the batch with the population
//! variance floored at 1e-6; [`EntropyBonus`] then shapes it per token.
//!
//! [`Baseline::Given`]: lockstep_core::advantage::Baseline::Given
//! [whitened]: lockstep_core::advantage::Whiten
//! [`EntropyBonus`]: lockstep_core::advantage::EntropyBonus

use lockstep_core::num::{self, Arith};

/// Smallest ρ: the fraction of a prompt's counts that remains after a large drift.
pub const RHO_MIN: f64 = 0.875;
/// Largest ρ.
pub const RHO_MAX: f64 = 0.96;
/// Drift, in nats, that halves ρ (before it is clipped).
pub const HALF_DRIFT: f64 = 0.06;

/// The value of one prompt, as decayed counts of a Beta distribution.
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
    /// A tracker with n₀ counts at `value`, such as the mean of a prompt's first scores (SPO). A value
    /// outside 0 to 1 is clamped; NaN counts as 0.5.
    pub fn starting_at(value: f64) -> Self {
        let counts = 1.0 / (1.0 - RHO_MIN);
        let value = if value.is_nan() { 0.5 } else { value.clamp(0.0, 1.0) };
        ValueTracker { good: counts * value, bad: counts * (1.0 - value) }
    }

    /// The value v = a/(a + b), with a = `good` and b = `bad`. Read it before the update.
    pub fn value(self) -> f64 {
        self.good / (self.good + self.bad)
    }

    /// The tracker after a rollout: a ← ρ a + o, b ← ρ b + (1 − o), with o = 1 if `score` is above 0.5,
    /// else 0.
    #[must_use]
    pub fn updated(self, score: f64, rho: f64) -> Self {
        let hit = if score > 0.5 { 1.0 } else { 0.0 };
        ValueTracker { good: rho * self.good + hit, bad: rho * self.bad + (1.0 - hit) }
    }

    /// Weight of the prompt in prioritised sampling: √(v (1 − v)) + 1e-6.
    pub fn sampling_weight<A: Arith>(self) -> f64 {
        priority::<A>(self.value(), 1e-6)
    }
}

/// The `floor` that SPO adds to a [`priority`] (recalled).
pub const SPO_FLOOR: f64 = 0.05;

/// Weight of a prompt of value v in prioritised sampling: √(v (1 − v)) + floor.
///
/// The floor is 1e-6 in MSSR and [0.05](SPO_FLOOR) in SPO. A value outside 0 to 1 counts as the nearer end.
///
/// ```
/// use lockstep_core::num::Soft;
/// use lockstep_schedule::mssr::{SPO_FLOOR, priority};
/// assert_eq!([0.5, 0.0, 1.5].map(|v| priority::<Soft>(v, SPO_FLOOR)), [0.55, 0.05, 0.05]);
/// ```
pub fn priority<A: Arith>(value: f64, floor: f64) -> f64 {
    let spread = value * (1.0 - value);
    A::sqrt64(if spread > 0.0 { spread } else { 0.0 }) + floor
}

/// The decay of one prompt's counts: ρ = clip(2^(−D/0.06), 0.875, 0.96), with the drift D = Σ
/// (logp_prev − logp_now) over live tokens, in nats.
///
/// ρ is 0.96 at the first visit (`None`) or if D is not finite. Computed with one `f32` exponential: within 2
/// ULP of `f32`. The released code compares position by position with the prompt's previous rollout, which is
/// a different response; pass a true KL estimate where one is available.
pub fn rho<A: Arith>(drift: Option<f64>) -> f64 {
    let drift = drift.unwrap_or(f64::NAN);
    let kept = f64::from(num::exp::<A>((-drift / HALF_DRIFT * core::f64::consts::LN_2) as f32));
    let kept = if kept > RHO_MAX { RHO_MAX } else { kept };
    let kept = if kept < RHO_MIN { RHO_MIN } else { kept };
    if drift.is_finite() { kept } else { RHO_MAX }
}

/// One ρ for all prompts, from the KL divergences of recent steps: the released code's alternative to a
/// [`rho`] per prompt.
///
/// Above `target`, ρ falls as the mean KL grows and reaches its minimum at `until` times the target. At or
/// below the target, ρ *rises* with the KL, from its minimum at 0 to its maximum at the target. That is the
/// opposite of what the released code's comments say, and it jumps at the target; it is kept as released.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GlobalRho {
    /// With fewer values than this, ρ is the [middle](Self::MIDDLE) of its range.
    pub least_values: usize,
    /// Number of most recent values in the mean.
    pub window: usize,
    /// KL, in nats, at which ρ jumps from one branch to the other.
    pub target: f64,
    /// KL, in multiples of `target`, from which ρ is at its minimum; 1 = everywhere above the target.
    pub until: f64,
}

impl GlobalRho {
    /// As first released: the middle below 10 values, a window of 20, target 0.1, minimum from 0.2 on.
    pub const FIRST: GlobalRho = GlobalRho { least_values: 10, window: 20, target: 0.1, until: 2.0 };
    /// As released later: from the first value on, a window of 10, target 0.1, minimum above it.
    pub const LATER: GlobalRho = GlobalRho { least_values: 1, window: 10, target: 0.1, until: 1.0 };
    /// The middle of the range of ρ: the released code's fixed ρ, also used while there are too few values.
    pub const MIDDLE: f64 = 0.5 * (RHO_MIN + RHO_MAX);

    /// ρ after these KL divergences in nats, one per step, oldest first. A NaN mean gives the
    /// [middle](Self::MIDDLE).
    ///
    /// ```
    /// use lockstep_schedule::mssr::GlobalRho;
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
