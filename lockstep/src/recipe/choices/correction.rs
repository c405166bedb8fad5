//! Rollout correction, as TOML spells it.

use crate::ops::correction::Denominator;
use lockstep_core::correction::{K1Band, Rule, Statistic, WeightLevel};
use serde::{Deserialize, Serialize};

/// What a NaN in column `logp_rollout` means, at a live token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NanRollout {
    /// It is an error.
    #[default]
    Error,
    /// The sampler gave none: the ratio is 1 there, whoever takes it (TRL). The token counts like any other.
    One,
}

/// A rejection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RejectChoice {
    /// Its name; verl's, where verl has it.
    pub statistic: Statistic,
    /// Lower bound of a k1, as a ratio, 0 for none, or of a difference of probabilities; absent = 1/high or
    /// −high.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f32>,
    /// Upper bound: of a k1 as a ratio, of others as they are.
    pub high: f32,
    /// What the band of a k1 is on.
    #[serde(default)]
    pub band: K1Band,
}

/// Importance weights and rejection of what the sampler produced under other probabilities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CorrectionChoice {
    /// Over what the importance weight is taken.
    pub level: WeightLevel,
    /// From the ratio to the weight.
    pub rule: Rule,
    /// Lower end of the band; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f32>,
    /// Upper end of the band; infinite = none.
    pub high: f32,
    /// Bound of log-ratios; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f32>,
    /// Divide weights by their mean: over tokens at level token, over sequences at the others.
    pub normalize: bool,
    /// Which tokens divide the loss.
    pub denominator: Denominator,
    /// What a NaN in `logp_rollout` means, here, for gates and for the off-policy sequence mask.
    pub nan_rollout: NanRollout,
    /// Largest mean of squared log-ratios over the batch: the tokens with the largest leave until it is below
    /// (M2PO); absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub m2_threshold: Option<f64>,
    /// Rejections; all must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reject: Vec<RejectChoice>,
}

impl Default for CorrectionChoice {
    /// min(ρ, 2) per token.
    fn default() -> Self {
        CorrectionChoice {
            level: WeightLevel::Token,
            rule: Rule::Truncate,
            low: None,
            high: 2.0,
            bound: None,
            normalize: false,
            denominator: Denominator::After,
            nan_rollout: NanRollout::Error,
            m2_threshold: None,
            reject: Vec::new(),
        }
    }
}
