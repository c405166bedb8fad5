//! Guards of a log-ratio before it is exponentiated: what they do to the value *and* to the gradient.

use crate::Error;
use crate::num::{Arith, Soft};
use crate::require;

/// Guard of a log-ratio d = logp − logp_old.
///
/// | guard | value | gradient where \|d\| > bound | used by |
/// |---|---|---|---|
/// | [`Guard::NONE`] | d | that of d (may overflow to ∞) | TRL, slime, AReaL, NeMo RL |
/// | [`Guard::clamp`] | clip(d, −bound, bound) | 0, as autograd through a clamp | verl, OpenRLHF (bound 20) |
/// | [`Guard::straight_through`] | clip(d, −bound, bound) | as if unclamped | an option |
///
/// The boundary itself counts as inside. Source: docs/maths/conventions.md (verl `core_algos.py`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    bound: f32,
    straight_through: bool,
}

crate::launch_args!(Guard { bound, straight_through });

impl Guard {
    /// No guard.
    pub const NONE: Guard = Guard { bound: f32::INFINITY, straight_through: false };
    /// verl's bound on the log-ratio, in nats.
    pub const LOG_RATIO_CLAMP: f32 = 20.0;

    /// Clamps the value to ±`bound`, with gradient 0 outside.
    pub const fn clamp(bound: f32) -> Self {
        Guard { bound, straight_through: false }
    }

    /// Clamps the value to ±`bound` and keeps the gradient.
    pub const fn straight_through(bound: f32) -> Self {
        Guard { bound, straight_through: true }
    }

    /// Whether the gradient is kept outside the bound.
    #[inline(always)]
    pub const fn is_straight_through(self) -> bool {
        self.straight_through
    }

    /// The guarded log-ratio and whether `d` was inside the bound.
    #[inline(always)]
    pub fn apply(self, d: f32) -> (f32, bool) {
        self.apply_as::<Soft>(d)
    }

    /// [`apply`](Guard::apply) with the instructions of a team's lanes.
    #[inline(always)]
    pub(crate) fn apply_as<A: Arith>(self, d: f32) -> (f32, bool) {
        let guarded = A::at_most(A::at_least(d, -self.bound), self.bound);
        // Unchanged by the clamp; a NaN is not inside.
        (guarded, guarded == d)
    }

    /// Whether `d` is inside the bound: what [`apply`](Guard::apply) says, without the clamp.
    #[inline(always)]
    pub fn holds(self, d: f32) -> bool {
        d.abs() <= self.bound
    }

    /// Whether the gradient is 0 outside the bound and every guarded log-ratio is in the domain of
    /// [`exp_normal`](crate::num::exp_normal).
    #[inline(always)]
    pub fn is_narrow_clamp(self) -> bool {
        self.bound <= 87.0 && !self.straight_through
    }

    /// The gradient after the guard, for a log-ratio that was `inside` the bound or not.
    #[inline(always)]
    pub fn gradient(self, gradient: f32, inside: bool) -> f32 {
        if inside || self.straight_through { gradient } else { 0.0 }
    }

    /// Checks the bound.
    ///
    /// Errors: [`Error::Value`] unless it is positive.
    pub fn check(self) -> Result<(), Error> {
        require::scalar("guard", self.bound > 0.0, "a positive bound", self.bound)
    }
}
