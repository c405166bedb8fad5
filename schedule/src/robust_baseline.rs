//! Robust group baselines, which a few large weights do not dominate. A host function, not an op.
//!
//! **Formula** (VCPO 2602.17616, alternatives in its code; docs/maths/correction.md), with W the weights of
//! [`Baseline::Weighted`](lockstep_core::advantage::Baseline), the rewards in ascending order, and Q(s) the
//! smallest reward at which the cumulative weight reaches the share s of the sum:
//!
//! ```text
//! weighted median      b = Q(1/2)
//! winsorised mean      b = Σ W clip(R, Q(0.05), Q(0.95)) / (Σ W + 1e-8)
//! ```
//!
//! That the winsorised mean takes its quantiles by the rule of the median is our reading.
//!
//! **Special cases**: NaN rewards are not counted. If the weights sum to 0, or there are no rewards, there is
//! no baseline: the result is NaN.

use lockstep_core::require;
use lockstep_core::{Error, num};

/// VCPO adds this to the sum of the weights in a weighted mean.
pub const VCPO_EPS: f64 = 1e-8;

/// A robust baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Robust {
    /// The weighted median.
    Median,
    /// The weighted mean after clipping to the quantiles Q(s) and Q(1 − s), where this is s (VCPO: 0.05).
    Winsorised(f64),
}

/// Computes the baseline of one group of n responses.
///
/// `rewards` and `weights` are `[n]`; `order` is scratch space, `[n]`. The result is NaN if there is no
/// baseline.
///
/// Errors: [`Error::Length`] if the lengths differ; [`Error::Value`] for an infinite reward, or a weight that
/// is negative or not finite, with its index, and for a share that is negative or at least 0.5.
///
/// ```
/// use lockstep_schedule::robust_baseline::{Robust, baseline};
/// let (rewards, weights, mut order) = ([1.0, 0.0, 0.5], [1.0, 1.0, 3.0], [0; 3]);
/// assert_eq!(baseline(Robust::Median, &rewards, &weights, &mut order)?, 0.5);
/// # Ok::<(), lockstep_core::Error>(())
/// ```
pub fn baseline(rule: Robust, rewards: &[f32], weights: &[f32], order: &mut [u32]) -> Result<f64, Error> {
    let n = rewards.len();
    for (argument, got) in [("weights", weights.len()), ("order", order.len())] {
        require::length(argument, n, "one per reward", got)?;
    }
    require::each("rewards", rewards, "a finite number, or NaN for none", |r| !r.is_infinite())?;
    require::each("weights", weights, "a finite number of at least 0", |w| w >= 0.0 && w.is_finite())?;
    if let Robust::Winsorised(share) = rule {
        let holds = (0.0..0.5).contains(&share);
        require::scalar("share", holds, "at least 0 and below 0.5", share as f32)?;
    }
    let mut counted = 0;
    for i in (0..n).filter(|i| !rewards[*i].is_nan()) {
        order[counted] = i as u32;
        counted += 1;
    }
    let order = &mut order[..counted];
    order.sort_unstable_by(|a, b| rewards[*a as usize].total_cmp(&rewards[*b as usize]).then(a.cmp(b)));
    let weight = |i: u32| f64::from(weights[i as usize]);
    let reward = |i: u32| f64::from(rewards[i as usize]);
    let sum: f64 = order.iter().map(|i| weight(*i)).sum();
    if sum == 0.0 {
        return Ok(num::canonical64(f64::NAN));
    }
    let quantile = |share: f64| {
        let mut reached = 0.0;
        for i in order.iter().filter(|i| weight(**i) > 0.0) {
            reached += weight(*i);
            if reached >= share * sum {
                return reward(*i);
            }
        }
        // The last sum may round to less than its target: return the largest reward.
        order.last().map_or(f64::NAN, |i| reward(*i))
    };
    Ok(match rule {
        Robust::Median => quantile(0.5),
        Robust::Winsorised(share) => {
            let (low, high) = (quantile(share), quantile(1.0 - share));
            order.iter().map(|i| weight(*i) * reward(*i).clamp(low, high)).sum::<f64>() / (sum + VCPO_EPS)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rule: Robust, rewards: &[f32], weights: &[f32]) -> Result<f64, Error> {
        baseline(rule, rewards, weights, &mut [0; 8][..rewards.len()])
    }

    #[test]
    fn median_by_hand() {
        // W (4, 4, 2.25) of R (1, 0, 1): half of 10.25 is reached at 1.
        assert_eq!(of(Robust::Median, &[1.0, 0.0, 1.0], &[4.0, 4.0, 2.25]), Ok(1.0));
        assert_eq!(of(Robust::Median, &[3.0, 1.0, 2.0, 4.0], &[1.0; 4]), Ok(2.0), "the lower of the two");
        assert_eq!(of(Robust::Median, &[3.0, f32::NAN, 1.0], &[1.0, 9.0, 0.0]), Ok(3.0));
        assert_eq!(of(Robust::Median, &[-0.5], &[1e-30]), Ok(-0.5));
    }

    #[test]
    fn winsorised_by_hand() {
        // Twenty equal weights: Q(0.05) is the first, Q(0.95) the nineteenth. Here with weights: Q(0.2) = 0,
        // Q(0.8) = 1.
        let (rewards, weights) = ([100.0, 0.0, 1.0, 0.5], [1.0, 2.0, 6.0, 1.0]);
        assert_eq!(
            of(Robust::Winsorised(0.2), &rewards, &weights),
            Ok((1.0 + 0.0 + 6.0 + 0.5) / (10.0 + 1e-8))
        );
        assert_eq!(
            of(Robust::Winsorised(0.0), &rewards, &weights),
            Ok(106.5 / (10.0 + 1e-8)),
            "nothing is clipped"
        );
    }

    #[test]
    fn nothing_to_average_is_nan_and_bad_input_is_named() {
        assert!(of(Robust::Median, &[], &[]).is_ok_and(f64::is_nan));
        assert!(of(Robust::Winsorised(0.05), &[1.0, f32::NAN], &[0.0, 1.0]).is_ok_and(f64::is_nan));
        assert!(matches!(
            of(Robust::Median, &[1.0], &[-1.0]),
            Err(Error::Value { argument: "weights", index: Some(0), .. })
        ));
        assert!(matches!(
            of(Robust::Median, &[f32::INFINITY], &[1.0]),
            Err(Error::Value { argument: "rewards", .. })
        ));
        assert!(matches!(
            of(Robust::Winsorised(0.5), &[1.0], &[1.0]),
            Err(Error::Value { argument: "share", .. })
        ));
        assert!(matches!(of(Robust::Median, &[1.0], &[]), Err(Error::Length { argument: "weights", .. })));
    }
}
