//! The critic's loss and the entropy bonus, as written in TOML.

use super::{Aggregation, AggregationMode};
use serde::{Deserialize, Serialize};

/// The value loss of a critic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ValueChoice {
    /// How far a value may move from its old one; absent = no clipping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cliprange_value: Option<f32>,
    /// Errors larger than this count linearly (Huber); absent = squared errors only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huber_delta: Option<f32>,
    /// Coefficient of the value loss (TRL's `vf_coef`).
    pub coef: f64,
    /// The value loss's own aggregation, independent of the policy's.
    pub aggregation: Aggregation,
}

impl Default for ValueChoice {
    /// No clipping, token-mean.
    fn default() -> Self {
        let aggregation = Aggregation { mode: AggregationMode::TokenMean, ..Aggregation::default() };
        ValueChoice { cliprange_value: None, huber_delta: None, coef: 1.0, aggregation }
    }
}

/// The counts that a sum is divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountsOf {
    /// The counts of the whole batch, if column `counts` gives them.
    #[default]
    Batch,
    /// The call's own counts, even if column `counts` is given (TRL's entropy bonus).
    Call,
}

/// The tokens that get an entropy bonus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntropyTokens {
    /// All live tokens.
    #[default]
    Live,
    /// The tokens that `mask.top_entropy` keeps (TRL).
    Kept,
    /// The tokens with a positive advantage: those of positive samples (2505.23433; our reading).
    Positive,
}

/// The entropy bonus: −coef·H.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntropyChoice {
    /// Coefficient of the bonus: a positive one keeps the policy from collapsing; 0 means that the entropy is
    /// only measured.
    pub coef: f32,
    /// The counts that the sum is divided by.
    #[serde(default)]
    pub over: CountsOf,
    /// The tokens that have the bonus.
    #[serde(default)]
    pub of: EntropyTokens,
    /// Aggregation of per-token entropies; absent = that of the policy loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<Aggregation>,
}

impl EntropyChoice {
    /// A bonus with coefficient `coef` and the aggregation of the policy loss.
    pub const fn new(coef: f32) -> Self {
        EntropyChoice { coef, over: CountsOf::Batch, of: EntropyTokens::Live, aggregation: None }
    }
}
