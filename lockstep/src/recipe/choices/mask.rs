//! The tokens that the policy term excludes in addition to the loss mask, as written in TOML.

use serde::{Deserialize, Serialize};

/// The policy that the off-policy sequence mask or a gate compares with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// `logp_old` (slime).
    #[default]
    Old,
    /// `logp_rollout`, the sampler (TRL, if it has one).
    Rollout,
}

/// How the tokens with the largest entropies are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuantileRule {
    /// The number of tokens that would be at or above the quantile if no two were equal, computed in
    /// binary64; ties go to the lowest index.
    #[default]
    Count,
    /// All tokens at or above `torch.quantile`, which interpolates in binary32, including all that equal it
    /// (TRL).
    Torch,
}

/// Tokens that get weight 0; they stay in every count and denominator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MaskChoice {
    /// Off-policy sequence mask: drop sequences with A < 0 whose mean log-ratio fell by more than this;
    /// absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opsm_delta: Option<f32>,
    /// The policy that the off-policy sequence mask compares with.
    pub opsm_against: Against,
    /// Keep the tokens whose entropy is in this top fraction of the batch ("80/20": 0.2); absent = all. GMPO
    /// computes its geometric mean, counts and metrics over the kept tokens only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_entropy: Option<f64>,
    /// How these tokens are chosen.
    pub quantile: QuantileRule,
}
