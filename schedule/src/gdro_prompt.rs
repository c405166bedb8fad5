//! Prompt-GDRO: larger weights for the difficulty bins with higher loss.
//!
//! **Formula** (2601.19280; docs/maths/schedules.md), per step, for the bins with prompts in the batch:
//!
//! ```text
//! l̄_b = mean prompt loss in bin b (optionally divided by the bin's share of the batch)
//! S_b ← (1 − β) S_b + β l̄_b                 (β 0.1; the first observation initialises S_b)
//!    or S_b + l̄_b                           ([`Score::Sum`])
//! ω_b = exp(η clip(S_b, −C, C))             (η 0.1)
//!    or exp(η z_b)                          (z: standard score of S_b over the bins, σ >= 1e-3, |z| <= 3)
//! q_b = (1 − γ) ω_b/Σω + γ/B                (γ 0.15)
//! A_i ← A_i · min(weight of its bin, weight_max)          (weight_max 10)
//! ```
//!
//! **Shapes**: per bin `[B]`.
//!
//! **Special cases**: a bin that was never observed has S = 0 (ω = 1). If all S are equal, every z is 0. If
//! no bin has prompts in the batch, q and the weights are 0 under `NormalisedQ`.
//!
//! **Variants** (docs/maths/disagreements.md row 16): the paper multiplies by ω
//! ([`Weight::UnnormalisedOmega`]). The released code multiplies by q over the bins present in the batch
//! ([`Weight::NormalisedQ`]), so its weights are at most 1 and shrink with the number of bins; its default
//! score is the sum over steps, or their mean ([`means`]), and its standard score is over all bins seen
//! ([`Over::Seen`]). The standard score's divisor (B) and the default C of 10 are ours.

use lockstep_core::Error;
use lockstep_core::num::{self, Arith, Soft};
use lockstep_core::require;

/// The factor applied to an advantage (docs/maths/disagreements.md row 16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// ω_b, as in the paper.
    #[default]
    UnnormalisedOmega,
    /// q_b over the bins of the batch, as in the released code.
    NormalisedQ,
}

/// How a step's mean loss updates a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Score {
    /// (1 − β) S + β l̄.
    #[default]
    Ema,
    /// S + l̄, the released code's default.
    Sum,
}

/// The bins over which mean and deviation are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// Bins that have prompts in the batch.
    #[default]
    Batch,
    /// Bins that have a score, as in the released code.
    Seen,
}

/// The bound on a score before the exponential.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Clips to ±C.
    Clip(f64),
    /// Standardises over the bins, then clips to ± [`PromptGdro::score_max`].
    Standardise,
}

/// Parameters of Prompt-GDRO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PromptGdro {
    /// How losses update scores.
    pub score: Score,
    /// EMA rate β.
    pub ema: f64,
    /// Exponential rate η.
    pub rate: f64,
    /// The bound on a score.
    pub bound: Bound,
    /// The bins of a standard score.
    pub over: Over,
    /// Lower bound of the deviation in a standard score.
    pub deviation_min: f64,
    /// Bound on |standard score|.
    pub score_max: f64,
    /// Exploration share γ.
    pub exploration: f64,
    /// Largest weight.
    pub weight_max: f64,
    /// The kind of weight.
    pub weight: Weight,
    /// Whether to divide the mean loss by the bin's share of the batch.
    pub per_share: bool,
}

impl Default for PromptGdro {
    fn default() -> Self {
        PromptGdro {
            score: Score::Ema,
            ema: 0.1,
            rate: 0.1,
            bound: Bound::Clip(10.0),
            over: Over::Batch,
            deviation_min: 1e-3,
            score_max: 3.0,
            exploration: 0.15,
            weight_max: 10.0,
            weight: Weight::UnnormalisedOmega,
            per_share: false,
        }
    }
}

/// Computes the means over steps of the sums of [`Score::Sum`] (the released code's `debias_scores`). `steps`
/// counts the steps in which each bin had prompts.
///
/// Errors: lengths that disagree; a sum with 0 steps (with its index).
pub fn means(sums: &[Option<f64>], steps: &[u32], out: &mut [Option<f64>]) -> Result<(), Error> {
    require::length("steps", sums.len(), "one per bin", steps.len())?;
    require::length("out", sums.len(), "one per bin", out.len())?;
    if let Some(i) = (0..sums.len()).find(|i| sums[*i].is_some() && steps[*i] == 0) {
        return Err(require::value("steps", Some(i), "at least 1 for a bin with a sum", 0.0));
    }
    for ((out, sum), n) in out.iter_mut().zip(sums).zip(steps) {
        *out = sum.map(|sum| sum / f64::from(*n));
    }
    Ok(())
}

impl PromptGdro {
    /// Checks that the parameters are in their domain.
    pub fn check(&self) -> Result<(), Error> {
        require::unit("ema", self.ema)?;
        require::unit("exploration", self.exploration)?;
        require::scalar("weight_max", self.weight_max > 0.0, "above 0", self.weight_max)?;
        let reach = match self.bound {
            Bound::Clip(c) => {
                require::scalar("bound", c > 0.0 && c.is_finite(), "a clip above 0", c)?;
                self.rate * c
            }
            Bound::Standardise => self.rate * self.score_max,
        };
        let positive = |x: f64| x > 0.0 && x.is_finite();
        require::scalar("deviation_min", positive(self.deviation_min), "above 0", self.deviation_min)?;
        require::scalar("score_max", positive(self.score_max), "above 0", self.score_max)?;
        // ω and its sum stay finite.
        require::scalar(
            "rate",
            (0.0..=600.0).contains(&reach),
            "0 to 600 when multiplied by the bound",
            self.rate,
        )
    }

    /// Updates the scores after a step. Per bin, `loss_sum` is the sum of prompt losses and `count` the
    /// number of prompts; a bin without prompts keeps its score.
    ///
    /// Errors: lengths that disagree; a loss that is not finite (with its index); parameters outside their
    /// domain. On an error nothing changes.
    pub fn observe(&self, scores: &mut [Option<f64>], loss_sum: &[f64], count: &[u32]) -> Result<(), Error> {
        self.check()?;
        require::length("loss_sum", scores.len(), "one per bin", loss_sum.len())?;
        require::length("count", scores.len(), "one per bin", count.len())?;
        require::each("loss_sum", loss_sum, "a finite number", f64::is_finite)?;
        let total: f64 = count.iter().map(|n| f64::from(*n)).sum();
        for (b, score) in scores.iter_mut().enumerate() {
            let n = f64::from(count[b]);
            if n > 0.0 {
                let share = if self.per_share { n / total } else { 1.0 };
                let mean = loss_sum[b] / n / share;
                *score = Some(match (*score, self.score) {
                    (None, _) => mean,
                    (Some(s), Score::Ema) => (1.0 - self.ema) * s + self.ema * mean,
                    (Some(s), Score::Sum) => s + mean,
                });
            }
        }
        Ok(())
    }

    /// ω per bin. With `Standardise`, mean and deviation are those of the bins of `over`.
    fn omega(&self, scores: &[Option<f64>], count: &[u32], omega: &mut [f64]) {
        let score = |b: usize| scores[b].unwrap_or(0.0);
        let taken = |b: &usize| match self.over {
            Over::Batch => count[*b] > 0,
            Over::Seen => scores[*b].is_some(),
        };
        let present = || (0..scores.len()).filter(taken);
        let n = present().count() as f64;
        let (centre, deviation) = match self.bound {
            Bound::Clip(_) => (0.0, 1.0),
            Bound::Standardise if n == 0.0 => (0.0, 1.0),
            Bound::Standardise => {
                let mean = present().map(score).sum::<f64>() / n;
                let square = present().map(|b| (score(b) - mean) * (score(b) - mean)).sum::<f64>() / n;
                (mean, Soft::sqrt64(square).max(self.deviation_min))
            }
        };
        let c = if let Bound::Clip(c) = self.bound { c } else { self.score_max };
        for (b, out) in omega.iter_mut().enumerate() {
            *out = num::exp64(self.rate * ((score(b) - centre) / deviation).clamp(-c, c));
        }
    }

    fn check_scores(&self, scores: &[Option<f64>], count: &[u32], out: usize) -> Result<(), Error> {
        self.check()?;
        require::length("count", scores.len(), "one per bin", count.len())?;
        require::length("out", scores.len(), "one per bin", out)?;
        // Standard scores square.
        let (most, expected) = match self.bound {
            Bound::Clip(_) => (f64::MAX, "a finite number"),
            Bound::Standardise => (1e150, "a number of at most 1e150"),
        };
        match scores.iter().position(|s| s.is_some_and(|s| s.is_nan() || s.abs() > most)) {
            Some(i) => Err(require::value("scores", Some(i), expected, scores[i].unwrap_or(f64::NAN))),
            None => Ok(()),
        }
    }

    /// Computes q, `[B]`, over the bins whose `count` is above 0; 0 for the others. It sums to 1 if there is
    /// such a bin.
    ///
    /// Errors: lengths that disagree; a score that is not finite, or beyond 1e150 for a standard score (with
    /// its index); parameters outside their domain.
    pub fn distribution(&self, scores: &[Option<f64>], count: &[u32], out: &mut [f64]) -> Result<(), Error> {
        self.check_scores(scores, count, out.len())?;
        self.omega(scores, count, out);
        let (mut sum, mut bins) = (0.0, 0.0);
        for (q, n) in out.iter().zip(count) {
            if *n > 0 {
                sum += q;
                bins += 1.0;
            }
        }
        for (q, n) in out.iter_mut().zip(count) {
            *q = if *n > 0 { (1.0 - self.exploration) * *q / sum + self.exploration / bins } else { 0.0 };
        }
        Ok(())
    }

    /// Computes the factors of the advantages of each bin, `[B]`. Errors: as for
    /// [`distribution`](Self::distribution).
    pub fn weights(&self, scores: &[Option<f64>], count: &[u32], out: &mut [f64]) -> Result<(), Error> {
        match self.weight {
            Weight::UnnormalisedOmega => {
                self.check_scores(scores, count, out.len())?;
                self.omega(scores, count, out);
            }
            Weight::NormalisedQ => self.distribution(scores, count, out)?,
        }
        for weight in out {
            *weight = weight.min(self.weight_max);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCORES: [Option<f64>; 4] = [Some(2.0), Some(-1.0), None, Some(0.5)];
    const COUNT: [u32; 4] = [3, 5, 0, 2];

    #[test]
    fn row_10_16_paper_multiplies_by_omega_and_code_by_q() {
        let mut paper = [0.0; 4];
        PromptGdro::default().weights(&SCORES, &COUNT, &mut paper).unwrap();
        for (w, s) in paper.into_iter().zip([2.0, -1.0, 0.0, 0.5]) {
            assert!((w - libm::exp(0.1 * s)).abs() < 1e-14);
        }
        let code = PromptGdro { weight: Weight::NormalisedQ, ..PromptGdro::default() };
        let mut q = [0.0; 4];
        code.weights(&SCORES, &COUNT, &mut q).unwrap();
        let sum = paper[0] + paper[1] + paper[3];
        for b in [0, 1, 3] {
            assert!((q[b] - (0.85 * paper[b] / sum + 0.05)).abs() < 1e-14);
        }
        assert!((q.iter().sum::<f64>() - 1.0).abs() < 1e-14 && q[2] == 0.0);
    }

    #[test]
    fn the_first_observation_initialises() {
        let g = PromptGdro::default();
        let mut s = [None, Some(1.0), Some(7.0)];
        g.observe(&mut s, &[4.0, 6.0, 0.0], &[2, 2, 0]).unwrap();
        assert_eq!(s, [Some(2.0), Some(0.9 + 0.1 * 3.0), Some(7.0)]);
        let mut s = [None; 2];
        PromptGdro { per_share: true, ..g }.observe(&mut s, &[4.0, 6.0], &[1, 3]).unwrap();
        assert_eq!(s, [Some(16.0), Some(2.0 / 0.75)]);
    }

    #[test]
    fn sums_over_steps_and_their_means() {
        let g = PromptGdro { score: Score::Sum, ..PromptGdro::default() };
        let mut s = [None, Some(1.0), None];
        g.observe(&mut s, &[4.0, 6.0, 0.0], &[2, 2, 0]).unwrap();
        assert_eq!(s, [Some(2.0), Some(4.0), None]);
        let mut mean = [None; 3];
        means(&s, &[1, 2, 0], &mut mean).unwrap();
        assert_eq!(mean, [Some(2.0), Some(2.0), None]);
        let e = means(&s, &[1, 0, 0], &mut mean).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "steps", index: Some(1), .. }));
    }

    #[test]
    fn a_standard_score_over_all_bins_seen() {
        let g = PromptGdro { bound: Bound::Standardise, rate: 1.0, ..PromptGdro::default() };
        let (scores, count) = ([Some(1.0), Some(0.0), None], [4, 0, 1]);
        // Bins 0 and 1: mean 0.5, deviation 0.5; a bin that was never seen scores 0.
        let seen = PromptGdro { over: Over::Seen, ..g };
        let mut w = [0.0; 3];
        seen.weights(&scores, &count, &mut w).unwrap();
        assert!((w[0] - libm::exp(1.0)).abs() < 1e-15 && (w[2] - libm::exp(-1.0)).abs() < 1e-15);
        // A deviation of at least 2 divides the score by 4. A largest score of 0.1 bounds it.
        PromptGdro { deviation_min: 2.0, ..seen }.weights(&scores, &count, &mut w).unwrap();
        assert!((w[0] - libm::exp(0.25)).abs() < 1e-15);
        PromptGdro { score_max: 0.1, ..seen }.weights(&scores, &count, &mut w).unwrap();
        assert!((w[0] - libm::exp(0.1)).abs() < 1e-15);
        let e = PromptGdro { deviation_min: 0.0, ..seen }.check().unwrap_err();
        assert!(matches!(e, Error::Value { argument: "deviation_min", .. }));
    }

    #[test]
    fn bounds_hold() {
        let g = PromptGdro { bound: Bound::Clip(2.0), rate: 1.0, weight_max: 5.0, ..PromptGdro::default() };
        let mut w = [0.0; 2];
        g.weights(&[Some(1e300), Some(-1e300)], &[1, 1], &mut w).unwrap();
        assert!(w[0] == 5.0 && (w[1] - libm::exp(-2.0)).abs() < 1e-15);
        let z = PromptGdro { bound: Bound::Standardise, ..g };
        z.weights(&[Some(0.4), Some(0.4)], &[1, 1], &mut w).unwrap();
        assert_eq!(w, [1.0, 1.0]);
        // Deviation 0.5 about 0.5: scores ±1.
        z.weights(&[Some(1.0), Some(0.0)], &[9, 1], &mut w).unwrap();
        assert!((w[0] - libm::exp(1.0)).abs() < 1e-15 && (w[1] - libm::exp(-1.0)).abs() < 1e-15);
    }

    #[test]
    fn an_empty_batch_and_wrong_arguments() {
        let g =
            PromptGdro { weight: Weight::NormalisedQ, bound: Bound::Standardise, ..PromptGdro::default() };
        let mut w = [9.0; 2];
        g.weights(&[Some(1.0), None], &[0, 0], &mut w).unwrap();
        assert_eq!(w, [0.0, 0.0]);
        let mut s = [Some(1.0), None];
        let e = g.observe(&mut s, &[0.0, f64::NAN], &[1, 1]).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "loss_sum", index: Some(1), .. }));
        assert_eq!(s, [Some(1.0), None]);
        let e = g.weights(&[Some(f64::INFINITY), None], &[1, 1], &mut w).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "scores", index: Some(0), .. }));
        // The mean overflowed, and every weight was the largest.
        let e = g.weights(&[Some(1e308); 2], &[1, 1], &mut w).unwrap_err();
        assert!(matches!(e, Error::Value { argument: "scores", index: Some(0), .. }));
        let wild = PromptGdro { rate: 1e6, ..g };
        assert!(matches!(wild.check(), Err(Error::Value { argument: "rate", .. })));
    }
}
