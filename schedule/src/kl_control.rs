//! The coefficient β of a KL penalty from step to step: fixed, or steered towards a target. Plain numbers for
//! the host, not ops.
//!
//! **Formula** (Ziegler et al. 1909.08593 §2.2, as in TRL, verl and OpenRLHF), once per step, with `current`
//! the mean KL measured in the step and `n_steps` the number of units of `horizon` in it (usually samples):
//!
//! ```text
//! error = clip(current/target − 1, −0.2, 0.2)
//! β    ← β·(1 + error·n_steps/horizon)
//! ```
//!
//! **Shapes**: scalars, binary64. The update is a pure function of its arguments, so all ranks that pass the
//! same mean KL hold the same β.
//!
//! **Special cases**: a `current` that is not finite is an error and leaves β unchanged; a negative one (k1
//! of a few samples) is far below the target and lowers β. β stays positive as long as n_steps < 5·horizon;
//! larger values are rejected.

use lockstep_core::Error;
use lockstep_core::require;

/// An adaptive β that follows the measured KL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveKl {
    /// Current β.
    pub value: f64,
    /// Target KL.
    pub target: f64,
    /// Number of samples over which a KL of twice the target raises β by about a fifth.
    pub horizon: f64,
}

/// Bound on |error| in an update.
pub const ERROR_BOUND: f64 = 0.2;

/// A constant β.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedKl {
    /// β.
    pub value: f64,
}

impl FixedKl {
    /// Does nothing and returns β; for code that holds either controller.
    pub fn update(&mut self, _current: f64, _n_steps: u64) -> Result<f64, Error> {
        Ok(self.value)
    }
}

impl AdaptiveKl {
    /// Creates a controller that starts at `value`.
    ///
    /// Errors: a number that is not positive and finite.
    ///
    /// ```
    /// use lockstep_schedule::kl_control::AdaptiveKl;
    /// let mut beta = AdaptiveKl::new(0.2, 6.0, 10_000.0)?;
    /// // Twice the target: clipped to +0.2, a twentieth of the horizon.
    /// assert_eq!(beta.update(12.0, 500)?, 0.2 * 1.01);
    /// # Ok::<(), lockstep_core::Error>(())
    /// ```
    pub fn new(value: f64, target: f64, horizon: f64) -> Result<Self, Error> {
        for (argument, got) in [("kl value", value), ("kl target", target), ("kl horizon", horizon)] {
            require::positive(argument, got)?;
        }
        Ok(AdaptiveKl { value, target, horizon })
    }

    /// Updates β after a step with mean KL `current`, and returns it.
    ///
    /// Errors, which leave β unchanged: a KL that is not finite; `n_steps` of five horizons or more; a β
    /// beyond the range of binary64.
    pub fn update(&mut self, current: f64, n_steps: u64) -> Result<f64, Error> {
        require::finite("current kl", current)?;
        let share = n_steps as f64 / self.horizon;
        if share * ERROR_BOUND >= 1.0 {
            return Err(require::value("n_steps", None, "fewer than 5 times the horizon", n_steps as f64));
        }
        let error = current / self.target - 1.0;
        let error = if error > ERROR_BOUND { ERROR_BOUND } else { error };
        let error = if error < -ERROR_BOUND { -ERROR_BOUND } else { error };
        let value = self.value * (1.0 + error * share);
        require::positive("kl value", value)?;
        self.value = value;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_is_clipped_on_both_sides_and_proportional_between() {
        let after = |current| {
            let mut beta = AdaptiveKl { value: 1.0, target: 5.0, horizon: 100.0 };
            beta.update(current, 10).map(|_| beta.value)
        };
        assert_eq!(after(5.0), Ok(1.0));
        assert!((after(5.5).unwrap_or(0.0) - 1.01).abs() < 1e-15, "error 0.1, a tenth of the horizon");
        assert_eq!((after(1e9), after(6.0)), (Ok(1.0 + 0.2 * 0.1), after(1e9)));
        assert_eq!((after(-3.0), after(0.0)), (Ok(1.0 - 0.2 * 0.1), after(-3.0)));
    }

    #[test]
    fn it_settles_where_the_kl_is_the_target() {
        // A policy whose KL is 1/β.
        let mut beta = AdaptiveKl { value: 10.0, target: 0.5, horizon: 100.0 };
        (0..5000).for_each(|_| assert!(beta.update(1.0 / beta.value, 10).is_ok()));
        assert!((beta.value - 2.0).abs() < 1e-6, "{}", beta.value);
    }

    #[test]
    fn what_is_refused_leaves_it_unchanged() {
        let mut beta = AdaptiveKl { value: 1.0, target: 5.0, horizon: 100.0 };
        assert!(beta.update(f64::NAN, 1).is_err() && beta.update(1.0, 500).is_err());
        assert_eq!(beta.value, 1.0);
        let mut huge = AdaptiveKl { value: f64::MAX, ..beta };
        assert!(huge.update(f64::MAX, 10).is_err() && huge.value == f64::MAX);
        assert!(AdaptiveKl::new(0.0, 1.0, 1.0).is_err() && AdaptiveKl::new(1.0, f64::NAN, 1.0).is_err());
        let mut fixed = FixedKl { value: 0.1 };
        assert_eq!(fixed.update(f64::NAN, 1), Ok(0.1));
    }
}
