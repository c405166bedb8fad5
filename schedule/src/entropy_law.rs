//! The entropy law: reward as a linear function of e^entropy, and the ceiling that it forecasts.
//!
//! **Formula** (2505.22617, R = −a·e^H + b; docs/maths/schedules.md), fitted by least squares over points (H,
//! R), x = e^H:
//!
//! ```text
//! a  = −Σ (x − x̄)(R − R̄)/Σ (x − x̄)²
//! b  = R̄ + a·x̄
//! R² = (Σ (x − x̄)(R − R̄))²/(Σ (x − x̄)²·Σ (R − R̄)²)
//! ceiling = b − a, the reward at H = 0
//! ```
//!
//! The paper fits a and b over the first steps of a run and forecasts the rest. Validation reward and entropy
//! are means over a step.
//!
//! **Shapes**: `entropy` (nats per token), `reward` `[n]`, one per step.
//!
//! **Special cases**: if all entropies are equal, no line fits: an error. If all rewards are equal, a is 0
//! and there is no R².

use lockstep_core::Error;
use lockstep_core::num;
use lockstep_core::require;

/// Largest entropy whose exponential is finite with room for sums.
const MOST: f64 = 300.0;

/// A fitted law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EntropyLaw {
    /// How much reward a unit of e^H costs.
    pub a: f64,
    /// The intercept.
    pub b: f64,
    /// The share of the rewards' variance that the line explains; `None` if they do not vary.
    pub r_squared: Option<f64>,
}

impl EntropyLaw {
    /// Fits the law to the steps of a run.
    ///
    /// Errors: lengths that disagree; fewer than two points; an entropy that is not finite or above 300; a
    /// reward that is not finite or beyond 1e100 (index); entropies that do not vary.
    ///
    /// ```
    /// use lockstep_schedule::entropy_law::EntropyLaw;
    /// let law = EntropyLaw::fit(&[1.0, 0.5, 0.2], &[0.22822, 0.54908, 0.67728])?;
    /// assert!((law.a - 0.3).abs() < 1e-4 && (law.ceiling() - 0.7437).abs() < 1e-4);
    /// # Ok::<(), lockstep_core::Error>(())
    /// ```
    pub fn fit(entropy: &[f64], reward: &[f64]) -> Result<Self, Error> {
        require::length("reward", entropy.len(), "one per entropy", reward.len())?;
        require::scalar("entropy", entropy.len() >= 2, "at least two points", entropy.len() as f64)?;
        require::each("entropy", entropy, "a finite number, at most 300", |h| h.is_finite() && h <= MOST)?;
        require::each("reward", reward, "a number of at most 1e100", |r| r.abs() <= 1e100)?;
        let n = entropy.len() as f64;
        // Counted from the first point, so that the mean of equal values is exact.
        let (x0, r0) = (num::exp64(entropy[0]), reward[0]);
        let (x, r) = (|| entropy.iter().map(|h| num::exp64(*h) - x0), || reward.iter().map(|r| r - r0));
        let (mx, mr) = (x().sum::<f64>() / n, r().sum::<f64>() / n);
        let (mut xr, mut xx, mut rr) = (0.0, 0.0, 0.0);
        for (x, r) in x().zip(r()) {
            xr += (x - mx) * (r - mr);
            xx += (x - mx) * (x - mx);
            rr += (r - mr) * (r - mr);
        }
        require::scalar("entropy", xx > 0.0, "at least two distinct values", entropy[0])?;
        let a = -xr / xx;
        // The product of the slopes of both regressions: the product of the sums may overflow or underflow.
        let r_squared = (rr > 0.0).then(|| (xr / xx * (xr / rr)).min(1.0));
        Ok(EntropyLaw { a, b: r0 + mr + a * (x0 + mx), r_squared })
    }

    /// The reward that the law forecasts at an entropy in nats, b − a·e^H.
    pub fn reward(&self, entropy: f64) -> f64 {
        self.b - self.a * num::exp64(entropy)
    }

    /// The reward at H = 0, when there is no entropy left to trade.
    pub fn ceiling(&self) -> f64 {
        self.b - self.a
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    const LN_2: f64 = core::f64::consts::LN_2;

    /// By hand, x = 1, 2, 4 and R = 5, 3, 2: x̄ 7/3, R̄ 10/3; Σ xx 14/3, Σ xR −13/3, Σ RR 14/3.
    #[test]
    fn three_points_by_hand() {
        let law = EntropyLaw::fit(&[0.0, LN_2, 2.0 * LN_2], &[5.0, 3.0, 2.0]).unwrap();
        for (found, expected) in [
            (law.a, 13.0 / 14.0),
            (law.b, 10.0 / 3.0 + 13.0 / 6.0),
            (law.r_squared.unwrap(), 169.0 / 196.0),
            (law.ceiling(), 5.5 - 13.0 / 14.0),
            (law.reward(LN_2), 5.5 - 13.0 / 7.0),
        ] {
            assert!((found - expected).abs() < 1e-13, "{found} {expected}");
        }
    }

    #[test]
    fn points_of_the_law_give_it_back() {
        let mut stream = Stream::new(7, Purpose(2000), 0, 0);
        for _ in 0..200 {
            let (a, b) = (stream.uniform() - 0.3, stream.normal());
            let entropy: [f64; 9] = core::array::from_fn(|_| 2.0 * stream.uniform());
            let law = EntropyLaw::fit(&entropy, &entropy.map(|h| b - a * num::exp64(h))).unwrap();
            assert!((law.a - a).abs() < 1e-9 && (law.ceiling() - (b - a)).abs() < 1e-9);
            assert!((law.r_squared.unwrap() - 1.0).abs() < 1e-6);
        }
    }

    /// No other line has a smaller sum of squares.
    #[test]
    fn the_residuals_are_least() {
        let (entropy, reward) = ([1.2, 0.9, 0.4, 0.35, 0.1], [0.1, 0.35, 0.4, 0.6, 0.55]);
        let law = EntropyLaw::fit(&entropy, &reward).unwrap();
        let left = |a: f64, b: f64| -> f64 {
            let other = EntropyLaw { a, b, r_squared: None };
            entropy.iter().zip(&reward).map(|(h, r)| (other.reward(*h) - r) * (other.reward(*h) - r)).sum()
        };
        let least = left(law.a, law.b);
        for (da, db) in [(1e-3, 0.0), (-1e-3, 0.0), (0.0, 1e-3), (0.0, -1e-3), (1e-3, 2e-3), (-1e-3, -2e-3)] {
            assert!(left(law.a + da, law.b + db) > least);
        }
        // R² is what is left of the spread around the mean.
        let mean = reward.iter().sum::<f64>() / 5.0;
        let spread: f64 = reward.iter().map(|r| (r - mean) * (r - mean)).sum();
        assert!((law.r_squared.unwrap() - (1.0 - least / spread)).abs() < 1e-12);
    }

    /// Two points lie on a line, at the ends of the domain too.
    #[test]
    fn large_and_small_numbers_have_their_share() {
        for (entropy, reward) in [([300.0, 0.0], [1e100, 0.0]), ([-300.0, -301.0], [1e-40, 0.0])] {
            let share = EntropyLaw::fit(&entropy, &reward).unwrap().r_squared.unwrap();
            assert!((share - 1.0).abs() < 1e-12, "{share}");
        }
    }

    #[test]
    fn what_has_no_line() {
        assert_eq!(EntropyLaw::fit(&[0.0, LN_2], &[0.5, 0.5]).unwrap().r_squared, None);
        // Whatever the rounding of a mean: 0.1 + 0.1 + 0.1 is not 3·0.1, and the same for e^0.3.
        for r in [0.1, 0.7, -1.3] {
            let flat = EntropyLaw::fit(&[0.1, 0.2, 0.4], &[r; 3]).unwrap();
            assert_eq!((flat.a, flat.b, flat.r_squared), (0.0, r, None));
        }
        for h in 0..100 {
            assert!(
                EntropyLaw::fit(&[0.01 * f64::from(h); 7], &[1.0, 2.0, 3.0, 5.0, 4.0, 1.0, 0.0]).is_err()
            );
        }
        // Corners of a square.
        let square = EntropyLaw::fit(&[0.0, 0.0, LN_2, LN_2], &[0.0, 1.0, 0.0, 1.0]).unwrap();
        assert!(square.r_squared.unwrap() < 1e-12 && square.a.abs() < 1e-12);
        let value = |entropy: &[f64], reward: &[f64]| match EntropyLaw::fit(entropy, reward) {
            Err(Error::Value { argument, index, .. }) => (argument, index),
            other => panic!("{other:?}"),
        };
        assert_eq!(value(&[1.0], &[1.0]), ("entropy", None));
        assert_eq!(value(&[1.0, 1.0], &[1.0, 2.0]), ("entropy", None));
        assert_eq!(value(&[1.0, f64::NAN], &[1.0, 2.0]), ("entropy", Some(1)));
        assert_eq!(value(&[1.0, 400.0], &[1.0, 2.0]), ("entropy", Some(1)));
        assert_eq!(value(&[1.0, 2.0], &[f64::INFINITY, 2.0]), ("reward", Some(0)));
        assert!(matches!(EntropyLaw::fit(&[1.0], &[]), Err(Error::Length { argument: "reward", .. })));
    }
}
