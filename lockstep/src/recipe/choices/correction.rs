//! The rollout correction, as written in TOML.

use crate::ops::correction::Denominator;
use lockstep_core::correction::{K1Band, Rule, Statistic, WeightLevel};
use serde::{Deserialize, Serialize};

/// The meaning of a NaN in column `logp_rollout` at a live token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NanRollout {
    /// It is an error.
    #[default]
    Error,
    /// The sampler gave no log-probability: every ratio that uses it is 1 there (TRL). The token counts like
    /// any other.
    One,
}

/// The sequences that count in the statistics of their group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupStatistics {
    /// Those of which a token is left, so that what is not learned from moves no baseline.
    #[default]
    Kept,
    /// All of them, whatever the correction rejects, as in every framework.
    All,
}

/// A rejection criterion.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RejectChoice {
    /// The statistic, under verl's name if verl has it.
    pub statistic: Statistic,
    /// Lower bound: of a k1 as a ratio (0 for none; absent = 1/high), or of a difference of probabilities
    /// (absent = −high).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f32>,
    /// Upper bound: of a k1 as a ratio, of other statistics as they are.
    pub high: f32,
    /// The quantity that the bounds of a k1 apply to.
    #[serde(default)]
    pub band: K1Band,
}

/// The rollout correction: importance weights and rejection for tokens that were sampled under other
/// probabilities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CorrectionChoice {
    /// The level at which importance weights are computed.
    pub level: WeightLevel,
    /// The rule that maps the ratio to the weight.
    pub rule: Rule,
    /// Lower end of the band; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f32>,
    /// Upper end of the band; infinite = none.
    pub high: f32,
    /// Bound of log-ratios; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f32>,
    /// Whether to divide weights by their mean: over tokens at level token, over sequences at the others.
    pub normalize: bool,
    /// Which tokens count in the loss's denominators.
    pub denominator: Denominator,
    /// The sequences that count in the mean and deviation of their group.
    #[serde(skip_serializing_if = "kept_count")]
    pub group_statistics: GroupStatistics,
    /// The meaning of a NaN in `logp_rollout`: here, in gates and in the off-policy sequence mask.
    pub nan_rollout: NanRollout,
    /// Bound of the mean squared log-ratio over the batch: tokens with the largest values are rejected until
    /// the mean is below it (M2PO); absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub m2_threshold: Option<f64>,
    /// Rejection criteria; tokens and sequences must satisfy all of them to be kept.
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
            group_statistics: GroupStatistics::Kept,
            nan_rollout: NanRollout::Error,
            m2_threshold: None,
            reject: Vec::new(),
        }
    }
}

fn kept_count(statistics: &GroupStatistics) -> bool {
    *statistics == GroupStatistics::Kept
}
