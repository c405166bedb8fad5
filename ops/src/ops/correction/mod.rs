//! Rollout correction: importance weights, rejection, and the mismatch between trainer and sampler.

mod mismatch;
mod second_moment;
mod stats;

pub use mismatch::{Mismatch, mean_abs_log_ratio, mismatch_stats};
pub use second_moment::second_moment_mask;
pub use stats::WeightStats;

use super::aggregate::fold_rows;
use super::locate::{self, Checked};
use crate::{Batch, Counts, Device, Error};
use lockstep_core::correction::weights::sum;
use lockstep_core::correction::{
    LOG_BOUND, NormalizeWeights, Rejections, RolloutCorrection, Rule, WeightLevel,
};
use lockstep_core::ragged::{In, Out};
use serde::{Deserialize, Serialize};

/// Which tokens count in the loss's denominators when some were rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Denominator {
    /// All tokens that were live before (TRL, NeMo RL, AReaL): rejected tokens stay in the mask with
    /// weight 0. A KL term still counts them.
    Before,
    /// The kept tokens (verl): rejected tokens are removed from the mask.
    #[default]
    After,
}

/// Parameters of [`rollout_correction`]. The formula and the choices that each library makes are in
/// [`lockstep_core::correction::weights`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CorrectionParams {
    /// The level at which ρ is computed: token, sequence or geometric mean.
    pub level: WeightLevel,
    /// The rule that maps ρ to the weight.
    pub rule: Rule,
    /// Lower end of the band; `None` = no lower end (the statistics then use 1/high).
    pub low: Option<f32>,
    /// Upper end of the band.
    pub high: f32,
    /// Bound of log-ratios; ∞ = none.
    pub bound: f32,
    /// The criteria for rejection.
    pub rejections: Rejections,
    /// Divide weights by their mean: over tokens for [`WeightLevel::Token`], over sequences for the others.
    pub normalize: bool,
    /// Which tokens count in the loss's denominators.
    pub denominator: Denominator,
}

impl CorrectionParams {
    /// No correction: all weights 1, no rejection.
    pub const NONE: CorrectionParams = CorrectionParams {
        level: WeightLevel::One,
        rule: Rule::Plain,
        low: None,
        high: 2.0,
        bound: LOG_BOUND,
        rejections: Rejections::NONE,
        normalize: false,
        denominator: Denominator::After,
    };

    /// Truncated importance sampling: the weight is min(ρ, high).
    pub const fn truncate(level: WeightLevel, high: f32) -> Self {
        CorrectionParams { level, rule: Rule::Truncate, high, ..CorrectionParams::NONE }
    }

    /// Masked importance sampling (IcePop, MIS): the weight is ρ inside `[low, high]` and 0 outside.
    pub const fn mask(level: WeightLevel, low: f32, high: f32) -> Self {
        CorrectionParams { level, rule: Rule::Mask, low: Some(low), high, ..CorrectionParams::NONE }
    }

    /// Sets the criteria for rejection.
    pub const fn reject(self, rejections: Rejections) -> Self {
        CorrectionParams { rejections, ..self }
    }
}

/// Weights, and the tokens and sequences that rejection kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Correction {
    /// Weight of each token, `[N]`; 0 where masked or rejected. For
    /// [`PolicyInput::weights`](crate::PolicyInput::weights).
    pub weights: Vec<f32>,
    /// 1 where a token is live and was not rejected, `[N]`.
    pub kept_mask: Vec<u8>,
    /// 1 where a sequence has a kept token, `[S]`: the `valid` of the group advantage.
    pub kept: Vec<u8>,
    /// Counts of the original mask.
    pub counts_before: Counts,
    /// Counts of `kept_mask`.
    pub counts_after: Counts,
    /// Which of the two counts the loss's denominators use.
    pub denominator: Denominator,
    /// Statistics of the weights.
    pub stats: WeightStats,
}

impl Correction {
    /// The batch for the policy loss: with the original mask or with `kept_mask`, depending on `denominator`.
    pub fn batch<'a>(&'a self, batch: &Batch<'a>) -> Result<Batch<'a>, Error> {
        match self.denominator {
            Denominator::Before => Ok(*batch),
            Denominator::After => batch.with_mask(&self.kept_mask),
        }
    }

    /// Counts of the batch that [`Correction::batch`] returns.
    pub fn counts(&self) -> Counts {
        match self.denominator {
            Denominator::Before => self.counts_before,
            Denominator::After => self.counts_after,
        }
    }
}

/// Computes the importance weights of `logp_old` `[N]` against `logp_rollout` `[N]` and the mask that remains
/// after rejection; formula: [`lockstep_core::correction::weights`]. In decoupled PPO `logp_old` is the
/// proximal policy.
///
/// Errors: lengths that disagree; a live log-probability that is NaN, infinite or above 0 (argument, index);
/// parameters out of their domain; a weight that is not finite (index).
///
/// ```
/// use lockstep_ops::core::correction::WeightLevel;
/// use lockstep_ops::ops::correction::{CorrectionParams, rollout_correction};
/// use lockstep_ops::{Batch, Device};
/// let batch = Batch::new(&[0, 2, 4], &[0, 2], None)?;
/// let (old, rollout) = ([-0.5, -0.5, -1.0, -0.1], [-0.5, -3.5, -1.0, -0.6]);
/// let params = CorrectionParams::truncate(WeightLevel::Token, 2.0);
/// let out = rollout_correction(&Device::cpu(), &batch, &old, &rollout, &params)?;
/// assert_eq!(out.weights[..3], [1.0, 2.0, 1.0]);
/// assert_eq!(out.stats.above_fraction, 0.25);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias("importance sampling", "rejection sampling", "TIS", "IcePop", "MIS"))]
pub fn rollout_correction(
    device: &Device,
    batch: &Batch<'_>,
    logp_old: &[f32],
    logp_rollout: &[f32],
    params: &CorrectionParams,
) -> Result<Correction, Error> {
    let arguments = [Checked::logp("logp_old", logp_old), Checked::logp("logp_rollout", logp_rollout)];
    locate::lengths(batch, &arguments)?;
    let (rows, tokens) = (batch.sequences(), batch.tokens());
    let mut out = Correction {
        weights: vec![0.0; tokens],
        kept_mask: vec![0; tokens],
        kept: vec![0; rows],
        denominator: params.denominator,
        ..Correction::default()
    };
    let (mut sums, mut maxima, mut alarm) = (vec![0.0; rows * sum::SUMS], vec![0.0; rows * 4], vec![0; rows]);
    device.run(&RolloutCorrection {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        logp_old: In::new(logp_old),
        logp_rollout: In::new(logp_rollout),
        level: params.level,
        rule: params.rule,
        band: [params.low.unwrap_or((1.0 / params.high).min(params.high)), params.high],
        bounded_below: params.low.is_some(),
        bound: params.bound,
        rejections: params.rejections,
        weights: Out::new(&mut out.weights),
        kept_mask: Out::new(&mut out.kept_mask),
        row_kept: Out::new(&mut out.kept),
        row_sums: Out::new(&mut sums),
        row_maxima: Out::new(&mut maxima),
        row_alarm: Out::new(&mut alarm),
    })?;
    let results = [Checked::finite("weights", &out.weights[..])];
    let hint = "a ratio overflowed: choose a bound for the log-ratio";
    locate::check(batch, &alarm, &arguments, &results, hint)?;

    let totals = fold_rows(device, &sums, rows)?;
    let of_tokens = params.level == WeightLevel::Token;
    let (numerator, denominator) =
        if of_tokens { (sum::WEIGHT, sum::TOKENS) } else { (sum::ROW_WEIGHT, sum::LIVE) };
    if params.normalize {
        let mut normalized = vec![0.0; tokens];
        device.run(&NormalizeWeights {
            cu_seqlens: batch.cu_seqlens(),
            loss_mask: batch.loss_mask(),
            weights: In::new(&out.weights),
            totals: In::new(&totals),
            numerator: numerator as u32,
            denominator: denominator as u32,
            normalized: Out::new(&mut normalized),
        })?;
        locate::finite("weights", &normalized, "a weight is too large compared with the mean of the batch")?;
        out.weights = normalized;
    }
    (out.stats, out.counts_before, out.counts_after) = summary((&sums, &maxima), &totals, &out.kept, params);
    Ok(out)
}

/// Statistics of the weights, and counts before and after rejection, from the results of the rows; `totals`
/// are the folded sums.
fn summary(
    (sums, maxima): (&[f64], &[f32]),
    totals: &[f64],
    kept: &[u8],
    params: &CorrectionParams,
) -> (WeightStats, Counts, Counts) {
    let sequences = kept.len() as u64;
    let left = kept.iter().filter(|kept| **kept != 0).count() as u64;
    let before = Counts { tokens: totals[sum::TOKENS] as u64, nonempty: totals[sum::LIVE] as u64, sequences };
    let after = Counts { tokens: totals[sum::KEPT] as u64, nonempty: left, sequences };
    (WeightStats::new(sums, maxima, totals, kept.len(), params), before, after)
}

/// Like `summary`, for rows that a device has computed.
#[doc(hidden)]
pub fn stats_of(
    sums: &[f64],
    maxima: &[f32],
    kept: &[u8],
    params: &CorrectionParams,
) -> Result<(WeightStats, Counts, Counts), Error> {
    let totals = fold_rows(&Device::cpu(), sums, kept.len())?;
    Ok(summary((sums, maxima), &totals, kept, params))
}
