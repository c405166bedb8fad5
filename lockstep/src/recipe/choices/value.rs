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
    /// Multiplies the loss (TRL's `vf_coef`).
    pub coef: f64,
    /// Per-token losses → one number; its own, whatever the policy's is.
    pub aggregation: Aggregation,
}

impl Default for ValueChoice {
    /// No clipping, token-mean.
    fn default() -> Self {
        let aggregation = Aggregation { mode: AggregationMode::TokenMean, ..Aggregation::default() };
        ValueChoice { cliprange_value: None, coef: 1.0, aggregation }
    }
}

/// The entropy bonus: −coef·H, by the aggregation of the policy loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntropyChoice {
    /// Weight of the bonus: positive keeps the policy from collapsing; 0 only measures.
    pub coef: f32,
}
