//! Whether a prior of a prompt's value may be fused with what its rollouts say: V0.5-style (our reading). For the host, not an op.
//!
//! **Formula** (2603.10848, abstract and notes; docs/maths/rewards.md): n rollouts with mean r̄ and unbiased variance s², prior v₀,
//!
//! ```text
//! z = (r̄ − v₀)/√(s²/n + eps)
//! |z| ≤ z_crit   trust: the baseline is the fused one (Baseline::Shrunk)
//! otherwise      one more rollout while n < n_max; at n_max the baseline is r̄
//! ```
//!
//! **Special cases**: without rollouts the prior is all there is: trust. A mean, variance or prior that is not finite is an error.

use super::Baseline;
use crate::Error;
use crate::num::Arith;

/// What to do with a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The prior and the rollouts agree: [`Baseline::Shrunk`].
    Fuse,
    /// They do not, and there is room for another rollout.
    Sample,
    /// They do not, and there is none: [`Baseline::Mean`].
    Mean,
}

impl Trust {
    /// The baseline that goes with it; none while more rollouts are wanted.
    pub fn baseline(self, tau2: f64, laplace: bool) -> Option<Baseline> {
        match self {
            Trust::Fuse => Some(Baseline::Shrunk { tau2, laplace }),
            Trust::Sample => None,
            Trust::Mean => Some(Baseline::Mean),
        }
    }
}

/// The test of a prior.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrustTest {
    /// Largest |z| that is no surprise; 1.96 is the two-sided 5 % of a normal.
    pub z_crit: f64,
    /// Most rollouts of a prompt.
    pub n_max: u32,
    /// Under the root.
    pub eps: f64,
}

impl TrustTest {
    /// z_crit 1.96, eps 1e-8 (ours), and so many rollouts.
    pub fn new(n_max: u32) -> Self {
        TrustTest { z_crit: 1.96, n_max, eps: 1e-8 }
    }

    /// What to do after `n` rollouts. Errors: parameters outside their domain; a mean, variance or prior that is not finite.
    ///
    /// ```
    /// use lockstep_core::advantage::trust::{Trust, TrustTest};
    /// use lockstep_core::num::Soft;
    /// let test = TrustTest::new(8);
    /// // Four rollouts of mean ½ and variance ⅓: a prior of 0.6 is within the noise, one of −1 is not.
    /// assert_eq!(test.decide::<Soft>(0.6, 4, 0.5, 1.0 / 3.0), Ok(Trust::Fuse));
    /// assert_eq!(test.decide::<Soft>(-1.0, 4, 0.5, 1.0 / 3.0), Ok(Trust::Sample));
    /// assert_eq!(test.decide::<Soft>(-1.0, 8, 0.5, 1.0 / 3.0), Ok(Trust::Mean));
    /// ```
    pub fn decide<A: Arith>(&self, prior: f64, n: u32, mean: f64, variance: f64) -> Result<Trust, Error> {
        let value = |argument, ok, expected, got| match ok {
            true => Ok(()),
            false => Err(Error::Value { argument, index: None, expected, got }),
        };
        value("z_crit", self.z_crit > 0.0, "a positive number", self.z_crit)?;
        value("eps", self.eps >= 0.0 && self.eps.is_finite(), "a finite number of at least 0", self.eps)?;
        value("prior", prior.is_finite(), "a finite number", prior)?;
        if n == 0 {
            return Ok(Trust::Fuse);
        }
        value("mean", mean.is_finite(), "a finite number", mean)?;
        let ok = variance >= 0.0 && variance.is_finite();
        value("variance", ok, "a finite number of at least 0", variance)?;
        // |z| ≤ z_crit without the quotient, so that no deviation and no noise is 0 ≤ 0.
        let noise = A::sqrt64(variance / f64::from(n) + self.eps);
        let trusted = (mean - prior).abs() <= self.z_crit * noise;
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
    use crate::num::Soft;

    #[test]
    fn the_edge_of_trust() {
        // s²/n = 1/16: noise ¼, the edge at 0.49 on both sides.
        let test = TrustTest { eps: 0.0, ..TrustTest::new(4) };
        let at = |prior| test.decide::<Soft>(prior, 4, 0.0, 0.25);
        assert_eq!([at(0.49), at(-0.49), at(0.4901)], [Ok(Trust::Fuse), Ok(Trust::Fuse), Ok(Trust::Mean)]);
        assert_eq!(test.decide::<Soft>(0.3, 3, 0.3, 0.0), Ok(Trust::Fuse), "no deviation and no noise");
        assert_eq!(test.decide::<Soft>(0.3, 3, 0.2, 0.0), Ok(Trust::Sample));
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
