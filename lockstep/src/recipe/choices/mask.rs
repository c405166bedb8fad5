//! Which tokens of a batch take part in the policy term beyond its loss mask, as TOML spells it.

use serde::{Deserialize, Serialize};

/// What the off-policy sequence mask or a gate measures against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// `logp_old` (slime).
    #[default]
    Old,
    /// `logp_second`, the sampler (TRL where it has one).
    Second,
}

/// Tokens that get weight 0: they stay in every count and denominator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MaskChoice {
    /// Off-policy sequence mask: drop sequences with A < 0 whose mean log-ratio fell by more than this; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opsm_delta: Option<f32>,
    /// Measured against which policy.
    pub opsm_against: Against,
    /// Keep the tokens whose entropy is in this top fraction of the batch ("80/20": 0.2); absent = all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_entropy: Option<f64>,
}
