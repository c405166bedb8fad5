//! Allocation of rollouts to prompts or bins: square-root law, rounding, XRPO-style (our reading).

use crate::Error;
use lockstep_schedule::rounding::{self, Bounds};
use lockstep_schedule::{square_root_law as law, xrpo as rule};

/// Computes fractional rollouts per bin, `[bins]`, and their shadow price; formula:
/// [`lockstep_schedule::square_root_law`].
///
/// Errors: lengths that disagree; a share or variance that is negative or not finite (index); shares that are
/// all 0; a mean that is not positive.
///
/// ```
/// let (n, price) = lockstep_ops::schedule::square_root_law(&[0.5, 0.3, 0.2], &[0.25, 0.09, 0.01], 4.0)?;
/// assert!((n[0] - 5.555556).abs() < 1e-6 && (price - 0.0081).abs() < 1e-12);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn square_root_law(share: &[f64], variance: &[f64], mean: f64) -> Result<(Vec<f64>, f64), Error> {
    let mut rollouts = vec![0.0; share.len()];
    let price = law::allocate(share, variance, mean, &mut rollouts)?;
    Ok((rollouts, price))
}

/// Rounds rollouts per bin to integers within `bounds`, never above the budget, and returns them with their
/// total; formula: [`lockstep_schedule::rounding`].
///
/// Errors: lengths that disagree; a number that is negative or not finite (index); a budget too small for the
/// lower bounds.
///
/// ```
/// use lockstep_ops::schedule::{largest_remainder, rounding::Bounds};
/// let bounds = Bounds { least: 1, most: 8, budget: 10 };
/// let (n, total) = largest_remainder(&[5.56, 3.33, 1.11], &[1, 1, 1], bounds)?;
/// assert_eq!((n, total), (vec![6, 3, 1], 10));
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn largest_remainder(rollouts: &[f64], count: &[u32], bounds: Bounds) -> Result<(Vec<u32>, u64), Error> {
    let mut rounded = vec![0; rollouts.len()];
    let total = rounding::largest_remainder(rollouts, count, bounds, &mut rounded)?;
    Ok((rounded, total))
}

/// Computes how many of `budget` further rollouts each prompt gets, XRPO-style (our reading); formula:
/// [`lockstep_schedule::xrpo`].
///
/// Errors: no prompts; sums that are not finite (index); a negative exploration.
///
/// ```
/// use lockstep_ops::schedule::Known;
/// let certain = Known { rollouts: 4, sum: 4.0, square: 4.0 };
/// let mixed = Known { rollouts: 4, sum: 2.0, square: 2.0 };
/// assert_eq!(lockstep_ops::schedule::xrpo(&[certain, mixed, Known::default()], 5, 0.0)?[0], 0);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn xrpo(known: &[rule::Known], budget: u32, exploration: f64) -> Result<Vec<u32>, Error> {
    let mut extra = vec![0; known.len()];
    rule::allocate(known, budget, exploration, &mut extra)?;
    Ok(extra)
}
