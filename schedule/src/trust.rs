//! A test of whether a prior for a prompt's value agrees with its rollouts: V0.5-style (our reading). A host
//! function, not an op.
//!
//! **Formula** (2603.10848, abstract and notes; docs/maths/rewards.md), for n rollouts with mean r̄ and
//! unbiased variance s², and a prior v₀:
//!
//! ```text
//! z = (r̄ − v₀)/√(s²/n + eps)
//! |z| ≤ z_crit   trust: the baseline is the fused one (Baseline::Shrunk)
//! otherwise      one more rollout while n < n_max; at n_max the baseline is r̄
//! ```
//!
//! **Special cases**: without rollouts, the prior is trusted. A mean, variance or prior that is not finite is
//! an error.

use lockstep_core::Error;
use lockstep_core::advantage::Baseline;
use lockstep_core::num::Arith;
use lockstep_core::require;

/// The decision for a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The prior and the rollouts agree: use [`Baseline::Shrunk`].
    Fuse,
    /// They disagree, and another rollout is allowed: sample it.
    Sample,
    /// They disagree, and no rollout is left: use [`Baseline::Mean`].
    Mean,
}

impl Trust {
    /// The baseline for this decision, or `None` while another rollout is needed. The arguments are those of
    /// [`Baseline::Shrunk`].
    pub fn baseline(self, tau2: f64, laplace: bool) -> Option<Baseline> {
        match self {
            Trust::Fuse => Some(Baseline::Shrunk { tau2, laplace }),
            Trust::Sample => None,
            Trust::Mean => Some(Baseline::Mean),
        }
    }
}

/// Parameters of the test of a prior; the formula is in the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrustTest {
    /// Critical |z|; 1.96 is the two-sided 5 % point of a normal distribution. ∞ trusts every prior.
    pub z_crit: f64,
    /// Largest number of rollouts per prompt.
    pub n_max: u32,
    /// Added to the variance of the mean, under the root.
    pub eps: f64,
}

impl TrustTest {
    /// A test with at most `n_max` rollouts, z_crit 1.96 and eps 1e-8 (ours).
    pub fn new(n_max: u32) -> Self {
        TrustTest { z_crit: 1.96, n_max, eps: 1e-8 }
    }

    /// Decides what to do after `n` rollouts with this `mean` and unbiased `variance`.
    ///
    /// Errors: [`Error::Value`] if a parameter is outside its domain; if `prior` is not finite; or, with n
    /// above 0, if `mean` is not finite, or `variance` is negative or not finite.
    ///
    /// ```
    /// use lockstep_schedule::trust::{Trust, TrustTest};
    /// use lockstep_core::num::Soft;
    /// let test = TrustTest::new(8);
    /// // Four rollouts of mean ½ and variance ⅓: a prior of 0.6 is within the noise, one of −1 is not.
    /// assert_eq!(test.decide::<Soft>(0.6, 4, 0.5, 1.0 / 3.0), Ok(Trust::Fuse));
    /// assert_eq!(test.decide::<Soft>(-1.0, 4, 0.5, 1.0 / 3.0), Ok(Trust::Sample));
    /// assert_eq!(test.decide::<Soft>(-1.0, 8, 0.5, 1.0 / 3.0), Ok(Trust::Mean));
    /// ```
    pub fn decide<A: Arith>(&self, prior: f64, n: u32, mean: f64, variance: f64) -> Result<Trust, Error> {
        require::scalar("z_crit", self.z_crit > 0.0, "a positive number", self.z_crit)?;
        require::not_negative("eps", self.eps)?;
        require::finite("prior", prior)?;
        if n == 0 {
            return Ok(Trust::Fuse);
        }
        require::finite("mean", mean)?;
        require::not_negative("variance", variance)?;
        // |z| ≤ z_crit without the division, so that no deviation with no noise is 0 ≤ 0 and trusted.
        let noise = A::sqrt64(variance / f64::from(n) + self.eps);
        let trusted = self.z_crit.is_infinite() || (mean - prior).abs() <= self.z_crit * noise;
        Ok(match trusted {
            true => Trust::Fuse,
            false if n < self.n_max => Trust::Sample,
            false => Trust::Mean,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::num::Soft;

    #[test]
    fn the_edge_of_trust() {
        // s²/n = 1/16: noise ¼, the edge at 0.49 on both sides.
        let test = TrustTest { eps: 0.0, ..TrustTest::new(4) };
        let at = |prior| test.decide::<Soft>(prior, 4, 0.0, 0.25);
        assert_eq!([at(0.49), at(-0.49), at(0.4901)], [Ok(Trust::Fuse), Ok(Trust::Fuse), Ok(Trust::Mean)]);
        assert_eq!(test.decide::<Soft>(0.3, 3, 0.3, 0.0), Ok(Trust::Fuse), "no deviation and no noise");
        assert_eq!(test.decide::<Soft>(0.3, 3, 0.2, 0.0), Ok(Trust::Sample));
        let all = TrustTest { z_crit: f64::INFINITY, ..test };
        assert_eq!(all.decide::<Soft>(0.3, 3, 0.2, 0.0), Ok(Trust::Fuse), "without noise too");
        assert_eq!(test.decide::<Soft>(0.3, 0, f64::NAN, f64::NAN), Ok(Trust::Fuse), "nothing but the prior");
    }

    #[test]
    fn what_is_refused() {
        let test = TrustTest::new(4);
        for (prior, mean, variance, name) in
            [(f64::NAN, 0.0, 0.0, "prior"), (0.0, f64::INFINITY, 0.0, "mean"), (0.0, 0.0, -1.0, "variance")]
        {
            let error = test.decide::<Soft>(prior, 2, mean, variance);
            assert!(matches!(error, Err(Error::Value { argument, .. }) if argument == name), "{name}");
        }
        let test = TrustTest { z_crit: 0.0, ..test };
        assert!(test.decide::<Soft>(0.0, 2, 0.0, 0.0).is_err());
    }
}
