//! GDRO's difficulty bins: online pass rate over a window, uniform edges, hysteresis at the boundaries.
//!
//! **Formula** (2601.19280; maths.md §7.3): accuracy p = passes among the last H observations (0 when there is none); bin ⌊p·B⌋, p = 1 in the last.
//! A prompt stays in bin b while b/B − δ <= p <= (b + 1)/B + δ, else moves to ⌊p·B⌋.
//!
//! An observation is one pass@k outcome: whether one of the k rollouts was right.
//!
//! **Special cases**: H from 1 to 64 (the window is one word). δ = 0: an accuracy on the upper edge stays, since both bins own their edge.

use super::require;
use crate::Error;

/// The last observations of one prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    passes: u64,
    seen: u32,
}

impl Window {
    /// With one more observation.
    pub fn observe(self, passed: bool) -> Self {
        Window { passes: self.passes << 1 | u64::from(passed), seen: (self.seen + 1).min(64) }
    }

    /// Passes among the last `horizon` observations. Errors: a horizon outside 1..=64.
    pub fn accuracy(self, horizon: u32) -> Result<f64, Error> {
        require::scalar("horizon", (1..=64).contains(&horizon), "1 to 64", horizon.into())?;
        let seen = self.seen.min(horizon);
        if seen == 0 {
            return Ok(0.0);
        }
        Ok(f64::from((self.passes << (64 - seen)).count_ones()) / f64::from(seen))
    }
}

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bins {
    /// B, at least 1.
    pub count: u32,
    /// δ, at least 0.
    pub margin: f64,
}

/// Ten bins; δ of 0, the paper's number being unknown to us.
impl Default for Bins {
    fn default() -> Self {
        Bins { count: 10, margin: 0.0 }
    }
}

impl Bins {
    /// The bin of a prompt that was in `before` (`None`: new). Errors: accuracy outside 0..=1, parameters, a bin that is not there.
    pub fn of(&self, accuracy: f64, before: Option<u32>) -> Result<u32, Error> {
        require::scalar("accuracy", (0.0..=1.0).contains(&accuracy), "0 to 1", accuracy)?;
        require::scalar("count", self.count > 0, "at least 1", 0.0)?;
        require::scalar("margin", self.margin >= 0.0, "at least 0", self.margin)?;
        let count = f64::from(self.count);
        if let Some(b) = before {
            require::scalar("before", b < self.count, "a bin", b.into())?;
            let (low, high) = (f64::from(b) / count, f64::from(b + 1) / count);
            if low - self.margin <= accuracy && accuracy <= high + self.margin {
                return Ok(b);
            }
        }
        Ok(((accuracy * count) as u32).min(self.count - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_forgets() {
        let mut w = Window::default();
        assert_eq!(w.accuracy(4), Ok(0.0), "unseen");
        for passed in [true, true, false, false, true] {
            w = w.observe(passed);
        }
        assert_eq!(
            (w.accuracy(5), w.accuracy(64), w.accuracy(3), w.accuracy(1)),
            (Ok(0.6), Ok(0.6), Ok(1.0 / 3.0), Ok(1.0))
        );
        for _ in 0..100 {
            w = w.observe(true);
        }
        assert_eq!(w.accuracy(64), Ok(1.0));
        assert!(matches!(w.accuracy(65), Err(Error::Value { argument: "horizon", .. })));
    }

    #[test]
    fn edges_are_uniform_and_the_last_bin_has_one() {
        let bins = Bins::default();
        for (accuracy, bin) in [(0.0, 0), (0.05, 0), (0.1, 1), (0.55, 5), (0.999, 9), (1.0, 9)] {
            assert_eq!(bins.of(accuracy, None), Ok(bin), "{accuracy}");
        }
    }

    #[test]
    fn hysteresis_holds_within_the_margin_alone() {
        let bins = Bins { count: 10, margin: 0.02 };
        assert_eq!(bins.of(0.515, Some(4)), Ok(4));
        assert_eq!(bins.of(0.525, Some(4)), Ok(5));
        assert_eq!(bins.of(0.385, Some(4)), Ok(4));
        assert_eq!(bins.of(0.375, Some(4)), Ok(3));
        assert_eq!(bins.of(0.95, Some(0)), Ok(9), "several bins at once");
        assert!(matches!(bins.of(0.5, Some(10)), Err(Error::Value { argument: "before", .. })));
        assert!(matches!(bins.of(f64::NAN, None), Err(Error::Value { argument: "accuracy", .. })));
    }
}
