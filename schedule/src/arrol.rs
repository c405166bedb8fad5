//! ARRoL-style pruning of live rollouts (our reading): keeps the rollouts whose expected correct fraction is
//! nearest to a target.
//!
//! **Formula** (2603.24840, abstract only; docs/maths/schedules.md): at a checkpoint each of the G live
//! rollouts has a probability of success q_i. Of the subsets that take x from the top and K − x from the
//! bottom of the sorted q, keep the one with the smallest |mean(q) − ρ|, ρ 0.5. Stochastic variant:
//!
//! ```text
//! closeness c_i = 1 − |q_i − ρ| / max(ρ, 1 − ρ) + 1e-3
//! inclusion π_i = min(1, s c_i) with Σ π_i = K,   weight 1/π_i
//! kept by systematic sampling: one uniform number, exactly K
//! ```
//!
//! Σ_kept f_i/π_i is an unbiased estimate of Σ f_i.
//!
//! **Shapes**: `success`, `kept`, `inclusion` `[G]`; `order` scratch `[G]`.
//!
//! **Special cases**: K is at least K_min (2); G <= K keeps everything. If all q are on one side of ρ, the
//! rule keeps the K nearest. Ties: fewer from the top; equal q in index order.

use super::order;
use crate::numbers;
use crate::random::{Purpose, Stream};
use lockstep_core::Error;
use lockstep_core::require;

/// Parameters of the pruning rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrol {
    /// Number of rollouts to keep, K.
    pub keep: u32,
    /// Smallest number to keep, K_min.
    pub least: u32,
    /// Target fraction ρ.
    pub target: f64,
}

impl Default for Arrol {
    fn default() -> Self {
        Arrol { keep: 8, least: 2, target: 0.5 }
    }
}

/// Lower bound of closeness, so that even the farthest rollout is kept occasionally.
const CLOSENESS_MIN: f64 = 1e-3;

impl Arrol {
    fn check(&self, success: &[f64]) -> Result<usize, Error> {
        require::unit("target", self.target)?;
        require::scalar("least", self.least > 0, "at least 1", 0.0)?;
        require::each("success", success, "0 to 1", |q| (0.0..=1.0).contains(&q))?;
        Ok((self.keep.max(self.least) as usize).min(success.len()))
    }

    /// Applies the two-ended rule: marks the kept rollouts and returns their mean q (0 without rollouts).
    ///
    /// Errors: lengths that disagree; a probability outside 0..=1 (with its index); parameters outside their
    /// domain.
    pub fn two_ended(&self, success: &[f64], order: &mut [u32], kept: &mut [bool]) -> Result<f64, Error> {
        let keep = self.check(success)?;
        let g = success.len();
        require::length("order", g, "one per rollout", order.len())?;
        require::length("kept", g, "one per rollout", kept.len())?;
        if keep == 0 {
            return Ok(0.0);
        }
        order::sort(order, |i| success[i as usize]);
        let q = |at: usize| success[order[at] as usize];
        // Highest first. Starting with none from the top, each step adds one there and drops the first of the
        // bottom part.
        let mut sum: f64 = (g - keep..g).map(q).sum();
        let (mut best, mut best_sum, mut best_off) = (0, sum, f64::INFINITY);
        for top in 0..=keep {
            let off = (sum / keep as f64 - self.target).abs();
            if off < best_off {
                (best, best_sum, best_off) = (top, sum, off);
            }
            if top < keep {
                sum += q(top) - q(g - keep + top);
            }
        }
        kept.fill(false);
        for (at, id) in order.iter().enumerate() {
            kept[*id as usize] = at < best || at >= g - keep + best;
        }
        Ok(best_sum / keep as f64)
    }

    /// Computes π of every rollout. Errors: as for [`two_ended`](Self::two_ended).
    pub fn inclusion(&self, success: &[f64], inclusion: &mut [f64]) -> Result<(), Error> {
        let keep = self.check(success)?;
        require::length("inclusion", success.len(), "one per rollout", inclusion.len())?;
        if keep == success.len() {
            inclusion.fill(1.0);
            return Ok(());
        }
        let reach = self.target.max(1.0 - self.target);
        let closeness = |q: f64| 1.0 - (q - self.target).abs() / reach + CLOSENESS_MIN;
        // Rollouts that would be above 1 are kept for sure, and the others share the rest: at most G rounds.
        inclusion.fill(0.0);
        loop {
            let (mut sure, mut sum) = (0, 0.0);
            for (q, p) in success.iter().zip(inclusion.iter()) {
                if *p == 1.0 {
                    sure += 1;
                } else {
                    sum += closeness(*q);
                }
            }
            let share = keep - sure;
            let mut more = false;
            for (q, p) in success.iter().zip(inclusion.iter_mut()).filter(|(_, p)| **p < 1.0) {
                let scaled = share as f64 * closeness(*q) / sum;
                more |= scaled >= 1.0;
                *p = if scaled >= 1.0 { 1.0 } else { scaled };
            }
            if !more || inclusion.iter().filter(|p| **p == 1.0).count() >= keep {
                break;
            }
        }
        if inclusion.iter().filter(|p| **p == 1.0).count() >= keep {
            inclusion.iter_mut().filter(|p| **p < 1.0).for_each(|p| *p = 0.0);
        }
        Ok(())
    }

    /// Draws by systematic sampling with the probabilities of [`inclusion`](Self::inclusion): marks exactly
    /// K. `group` identifies the random stream.
    ///
    /// Errors: lengths that disagree; a probability outside 0..=1 (with its index).
    pub fn draw(inclusion: &[f64], seed: u64, step: u32, group: u32, kept: &mut [bool]) -> Result<(), Error> {
        require::length("kept", inclusion.len(), "one per rollout", kept.len())?;
        require::each("inclusion", inclusion, "0 to 1", |p| (0.0..=1.0).contains(&p))?;
        let u = Stream::new(seed, Purpose::PRUNE, step, group).open();
        let whole = numbers::nearest(inclusion.iter().sum());
        let (mut sum, mut taken, mut last) = (0.0, 0, None);
        for (i, (p, kept)) in inclusion.iter().zip(kept.iter_mut()).enumerate() {
            sum += p;
            // Crosses u + taken; p <= 1, so at most one of them, apart from rounding.
            *kept = taken < whole && sum > u + f64::from(taken);
            taken += u32::from(*kept);
            last = if *p > 0.0 && !*kept { Some(i) } else { last };
        }
        // The sum was rounded to below K and u is next to 1.
        if let Some(i) = last.filter(|_| taken < whole) {
            kept[i] = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_ended(success: &[f64], keep: u32) -> (f64, [bool; 6]) {
        let (mut order, mut kept) = ([0; 6], [false; 6]);
        let arrol = Arrol { keep, ..Arrol::default() };
        let n = success.len();
        let mean = arrol.two_ended(success, &mut order[..n], &mut kept[..n]).unwrap();
        (mean, kept)
    }

    #[test]
    fn the_rule_takes_from_both_ends() {
        let (mean, kept) = two_ended(&[0.9, 0.8, 0.1, 0.2, 0.95, 0.5], 4);
        // Two from each end: 0.95, 0.9, 0.1, 0.2.
        assert_eq!(kept, [true, false, true, true, true, false]);
        assert!((mean - 0.5375).abs() < 1e-15);
    }

    #[test]
    fn one_sided_groups_keep_the_nearest() {
        assert_eq!(
            two_ended(&[0.1, 0.4, 0.2, 0.3, 0.0, 0.05], 2).1,
            [false, true, false, true, false, false]
        );
        assert_eq!(two_ended(&[0.9, 0.6, 0.8, 0.7, 1.0, 0.95], 3).1, [false, true, true, true, false, false]);
    }

    #[test]
    fn never_fewer_than_k_min_nor_more_than_there_are() {
        assert_eq!(two_ended(&[0.0, 1.0, 0.5], 0).1.iter().filter(|k| **k).count(), 2);
        assert_eq!(two_ended(&[0.3], 4), (0.3, [true, false, false, false, false, false]));
        assert_eq!(two_ended(&[], 4).0, 0.0);
    }

    #[test]
    fn the_rule_is_the_best_of_the_contiguous_subsets() {
        for salt in 0..200_u32 {
            let q: [f64; 6] = core::array::from_fn(|i| f64::from((salt * 37 + i as u32 * 101) % 97) / 96.0);
            for keep in 2..=6 {
                let (mean, kept) = two_ended(&q, keep);
                let chosen: f64 = (0..6).filter(|i| kept[*i]).map(|i| q[i]).sum::<f64>() / f64::from(keep);
                assert!(
                    (chosen - mean).abs() < 1e-14 && kept.iter().filter(|k| **k).count() == keep as usize
                );
                let mut sorted = q;
                sorted.sort_by(|a, b| b.partial_cmp(a).unwrap());
                for top in 0..=keep as usize {
                    let ends = sorted[..top].iter().chain(&sorted[6 - keep as usize + top..]);
                    let other = ends.sum::<f64>() / f64::from(keep);
                    assert!((mean - 0.5).abs() <= (other - 0.5).abs() + 1e-14, "{q:?} {keep}");
                }
            }
        }
    }

    #[test]
    fn inclusion_adds_up_and_draws_follow_it() {
        let q = [0.5, 0.45, 0.0, 1.0, 0.7, 0.52];
        let arrol = Arrol { keep: 3, ..Arrol::default() };
        let mut p = [0.0; 6];
        arrol.inclusion(&q, &mut p).unwrap();
        assert!(
            (p.iter().sum::<f64>() - 3.0).abs() < 1e-14 && p.iter().all(|p| (0.0..=1.0).contains(p)),
            "{p:?}"
        );
        let mut seen = [0_u32; 6];
        for step in 0..4000 {
            let mut kept = [false; 6];
            Arrol::draw(&p, 2, step, 0, &mut kept).unwrap();
            assert_eq!(kept.iter().filter(|k| **k).count(), 3);
            (0..6).for_each(|i| seen[i] += u32::from(kept[i]));
        }
        for i in 0..6 {
            // Five standard deviations of a count, plus one for p near 0 or 1.
            let spread = 5.0 * libm::sqrt(4000.0 * p[i] * (1.0 - p[i])) + 1.0;
            assert!(
                (f64::from(seen[i]) - 4000.0 * p[i]).abs() < spread,
                "{i}: {} for {}",
                seen[i],
                4000.0 * p[i]
            );
        }
    }

    #[test]
    fn a_crowd_of_hopeless_ones_does_not_push_a_probability_above_one() {
        let mut p = [0.0; 6];
        Arrol { keep: 3, ..Arrol::default() }.inclusion(&[0.5, 0.5, 0.0, 0.0, 0.0, 0.0], &mut p).unwrap();
        assert_eq!(p[..2], [1.0, 1.0]);
        assert!(p[2..].iter().all(|p| (p - 0.25).abs() < 1e-15));
        Arrol { keep: 9, ..Arrol::default() }.inclusion(&[0.5, 0.0, 1.0], &mut p[..3]).unwrap();
        assert_eq!(p[..3], [1.0; 3]);
    }

    #[test]
    fn wrong_arguments_are_named() {
        let e = Arrol::default().inclusion(&[0.5, 1.5], &mut [0.0; 2]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "success", index: Some(1), .. }));
        let e =
            Arrol { target: 2.0, ..Arrol::default() }.two_ended(&[0.5], &mut [0], &mut [true]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "target", .. }));
    }
}
