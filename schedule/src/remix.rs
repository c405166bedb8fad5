//! ReMix: which policy's data a minibatch uses, and the step at which the run restarts on its own data.
//!
//! **Formula** (2507.06892, by a detailed note; docs/maths/correction.md): with probability p (0.4) a
//! minibatch comes from an earlier policy k − i, with i from a window of N (2); otherwise from the latest, i
//! = 0. Every batch is used m (2) times. At step T (50 or 100) the run is *reincarnated*: the policy of step
//! T becomes the base policy of the KL-convex term, and from then on all data come from the latest policy.
//!
//! **Special cases**: a window that reaches back beyond the first policy ends there. p = 0 and N = 0 give
//! PPO.
//!
//! **Variants**: the paper's distribution over the window was not available; uniform is our choice. The clip
//! is [`Remix`](lockstep_core::gate::Remix), λ is
//! [`kl_convex_lambda`](lockstep_core::gate::remix::kl_convex_lambda).

use crate::random::{Purpose, Stream};
use lockstep_core::Error;
use lockstep_core::require;

/// Parameters of the data mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Probability p of historical data, 0 to 1.
    pub historical: f64,
    /// Window N: how many policies back.
    pub window: u32,
    /// Number of times m that a batch is used.
    pub uses: u32,
    /// Reincarnation step T; absent for never.
    pub reincarnation: Option<u32>,
}

impl Default for Mix {
    fn default() -> Self {
        Mix { historical: 0.4, window: 2, uses: 2, reincarnation: Some(50) }
    }
}

impl Mix {
    /// Returns the lag i of a minibatch at `step`: 0 is the latest policy's data.
    ///
    /// Errors: a probability outside 0 to 1.
    ///
    /// ```
    /// use lockstep_schedule::remix::Mix;
    /// let mix = Mix::default();
    /// assert_eq!(mix.lag(1234, 0, 7)?, 0, "there is no earlier policy");
    /// assert!((0..20).all(|minibatch| mix.lag(1234, 10, minibatch).unwrap() <= 2));
    /// assert_eq!((0..20).map(|minibatch| mix.lag(1234, 50, minibatch).unwrap()).max(), Some(0));
    /// # Ok::<(), lockstep_core::Error>(())
    /// ```
    pub fn lag(&self, seed: u64, step: u32, minibatch: u32) -> Result<u32, Error> {
        require::unit("historical", self.historical)?;
        let reach = self.window.min(step);
        let mut stream = Stream::new(seed, Purpose::REMIX, step, minibatch);
        let earlier = stream.uniform() < self.historical;
        let past = self.reincarnation.is_some_and(|at| step >= at);
        if !earlier || past || reach == 0 { Ok(0) } else { Ok(1 + stream.below(reach.into()) as u32) }
    }

    /// Whether the policy of this step becomes the base policy of the KL-convex term.
    pub fn reincarnates(&self, step: u32) -> bool {
        self.reincarnation == Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_window() {
        let mix = Mix { reincarnation: None, ..Mix::default() };
        let mut seen = [0_u32; 3];
        for minibatch in 0..10_000 {
            seen[mix.lag(3, 9, minibatch).unwrap() as usize] += 1;
        }
        // 0.6, 0.2, 0.2; five standard deviations are 245 and 200.
        assert!(seen[0].abs_diff(6000) < 245 && seen[1].abs_diff(2000) < 200, "{seen:?}");
        assert_eq!((0..100).map(|m| mix.lag(3, 1, m).unwrap()).max(), Some(1), "one policy back at step 1");
        let ppo = Mix { historical: 0.0, ..mix };
        assert!((0..100).all(|m| ppo.lag(3, 9, m) == Ok(0)));
        assert!((0..100).all(|m| Mix { window: 0, ..mix }.lag(3, 9, m) == Ok(0)));
    }

    #[test]
    fn reincarnation_and_bad_shares() {
        let mix = Mix::default();
        assert_eq!([49, 50, 51].map(|step| mix.reincarnates(step)), [false, true, false]);
        assert!(
            (0..100).any(|m| mix.lag(1, 49, m).unwrap() > 0) && (0..100).all(|m| mix.lag(1, 60, m) == Ok(0))
        );
        for bad in [-0.1, 1.1, f64::NAN] {
            let error = Mix { historical: bad, ..mix }.lag(1, 1, 1).unwrap_err();
            assert!(matches!(error, Error::Value { argument: "historical", .. }));
        }
    }
}
