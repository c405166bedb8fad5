//! Which tokens of a batch take part in the policy term beyond its loss mask, as TOML spells it.

use serde::{Deserialize, Serialize};

/// What the off-policy sequence mask or a gate measures against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// `logp_old` (slime).
    #[default]
    Old,
    /// `logp_rollout`, the sampler (TRL where it has one).
    Rollout,
}

/// Which tokens are the top of the entropies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuantileRule {
    /// As many as are at or above the quantile when no two are equal, counted in binary64; ties go to the
    /// lowest index.
    #[default]
    Count,
    /// All at or above `torch.quantile`, which interpolates in binary32; so all that are equal to it (TRL).
    Torch,
}

/// Tokens that get weight 0: they stay in every count and denominator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MaskChoice {
    /// Off-policy sequence mask: drop sequences with A < 0 whose mean log-ratio fell by more than this;
    /// absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opsm_delta: Option<f32>,
    /// Measured against which policy.
    pub opsm_against: Against,
    /// Keep the tokens whose entropy is in this top fraction of the batch ("80/20": 0.2); absent = all. GMPO
    /// takes its geometric mean, its counts and its metrics over the kept tokens alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_entropy: Option<f64>,
    /// Which tokens these are.
    pub quantile: QuantileRule,
}
