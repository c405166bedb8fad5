//! A critic's loss and the entropy bonus, as TOML spells them.

use super::{Aggregation, AggregationMode};
use serde::{Deserialize, Serialize};

/// The value loss of a critic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ValueChoice {
    /// How far a value may move from its old one; absent = no clipping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cliprange_value: Option<f32>,
    /// Errors beyond it enter linearly (Huber); absent = the square alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huber_delta: Option<f32>,
    /// Multiplies the loss (TRL's `vf_coef`).
    pub coef: f64,
    /// Per-token losses → one number; its own, whatever the policy's is.
    pub aggregation: Aggregation,
}

impl Default for ValueChoice {
    /// No clipping, token-mean.
    fn default() -> Self {
        let aggregation = Aggregation { mode: AggregationMode::TokenMean, ..Aggregation::default() };
        ValueChoice { cliprange_value: None, huber_delta: None, coef: 1.0, aggregation }
    }
}

/// Whose counts divide a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountsOf {
    /// The whole batch's, where column `counts` says them.
    #[default]
    Batch,
    /// The call's own, even so (TRL's entropy bonus).
    Call,
}

/// Which tokens have an entropy bonus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntropyTokens {
    /// All live ones.
    #[default]
    Live,
    /// Those that `mask.top_entropy` keeps (TRL).
    Kept,
}

/// The entropy bonus: −coef·H.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntropyChoice {
    /// Weight of the bonus: positive keeps the policy from collapsing; 0 only measures.
    pub coef: f32,
    /// Whose counts divide the sum.
    #[serde(default)]
    pub over: CountsOf,
    /// Which tokens have it.
    #[serde(default)]
    pub of: EntropyTokens,
    /// Per-token entropies → one number; absent = as the policy loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<Aggregation>,
}

impl EntropyChoice {
    /// By the aggregation of the policy loss.
    pub const fn new(coef: f32) -> Self {
        EntropyChoice { coef, over: CountsOf::Batch, of: EntropyTokens::Live, aggregation: None }
    }
}
