//! Rounds fractional rollout counts: largest remainder, within bounds, never above the budget.
//!
//! **Formula** (docs/maths/schedules.md; weighting by prompts is ours): n_b = ⌊x_b⌋ clamped to n_min..=n_max.
//! While Σ count_b n_b exceeds the budget, one is taken from the bin with the smallest remainder x_b − n_b;
//! then, while one more fits, one is given to the bin with the largest. Ties: taken from the higher index and
//! given to the lower, so the lower index keeps more.
//!
//! With one prompt per bin and Σ x_b = budget this is the method of largest remainders, and the budget is met
//! exactly.
//!
//! **Special cases**: bins without prompts cost nothing and keep their clamped floor. The unused part of the
//! budget is less than the number of prompts of any bin below n_max.

use lockstep_core::Error;
use lockstep_core::require;

/// Bounds the number of steps.
const MOST: u32 = 65_536;

/// Bounds and budget of the allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Smallest number of rollouts per prompt, n_min.
    pub least: u32,
    /// Largest number of rollouts per prompt, n_max.
    pub most: u32,
    /// Largest total number of rollouts.
    pub budget: u64,
}

/// Rounds `rollouts` into `rounded`, both `[B]`, and returns Σ count·n.
///
/// Errors: lengths that disagree; an x that is below 0 or not finite (with its index); n_max below n_min or
/// above 65536; a budget below Σ count·n_min.
pub fn largest_remainder(
    rollouts: &[f64],
    count: &[u32],
    bounds: Bounds,
    rounded: &mut [u32],
) -> Result<u64, Error> {
    let Bounds { least, most, budget } = bounds;
    require::length("count", rollouts.len(), "one per bin", count.len())?;
    require::length("rounded", rollouts.len(), "one per bin", rounded.len())?;
    require::each("rollouts", rollouts, "a finite number, at least 0", |x| x >= 0.0 && x.is_finite())?;
    require::scalar("most", most >= least, "at least `least`", most)?;
    require::scalar("most", most <= MOST, "at most 65536 rollouts of a prompt", most)?;
    let needed: u128 = count.iter().map(|n| u128::from(*n) * u128::from(least)).sum();
    let budget = u128::from(budget);
    require::scalar("budget", budget >= needed, "at least `least` for every prompt", budget as f64)?;
    let mut total = 0_u128;
    for (b, n) in rounded.iter_mut().enumerate() {
        *n = (rollouts[b] as u32).clamp(least, most);
        total += u128::from(count[b]) * u128::from(*n);
    }
    let remainder = |rounded: &[u32], b: usize| rollouts[b] - f64::from(rounded[b]);
    while total > budget {
        let mut from = None;
        for b in (0..rounded.len()).filter(|b| count[*b] > 0 && rounded[*b] > least) {
            if from.is_none_or(|f| remainder(rounded, b) <= remainder(rounded, f)) {
                from = Some(b);
            }
        }
        let Some(b) = from else { break };
        rounded[b] -= 1;
        total -= u128::from(count[b]);
    }
    loop {
        let mut to = None;
        let fits = |b: usize| count[b] > 0 && u128::from(count[b]) <= budget.saturating_sub(total);
        for b in (0..rounded.len()).filter(|b| fits(*b) && rounded[*b] < most) {
            if to.is_none_or(|t| remainder(rounded, b) > remainder(rounded, t)) {
                to = Some(b);
            }
        }
        let Some(b) = to else { return Ok(total as u64) };
        rounded[b] += 1;
        total += u128::from(count[b]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(x: [f64; 3], count: [u32; 3], least: u32, most: u32, budget: u64) -> (u64, [u32; 3]) {
        let mut n = [0; 3];
        (largest_remainder(&x, &count, Bounds { least, most, budget }, &mut n).unwrap(), n)
    }

    #[test]
    fn worked_8_7_square_root_law_rounded() {
        let x = [5.555556, 3.333333, 1.111111];
        assert_eq!(round(x, [1; 3], 1, 8, 10), (10, [6, 3, 1]));
        // Ten prompts split 0.5, 0.3, 0.2 and 40 rollouts. The floors cost 25 + 9 + 2 = 36; five more do not
        // fit, three do, and then nothing does.
        assert_eq!(round(x, [5, 3, 2], 1, 8, 40), (39, [5, 4, 1]));
    }

    #[test]
    fn clamps_and_ties() {
        assert_eq!(round([0.0, 0.0, 12.0], [1; 3], 2, 8, 12), (12, [2, 2, 8]));
        assert_eq!(round([1.5, 1.5, 1.0], [1; 3], 0, 8, 4), (4, [2, 1, 1]), "the lower index");
        assert_eq!(
            round([0.0, 5.0, 5.0], [1; 3], 2, 8, 10),
            (10, [2, 4, 4]),
            "taken back for the raised bin"
        );
        assert_eq!(round([0.0, 5.0, 5.0], [1; 3], 2, 8, 11), (11, [2, 5, 4]), "from the higher index");
        assert_eq!(round([9.0; 3], [1; 3], 0, 2, 100), (6, [2; 3]), "all at the top");
        assert_eq!(round([2.0; 3], [0; 3], 1, 4, 0), (0, [2; 3]), "no prompts");
    }

    #[test]
    fn the_budget_is_met_exactly_with_one_prompt_per_bin() {
        for i in 0..500 {
            let x = [f64::from(i % 17) * 0.61, f64::from(i % 23) * 0.37, f64::from(i % 7) * 1.3];
            let budget = (x[0] + x[1] + x[2]) as u64;
            let (total, n) = round(x, [1; 3], 0, 100, budget);
            assert_eq!(total, budget);
            // Quota: within one of the fractional allocation.
            assert!((0..3).all(|b| (f64::from(n[b]) - x[b]).abs() <= 1.0), "{x:?} {n:?}");
        }
    }

    #[test]
    fn wrong_arguments_are_named() {
        let mut n = [0; 2];
        let bounds = Bounds { least: 1, most: 4, budget: 5 };
        let e = largest_remainder(&[1.0, f64::NAN], &[1, 1], bounds, &mut n).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "rollouts", index: Some(1), .. }));
        let e = largest_remainder(&[1.0, 1.0], &[3, 3], bounds, &mut n).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "budget", .. }));
    }
}
