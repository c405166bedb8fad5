//! Log-probabilities → ratio, as TOML spells it.

use serde::{Deserialize, Serialize};

/// Over what a ratio is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    /// Each token by itself.
    #[default]
    Token,
    /// Log-ratios of the caller (prefix, segment, minimum-prefix ratios).
    Given,
    /// The geometric mean over the sequence (GSPO).
    Sequence,
}

/// The advantage of a token whose ratio is its sequence's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioAdvantage {
    /// Its own (GSPO-token; verl, TRL).
    #[default]
    Own,
    /// The mean of the sequence's live tokens (AReaL).
    SequenceMean,
}

impl RatioAdvantage {
    fn is_own(&self) -> bool {
        *self == RatioAdvantage::Own
    }
}

/// Guard policy of the log-ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardChoice {
    /// None.
    None,
    /// Clamp; zero gradient outside.
    #[default]
    Clamp,
    /// Clamp; gradient kept.
    StraightThrough,
}

/// Log-probabilities → ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RatioChoice {
    /// Level.
    pub level: RatioLevel,
    /// Guard policy.
    pub guard: GuardChoice,
    /// Its bound in log space.
    pub guard_bound: f32,
    /// Upper bound of a sequence's log-ratio; absent = none. verl: 10. For level `sequence` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_max: Option<f32>,
    /// Whose advantage a token has, where advantages are per token. For level `sequence` only.
    #[serde(skip_serializing_if = "RatioAdvantage::is_own")]
    pub advantage: RatioAdvantage,
}

impl Default for RatioChoice {
    fn default() -> Self {
        RatioChoice {
            level: RatioLevel::Token,
            guard: GuardChoice::Clamp,
            guard_bound: 20.0,
            log_max: None,
            advantage: RatioAdvantage::Own,
        }
    }
}
