//! The square-root law: rollouts in proportion to the standard deviation.
//!
//! **Formula** (2601.19280, derivation checked; docs/maths/schedules.md): the minimum of Σ_b q_b v_b/n_b
//! subject to Σ_b q_b n_b = n̄ is at
//!
//! ```text
//! n_b = n̄ √v_b / Σ_j q_j √v_j,   shadow price μ = (Σ_j q_j √v_j / n̄)² = v_b/n_b²  for every b
//! ```
//!
//! **Shapes**: `share` (q), `variance` (v), `rollouts` (n) per bin `[B]`. [`rounding`](super::rounding)
//! rounds them to integers.
//!
//! **Special cases**: v_b = 0 gives n_b = 0. If all variances with a share are 0, n_b = n̄/Σq and μ = 0.

use lockstep_core::Error;
use lockstep_core::num::{Arith, Soft};
use lockstep_core::require;

/// Fills `rollouts` and returns the shadow price μ.
///
/// Errors: lengths that disagree; a share or variance below 0 or not finite (with its index); shares that are
/// all 0; n̄ not above 0; a result that is not finite.
pub fn allocate(share: &[f64], variance: &[f64], mean: f64, rollouts: &mut [f64]) -> Result<f64, Error> {
    require::some("share", "one per bin", share.len())?;
    require::length("variance", share.len(), "one per bin", variance.len())?;
    require::length("rollouts", share.len(), "one per bin", rollouts.len())?;
    require::each("share", share, "a finite number, at least 0", |x| x >= 0.0 && x.is_finite())?;
    require::each("variance", variance, "a finite number, at least 0", |x| x >= 0.0 && x.is_finite())?;
    require::positive("mean", mean)?;
    let (mut sum, mut shares) = (0.0, 0.0);
    for (q, v) in share.iter().zip(variance) {
        sum += q * Soft::sqrt64(*v);
        shares += q;
    }
    require::scalar("share", shares > 0.0 && shares.is_finite(), "a sum above 0", shares)?;
    require::scalar("variance", sum.is_finite(), "a finite sum of standard deviations", sum)?;
    for (n, v) in rollouts.iter_mut().zip(variance) {
        *n = if sum > 0.0 { mean * (Soft::sqrt64(*v) / sum) } else { mean / shares };
    }
    require::each("rollouts", rollouts, "a finite number", f64::is_finite)?;
    let root = sum / mean;
    require::finite("price", root * root)?;
    Ok(root * root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_8_7_square_root_law() {
        let (q, v) = ([0.5, 0.3, 0.2], [0.25, 0.09, 0.01]);
        let mut n = [0.0; 3];
        let price = allocate(&q, &v, 4.0, &mut n).unwrap();
        for (n, expected) in n.into_iter().zip([5.555556, 3.333333, 1.111111]) {
            assert!((n - expected).abs() < 1e-6, "{n}");
        }
        assert!((price - 0.0081).abs() < 1e-15);
        for b in 0..3 {
            assert!((v[b] / (n[b] * n[b]) - price).abs() < 1e-15);
        }
        assert!((q[0] * n[0] + q[1] * n[1] + q[2] * n[2] - 4.0).abs() < 1e-14, "the budget");
    }

    #[test]
    fn no_other_allocation_has_less_variance() {
        let (q, v) = ([0.5, 0.3, 0.2], [0.25, 0.09, 0.01]);
        let mut n = [0.0; 3];
        allocate(&q, &v, 4.0, &mut n).unwrap();
        let cost = |n: [f64; 3]| (0..3).map(|b| q[b] * v[b] / n[b]).sum::<f64>();
        for i in -10..=10 {
            for j in -10..=10 {
                let (x, y) = (f64::from(i) * 0.05, f64::from(j) * 0.05);
                // Moved along the budget constraint.
                let other = [n[0] + x, n[1] + y, n[2] - (q[0] * x + q[1] * y) / q[2]];
                assert!(other[2] <= 0.0 || cost(other) >= cost(n) - 1e-15);
            }
        }
    }

    #[test]
    fn without_variance_all_are_alike() {
        let mut n = [0.0; 2];
        assert_eq!(allocate(&[0.5, 0.5], &[0.0, 0.0], 4.0, &mut n), Ok(0.0));
        assert_eq!(n, [4.0, 4.0]);
        allocate(&[0.5, 0.5], &[0.0, 1.0], 4.0, &mut n).unwrap();
        assert_eq!(n, [0.0, 8.0]);
        assert!(allocate(&[1e-300], &[0.0], 1e300, &mut [0.0]).is_err());
        assert!(allocate(&[1.0], &[1.0], 1e-300, &mut [0.0]).is_err());
        let e = allocate(&[0.5, -0.5], &[0.0, 1.0], 4.0, &mut n).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "share", index: Some(1), .. }));
        assert!(matches!(
            allocate(&[0.0], &[1.0], 4.0, &mut [0.0]),
            Err(Error::Value { argument: "share", index: None, .. })
        ));
    }
}
