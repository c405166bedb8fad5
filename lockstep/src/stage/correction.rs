//! Runs a recipe's rollout correction with the ops.

use super::reward::needed;
use crate::ops::correction::{Correction, CorrectionParams, rollout_correction, second_moment_mask};
use crate::recipe::{CorrectionChoice, GroupStatistics, NanRollout, Recipe, WeightLevel, WeightRule};
use crate::{Batch, Device, Error, Rollouts};
use lockstep_core::correction::Rejections;
use std::borrow::Cow;

impl Recipe {
    /// Runs the recipe's rollout correction: weights, the mask after rejection, and statistics.
    pub(super) fn correct(
        &self,
        choice: &CorrectionChoice,
        device: &Device,
        batch: &Batch<'_>,
        rollouts: &Rollouts<'_>,
    ) -> Result<Correction, Error> {
        let old = needed(rollouts.logp_old, "logp_old")?;
        let rollout = needed(rollouts.logp_rollout, "logp_rollout")?;
        let rollout = self.sampler(rollout, old);
        let mut out = rollout_correction(device, batch, old, &rollout, &choice.params()?)?;
        if let Some(threshold) = choice.m2_threshold {
            out.keep_only(batch, &second_moment_mask(batch, old, &rollout, threshold)?);
        }
        Ok(out)
    }

    /// Whether rejected sequences leave the statistics of their group.
    pub(crate) fn counts_kept(&self) -> bool {
        self.correction.as_ref().is_some_and(|choice| choice.group_statistics == GroupStatistics::Kept)
    }

    /// Whether a NaN of the sampler stands for the ratio 1.
    pub(crate) fn replaces_nan(&self) -> bool {
        self.correction.as_ref().is_some_and(|choice| choice.nan_rollout == NanRollout::One)
    }

    /// The log-probabilities of the sampler. If the recipe's `nan_rollout` is `one`, NaNs are replaced by
    /// those of `other`, so that the ratio to it is 1.
    pub(crate) fn sampler<'a>(&self, rollout: &'a [f32], other: &[f32]) -> Cow<'a, [f32]> {
        if !(self.replaces_nan() && rollout.iter().any(|logp| logp.is_nan())) {
            return rollout.into();
        }
        rollout.iter().zip(other).map(|(logp, other)| if logp.is_nan() { *other } else { *logp }).collect()
    }
}

impl CorrectionChoice {
    /// The parameters of [`rollout_correction`]. Errors: a value out of its domain or a bad combination, with
    /// the TOML key.
    pub fn params(&self) -> Result<CorrectionParams, Error> {
        let refuse = |message: String| Err(Error::Recipe(message));
        let (low, high) = (self.low, self.high);
        if high.is_nan() || high <= 0.0 {
            return refuse(format!("correction.high is {high}: expected a positive number"));
        }
        if let Some(low) = low.filter(|low| !(*low >= 0.0 && *low <= high)) {
            return refuse(format!("correction.low is {low}: expected 0 to correction.high"));
        }
        if let (WeightRule::Plain, Some(_)) = (self.rule, low) {
            return refuse("correction.low is used by the rules truncate and mask only".into());
        }
        if self.level == WeightLevel::One && (self.rule != WeightRule::Plain || self.normalize) {
            return refuse(
                "correction.level one has no weights: expected rule plain, without normalize".into(),
            );
        }
        if let Some(bound) = self.bound.filter(|bound| bound.is_nan() || *bound <= 0.0) {
            return refuse(format!("correction.bound is {bound}: expected a positive number"));
        }
        if let Some(threshold) = self.m2_threshold.filter(|threshold| threshold.is_nan() || *threshold <= 0.0)
        {
            return refuse(format!("correction.m2_threshold is {threshold}: expected a positive number"));
        }
        let mut rejections = Rejections::NONE;
        for (k, reject) in self.reject.iter().enumerate() {
            if self.reject[..k].iter().any(|earlier| earlier.statistic == reject.statistic) {
                return refuse(format!("correction.reject has {} twice", reject.statistic.name()));
            }
            rejections = rejections
                .with(reject.statistic, reject.low, reject.high, reject.band)
                .map_err(|e| Error::Recipe(format!("correction.reject: {}: {e}", reject.statistic.name())))?;
        }
        Ok(CorrectionParams {
            level: self.level,
            rule: self.rule,
            low,
            high,
            bound: self.bound.unwrap_or(f32::INFINITY),
            rejections,
            normalize: self.normalize,
            denominator: self.denominator,
        })
    }
}
