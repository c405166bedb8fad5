//! XRPO-style rollout allocation (our reading): the next rollout goes where it narrows the estimate most,
//! with an exploration bonus.
//!
//! **Formula** (2510.06672, from reviews; docs/maths/schedules.md), with n rollouts so far of prompt q and T
//! of all prompts:
//!
//! ```text
//! Π_q = t_{0.975, n−1} s_q (1/√n − 1/√(n+1)) + λ √(ln(1 + T)/n)
//! s_q: standard deviation (n − 1) of the rewards; for n < 2, √(p (1 − p)) with p = (correct + 1)/(n + 2)
//! ```
//!
//! Greedy: each rollout of a round goes to the prompt with the largest Π. n and T count it immediately, while
//! s stays as measured.
//!
//! **Special cases**: n = 0 has Π = +∞, so every prompt is tried first, in index order. n = 1 uses one degree
//! of freedom. Ties go to the lower index.

use super::student_t;
use lockstep_core::Error;
use lockstep_core::num::{self, Arith, Soft};
use lockstep_core::require;

/// Observed statistics of one prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known {
    /// Number of rollouts n.
    pub rollouts: u32,
    /// Sum of the rewards.
    pub sum: f64,
    /// Sum of the squared rewards.
    pub square: f64,
}

impl Known {
    /// Returns the statistics with one more reward.
    pub fn observe(self, reward: f64) -> Self {
        Known {
            rollouts: self.rollouts.saturating_add(1),
            sum: self.sum + reward,
            square: self.square + reward * reward,
        }
    }

    /// Standard deviation s.
    pub fn deviation(self) -> f64 {
        let n = f64::from(self.rollouts);
        if self.rollouts < 2 {
            let p = ((self.sum + 1.0) / (n + 2.0)).clamp(0.0, 1.0);
            return Soft::sqrt64(p * (1.0 - p));
        }
        // Not below 0 if all rewards are equal.
        Soft::sqrt64(((self.square - self.sum * self.sum / n) / (n - 1.0)).max(0.0))
    }
}

/// Computes Π for a prompt with `rollouts` rollouts of `total` over all prompts.
pub fn priority(deviation: f64, rollouts: u32, total: u64, exploration: f64) -> f64 {
    if rollouts == 0 {
        return f64::INFINITY;
    }
    let n = f64::from(rollouts);
    let t = student_t::quantile_975(rollouts.saturating_sub(1).max(1));
    let narrowing = t * deviation * (1.0 / Soft::sqrt64(n) - 1.0 / Soft::sqrt64(n + 1.0));
    narrowing + exploration * Soft::sqrt64(num::ln64(1.0 + total as f64) / n)
}

/// Distributes `budget` rollouts: writes the number of each prompt to `extra`. O(budget · prompts).
///
/// Errors: no prompt; lengths that disagree; sums that are not finite (with the index); λ below 0 or not
/// finite.
pub fn allocate(known: &[Known], budget: u32, exploration: f64, extra: &mut [u32]) -> Result<(), Error> {
    require::some("known", "one entry per prompt", known.len())?;
    require::length("extra", known.len(), "one per prompt", extra.len())?;
    let inside = exploration >= 0.0 && exploration.is_finite();
    require::scalar("exploration", inside, "a finite number, at least 0", exploration)?;
    for (i, k) in known.iter().enumerate() {
        for x in [k.sum, k.square, k.sum * k.sum] {
            if !x.is_finite() {
                return Err(require::value("known", Some(i), "finite sums", x));
            }
        }
    }
    let before: u64 = known.iter().map(|k| u64::from(k.rollouts)).sum();
    extra.fill(0);
    for given in 0..budget {
        let total = before.saturating_add(given.into());
        let of = |i: usize| {
            priority(known[i].deviation(), known[i].rollouts.saturating_add(extra[i]), total, exploration)
        };
        let (mut best, mut best_priority) = (0, of(0));
        for i in 1..known.len() {
            let p = of(i);
            if p > best_priority {
                (best, best_priority) = (i, p);
            }
        }
        extra[best] += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(rewards: &[f64]) -> Known {
        rewards.iter().fold(Known::default(), |k, r| k.observe(*r))
    }

    #[test]
    fn the_priority_is_the_formula() {
        let k = known(&[1.0, 0.0, 1.0, 1.0]);
        assert!((k.deviation() - 0.5).abs() < 1e-15);
        let expected =
            3.182_446_305_3 * 0.5 * (0.5 - 1.0 / libm::sqrt(5.0)) + 0.3 * libm::sqrt(libm::log(41.0) / 4.0);
        assert!((priority(k.deviation(), 4, 40, 0.3) - expected).abs() < 1e-12);
        assert!((known(&[1.0]).deviation() - libm::sqrt(2.0 / 9.0)).abs() < 1e-15, "Laplace: 2/3");
        assert_eq!(known(&[0.1; 3]).deviation().to_bits() >> 63, 0, "never the root of a negative number");
    }

    #[test]
    fn untried_prompts_come_first_then_the_uncertain() {
        let prompts =
            [known(&[1.0, 1.0, 1.0, 1.0]), Known::default(), known(&[1.0, 0.0, 1.0, 0.0]), Known::default()];
        let mut extra = [0; 4];
        allocate(&prompts, 2, 0.0, &mut extra).unwrap();
        assert_eq!(extra, [0, 1, 0, 1]);
        allocate(&prompts[..3], 12, 0.0, &mut extra[..3]).unwrap();
        assert_eq!(
            (extra[0], extra[1] + extra[2]),
            (0, 12),
            "a prompt without spread gets nothing without a bonus"
        );
        allocate(&prompts, 40, 5.0, &mut extra).unwrap();
        assert!(extra[0] > 0 && extra.iter().sum::<u32>() == 40, "{extra:?}");
    }

    #[test]
    fn equal_prompts_get_equal_shares() {
        let prompts = [known(&[1.0, 0.0]); 4];
        let mut extra = [0; 4];
        allocate(&prompts, 10, 0.1, &mut extra).unwrap();
        assert_eq!(extra, [3, 3, 2, 2]);
    }

    #[test]
    fn wrong_arguments_are_named() {
        let bad = [known(&[1.0]), known(&[f64::NAN])];
        let e = allocate(&bad, 1, 0.0, &mut [0; 2]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "known", index: Some(1), .. }));
        assert!(matches!(allocate(&[], 1, 0.0, &mut []), Err(Error::Empty { argument: "known", .. })));
        let e = allocate(&bad[..1], 1, -1.0, &mut [0]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "exploration", .. }));
    }
}
