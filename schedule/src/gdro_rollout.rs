//! Rollout-GDRO: one bandit per difficulty bin chooses the number of rollouts of its prompts, under an exact
//! budget.
//!
//! **Formula** (2601.19280; docs/maths/schedules.md), with K arms n in every bin: all numbers from n_min to
//! n_max, or those of a list:
//!
//! ```text
//! p_b(n) = (1 − γ) softmax_n(η score_b) + γ/K
//! choose one arm per bin: max Σ_b ln p_b(n_b)  subject to  Σ_b count_b n_b = budget
//!                         (the closest sum where none is equal)
//! played arm: score ← score − L,  L = l̄_b + μ n        (the paper: J_b = −l̄_b, L = −J_b + μ n)
//! μ ← μ + α_μ (n̄_realised − n̄),  n̄ 4,  n̄_realised = Σ count n/Σ count
//! ```
//!
//! Solved by dynamic programming over sums, `[B]` by `[Σ count·n_max + 1]`.
//!
//! **Special cases**: ties go to the smaller sum ([`Nearest`]), then to the smaller arm, from the last bin to
//! the first. A bin without prompts costs nothing: it gets its likeliest arm and no update.
//!
//! **Variants** (docs/maths/disagreements.md row 17): the released code adds + l̄_b − μ (n − n̄) to the
//! score, which rewards a *high* loss: [`UtilitySign::Code`]. Neither divides by the probability of the
//! played arm.
//!
//! One file beyond 400 lines, of which the tests of the dynamic programme are a third.

use crate::numbers;
use core::cmp::Ordering;
use lockstep_core::Error;
use lockstep_core::num;
use lockstep_core::require;

/// The effect of a loss on the score of the played arm (docs/maths/disagreements.md row 17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UtilitySign {
    /// − l̄ − μ n, as in the paper.
    #[default]
    Paper,
    /// + l̄ − μ (n − n̄), as in the released code.
    Code,
}

/// The choice between two sums that are equally far from the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nearest {
    /// The smaller sum.
    #[default]
    Smaller,
    /// The likelier sum, as in the released code; of equally likely sums the one with the smaller arms, from
    /// the first bin to the last.
    Likelier,
}

/// Parameters of Rollout-GDRO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RolloutGdro<'a> {
    /// Fewest rollouts per prompt, n_min.
    pub least: u32,
    /// Most rollouts per prompt, n_max.
    pub most: u32,
    /// The arms, ascending from `least` to `most`; empty for all numbers in that range.
    pub among: &'a [u32],
    /// Softmax rate η.
    pub rate: f64,
    /// Exploration share γ.
    pub exploration: f64,
    /// Rate of the price, α_μ.
    pub price_rate: f64,
    /// Target mean number of rollouts n̄.
    pub target: f64,
    /// The sign of the utility.
    pub utility_sign: UtilitySign,
    /// The choice between sums if no arms meet the budget exactly.
    pub nearest: Nearest,
}

/// Scratch lengths of [`RolloutGdro::choose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// Number of `f64`s: logarithms of probabilities, and four rows of the dynamic programme.
    pub values: usize,
    /// Number of `u32`s: the arm behind every sum, bin by bin.
    pub arms: usize,
}

impl RolloutGdro<'_> {
    /// Checks that the parameters are in their domain.
    pub fn check(&self) -> Result<(), Error> {
        require::scalar("most", self.most >= self.least, "at least `least`", self.most)?;
        require::scalar("most", self.most <= 65_536, "at most 65536 rollouts of a prompt", self.most)?;
        let (among, last) = (self.among, self.among.len().saturating_sub(1));
        let holds = |i: usize| match i {
            0 if among[0] != self.least => false,
            _ if i == last && among[i] != self.most => false,
            _ => i == 0 || among[i - 1] < among[i],
        };
        if let Some(i) = (0..among.len()).find(|i| !holds(*i)) {
            let expected = "ascending, from `least` to `most`";
            return Err(require::value("among", Some(i), expected, among[i]));
        }
        require::finite("rate", self.rate)?;
        require::unit("exploration", self.exploration)?;
        require::finite("price_rate", self.price_rate)?;
        require::finite("target", self.target)
    }

    /// Number of arms per bin, K.
    pub fn arms(&self) -> usize {
        match self.among.len() {
            0 => (self.most.saturating_sub(self.least)) as usize + 1,
            listed => listed,
        }
    }

    /// Number of rollouts of an arm.
    fn rollouts(&self, arm: usize) -> u32 {
        self.among.get(arm).copied().unwrap_or(self.least + arm as u32)
    }

    /// Returns the index of the arm with this number of rollouts, or `None` if there is no such arm.
    pub fn arm(&self, rollouts: u32) -> Option<usize> {
        match self.among {
            [] => (self.least..=self.most).contains(&rollouts).then(|| (rollouts - self.least) as usize),
            listed => listed.binary_search(&rollouts).ok(),
        }
    }

    /// Returns the scratch that [`choose`](Self::choose) needs for these prompts per bin.
    ///
    /// Errors: parameters outside their domain; more than 2²⁴ rollouts if every prompt had n_max.
    pub fn scratch(&self, count: &[u32]) -> Result<Scratch, Error> {
        let sums = self.sums(count)?;
        Ok(Scratch { values: self.arms() + 4 * sums, arms: count.len() * sums })
    }

    fn sums(&self, count: &[u32]) -> Result<usize, Error> {
        self.check()?;
        let largest: u128 = count.iter().map(|n| u128::from(*n) * u128::from(self.most)).sum();
        require::scalar(
            "count",
            largest <= 1 << 24,
            "at most 2^24 rollouts with `most` per prompt",
            largest as f64,
        )?;
        Ok(largest as usize + 1)
    }

    /// Computes ln p of the arms of one bin, `[K]`. Errors: lengths that disagree; a score that is not finite
    /// (with its index).
    pub fn log_probabilities(&self, scores: &[f64], out: &mut [f64]) -> Result<(), Error> {
        self.check()?;
        require::length("scores", self.arms(), "one per arm", scores.len())?;
        require::length("out", self.arms(), "one per arm", out.len())?;
        require::each("scores", scores, "a number that stays finite when multiplied by the rate", |s| {
            (self.rate * s).is_finite()
        })?;
        self.fill(scores, out);
        Ok(())
    }

    fn fill(&self, scores: &[f64], out: &mut [f64]) {
        let total = numbers::ln_sum_exp(scores.iter().map(|s| self.rate * s));
        let floor = self.exploration / scores.len() as f64;
        for (score, out) in scores.iter().zip(out) {
            let p = (1.0 - self.exploration) * num::exp64(self.rate * score - total) + floor;
            // Without exploration p may underflow; its logarithm is finite, so the arm stays within reach.
            *out = if p > 0.0 { num::ln64(p) } else { self.rate * score - total };
        }
    }

    /// Chooses one arm (its n) per bin, and returns Σ count·n. `scores` is `[B, K]`, `count` and `chosen` are
    /// `[B]`; `values` and `arms` are scratch.
    ///
    /// Errors: lengths that disagree; a score that is not finite (with its index); more than 2²⁴ rollouts if
    /// every prompt had n_max.
    pub fn choose(
        &self,
        scores: &[f64],
        count: &[u32],
        budget: u64,
        values: &mut [f64],
        arms: &mut [u32],
        chosen: &mut [u32],
    ) -> Result<u64, Error> {
        let (k, bins, sums) = (self.arms(), count.len(), self.sums(count)?);
        let need = self.scratch(count)?;
        require::length("scores", bins * k, "one per bin and arm", scores.len())?;
        require::length("chosen", bins, "one per bin", chosen.len())?;
        require::room("values", need.values, values.len())?;
        require::room("arms", need.arms, arms.len())?;
        require::each("scores", scores, "a number that stays finite when multiplied by the rate", |s| {
            (self.rate * s).is_finite()
        })?;
        let (log_p, rows) = values.split_at_mut(k);
        let (rows, places) = rows[..4 * sums].split_at_mut(2 * sums);
        let (mut before, mut after) = rows.split_at_mut(sums);
        // For each sum, the first arms that reach it, as digits of a fraction in base K.
        let (mut first, mut first_after) = places.split_at_mut(sums);
        before.fill(f64::NEG_INFINITY);
        first.fill(f64::INFINITY);
        (before[0], first[0]) = (0.0, 0.0);
        let mut digit = 1.0;
        for b in 0..bins {
            self.fill(&scores[b * k..][..k], log_p);
            after.fill(f64::NEG_INFINITY);
            first_after.fill(f64::INFINITY);
            digit /= k as f64;
            let arm_of = &mut arms[b * sums..][..sums];
            for (arm, gain) in log_p.iter().enumerate() {
                let cost = count[b] as usize * self.rollouts(arm) as usize;
                for sum in cost..sums {
                    let value = before[sum - cost] + gain;
                    first_after[sum] = first_after[sum].min(first[sum - cost] + digit * arm as f64);
                    // Strictly better, so that the smaller arm wins ties.
                    if value > after[sum] {
                        after[sum] = value;
                        arm_of[sum] = arm as u32;
                    }
                }
            }
            core::mem::swap(&mut before, &mut after);
            core::mem::swap(&mut first, &mut first_after);
        }
        let reachable = (0..sums).filter(|sum| before[*sum] > f64::NEG_INFINITY);
        let apart = |sum: usize| (sum as u64).abs_diff(budget);
        let likelier = |best: usize, sum: usize| {
            before[sum] > before[best] || before[sum] == before[best] && first[sum] < first[best]
        };
        let better = |best: usize, sum: usize| match apart(sum).cmp(&apart(best)) {
            Ordering::Less => sum,
            Ordering::Equal if self.nearest == Nearest::Likelier && likelier(best, sum) => sum,
            _ => best,
        };
        let best = reachable.reduce(better).unwrap_or(0);
        let mut left = best;
        for b in (0..bins).rev() {
            chosen[b] = self.rollouts(arms[b * sums + left] as usize);
            left -= count[b] as usize * chosen[b] as usize;
        }
        Ok(best as u64)
    }

    /// Updates the scores of the played arms from the mean loss per bin and the price μ.
    ///
    /// Errors: lengths that disagree; a number that is not an arm (with its index); a loss that is not finite
    /// in a bin with prompts (with its index). On an error nothing changes.
    pub fn update(
        &self,
        scores: &mut [f64],
        count: &[u32],
        chosen: &[u32],
        mean_loss: &[f64],
        price: f64,
    ) -> Result<(), Error> {
        self.check()?;
        let k = self.arms();
        require::length("scores", count.len() * k, "one per bin and arm", scores.len())?;
        require::length("chosen", count.len(), "one per bin", chosen.len())?;
        require::length("mean_loss", count.len(), "one per bin", mean_loss.len())?;
        require::finite("price", price)?;
        for b in 0..count.len() {
            if self.arm(chosen[b]).is_none() {
                return Err(require::value("chosen", Some(b), "an arm", chosen[b]));
            }
            if count[b] > 0 && !mean_loss[b].is_finite() {
                return Err(require::value("mean_loss", Some(b), "a finite number", mean_loss[b]));
            }
        }
        for b in (0..count.len()).filter(|b| count[*b] > 0) {
            let (n, arm) = (f64::from(chosen[b]), self.arm(chosen[b]).unwrap_or(0));
            scores[b * k + arm] += match self.utility_sign {
                UtilitySign::Paper => -(mean_loss[b] + price * n),
                UtilitySign::Code => mean_loss[b] - price * (n - self.target),
            };
        }
        Ok(())
    }

    /// Returns the next μ after `total` rollouts were spent on `prompts` prompts; unchanged without prompts.
    pub fn next_price(&self, price: f64, total: u64, prompts: u64) -> f64 {
        if prompts == 0 {
            return price;
        }
        price + self.price_rate * (total as f64 / prompts as f64 - self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GDRO: RolloutGdro = RolloutGdro {
        least: 2,
        most: 6,
        among: &[],
        rate: 1.0,
        exploration: 0.1,
        price_rate: 0.05,
        target: 4.0,
        utility_sign: UtilitySign::Paper,
        nearest: Nearest::Smaller,
    };

    fn choose(scores: &[f64], count: &[u32], budget: u64) -> (u64, [u32; 3]) {
        let (mut values, mut arms, mut chosen) = ([0.0; 500], [0; 1000], [0; 3]);
        let total = GDRO.choose(scores, count, budget, &mut values, &mut arms, &mut chosen).unwrap();
        (total, chosen)
    }

    fn scores(salt: u32) -> [f64; 15] {
        core::array::from_fn(|i| f64::from((i as u32 * 7919 + salt * 104_729) % 1013) / 200.0)
    }

    #[test]
    fn the_programme_finds_what_trying_everything_finds() {
        for salt in 0..40 {
            let (scores, count) = (scores(salt), [1 + salt % 3, 3, 2]);
            let mut log_p = [0.0; 15];
            for b in 0..3 {
                GDRO.log_probabilities(&scores[b * 5..][..5], &mut log_p[b * 5..][..5]).unwrap();
            }
            let budget = 4 * u64::from(count.iter().sum::<u32>());
            let mut best = f64::NEG_INFINITY;
            for (a, b, c) in (0..125).map(|i| (i / 25, i / 5 % 5, i % 5)) {
                let sum: u64 =
                    [a, b, c].iter().zip(count).map(|(arm, n)| u64::from(n) * (2 + *arm as u64)).sum();
                if sum == budget {
                    best = best.max(log_p[a] + log_p[5 + b] + log_p[10 + c]);
                }
            }
            let (total, chosen) = choose(&scores, &count, budget);
            let value: f64 = (0..3).map(|b| log_p[b * 5 + (chosen[b] - 2) as usize]).sum();
            assert_eq!(total, budget);
            assert!((value - best).abs() < 1e-12, "{value} for {best}");
        }
    }

    #[test]
    fn without_an_exact_sum_the_closest_is_taken() {
        // Counts of 2, 4, 6: every sum is even. 25 lies between 24 and 26, and the smaller is taken.
        assert_eq!(choose(&scores(1), &[2, 4, 6], 25).0, 24);
        assert_eq!(choose(&scores(1), &[2, 4, 6], 0), (24, [2, 2, 2]));
        assert_eq!(choose(&scores(1), &[2, 4, 6], 10_000), (72, [6, 6, 6]));
    }

    #[test]
    fn the_arms_of_a_list() {
        let listed = RolloutGdro { least: 1, most: 8, among: &[1, 2, 8], ..GDRO };
        assert_eq!((listed.arms(), listed.arm(8), listed.arm(3)), (3, Some(2), None));
        // Two bins of one prompt: the pairs whose sum is 10 are (8, 2) and (2, 8); bin 1 prefers 8.
        let mut scores = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let (mut values, mut arms, mut chosen) = ([0.0; 99], [0; 99], [0; 2]);
        assert_eq!(listed.choose(&scores, &[1; 2], 10, &mut values, &mut arms, &mut chosen), Ok(10));
        assert_eq!(chosen, [2, 8]);
        listed.update(&mut scores, &[1; 2], &chosen, &[0.5, 0.25], 0.0).unwrap();
        assert_eq!(scores, [0.0, -0.5, 0.0, 0.0, 0.0, 0.75]);
        let e = listed.update(&mut scores, &[1; 2], &[3, 8], &[0.5, 0.25], 0.0).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "chosen", index: Some(0), .. }));
        for among in [&[1, 8, 8][..], &[1, 8, 2], &[1, 2, 4], &[2, 4, 8]] {
            let e = RolloutGdro { among, ..listed }.check().unwrap_err();
            assert!(matches!(e, Error::Value { argument: "among", index: Some(_), .. }), "{among:?}");
        }
    }

    #[test]
    fn of_sums_equally_far_the_smaller_or_the_likelier() {
        // Arms 2 and 4 of one prompt, budget 3.
        let even = RolloutGdro { least: 2, most: 4, among: &[2, 4], ..GDRO };
        let sum = |nearest, scores: [f64; 2]| {
            let (mut values, mut arms, mut chosen) = ([0.0; 99], [0; 99], [0]);
            RolloutGdro { nearest, ..even }.choose(&scores, &[1], 3, &mut values, &mut arms, &mut chosen)
        };
        for (scores, likelier) in [([0.0, 1.0], 4), ([1.0, 0.0], 2), ([0.0, 0.0], 2)] {
            assert_eq!(sum(Nearest::Smaller, scores), Ok(2));
            assert_eq!(sum(Nearest::Likelier, scores), Ok(likelier));
        }
        // Three equal bins of 3, 2 and 3 prompts: 32 begins with arms 2 and 4, 34 with 2 and 2.
        let alike =
            RolloutGdro { least: 2, most: 8, among: &[2, 4, 6, 8], nearest: Nearest::Likelier, ..GDRO };
        let (mut values, mut arms, mut chosen) = ([0.0; 999], [0; 999], [0; 3]);
        let sum = alike.choose(&[0.0; 12], &[3, 2, 3], 33, &mut values, &mut arms, &mut chosen);
        assert_eq!(sum, Ok(34));
    }

    #[test]
    fn equal_scores_give_the_smaller_arm_to_the_last_bin() {
        assert_eq!(choose(&[0.0; 15], &[1; 3], 12), (12, [6, 4, 2]));
    }

    #[test]
    fn a_bin_without_prompts_gets_its_likeliest_arm() {
        let mut s = [0.0; 15];
        s[5 + 3] = 1.0;
        let (total, chosen) = choose(&s, &[1, 0, 1], 8);
        assert_eq!((total, chosen[1], chosen[0] + chosen[2]), (8, 5, 8));
    }

    #[test]
    fn row_10_17_paper_punishes_a_loss_and_code_rewards_it() {
        let (count, chosen, loss) = ([3, 0, 1], [4, 2, 6], [0.5, f64::NAN, -0.25]);
        let mut paper = [0.0; 15];
        GDRO.update(&mut paper, &count, &chosen, &loss, 0.1).unwrap();
        let expected =
            |i: usize| [(2, -0.9), (14, -0.35)].iter().find(|(at, _)| *at == i).map_or(0.0, |x| x.1);
        assert!((0..15).all(|i| (paper[i] - expected(i)).abs() < 1e-15), "{paper:?}");
        let mut code = [0.0; 15];
        let g = RolloutGdro { utility_sign: UtilitySign::Code, ..GDRO };
        g.update(&mut code, &count, &chosen, &loss, 0.1).unwrap();
        let expected =
            |i: usize| [(2, 0.5), (14, -0.45)].iter().find(|(at, _)| *at == i).map_or(0.0, |x| x.1);
        assert!((0..15).all(|i| (code[i] - expected(i)).abs() < 1e-15), "{code:?}");
    }

    #[test]
    fn probabilities_mix_and_the_price_follows_the_budget() {
        let mut out = [0.0; 5];
        GDRO.log_probabilities(&[1e308, 0.0, 0.0, 0.0, -1e308], &mut out).unwrap();
        assert!((libm::exp(out[0]) - 0.92).abs() < 1e-14 && (libm::exp(out[4]) - 0.02).abs() < 1e-14);
        assert!((GDRO.next_price(0.2, 50, 10) - 0.25).abs() < 1e-15);
        assert_eq!(GDRO.next_price(0.2, 0, 0), 0.2);
    }

    /// Without exploration the probability e⁻⁸⁰⁰ of arm 2 underflows; the budget is met all the same.
    #[test]
    fn unlikely_arms_stay_within_reach() {
        let pair = RolloutGdro { least: 1, most: 2, exploration: 0.0, ..GDRO };
        let (mut values, mut arms, mut chosen) = ([0.0; 99], [0; 99], [0; 2]);
        for (scores, expected) in [([0.0, -800.0, 0.0, -900.0], [2, 1]), ([0.0, -900.0, 0.0, -800.0], [1, 2])]
        {
            assert_eq!(pair.choose(&scores, &[1; 2], 3, &mut values, &mut arms, &mut chosen), Ok(3));
            assert_eq!(chosen, expected);
        }
    }

    #[test]
    fn wrong_arguments_are_named_and_change_nothing() {
        let mut s = [0.0; 15];
        let e = GDRO.update(&mut s, &[1, 1, 1], &[2, 7, 2], &[0.0; 3], 0.0).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "chosen", index: Some(1), .. }));
        let e = GDRO.update(&mut s, &[1, 1, 1], &[2; 3], &[0.0, 0.0, f64::NAN], 0.0).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "mean_loss", index: Some(2), .. }));
        assert_eq!(s, [0.0; 15]);
        let e = GDRO.choose(&s, &[1; 3], 12, &mut [0.0; 4], &mut [], &mut [0; 3]).unwrap_err();
        assert!(matches!(e, Error::Length { argument: "values", .. }));
        let e = GDRO.scratch(&[u32::MAX; 3]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "count", .. }));
        s[4] = f64::NAN;
        let e = GDRO.choose(&s, &[1; 3], 12, &mut [0.0; 99], &mut [0; 99], &mut [0; 3]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "scores", index: Some(4), .. }));
    }
}
