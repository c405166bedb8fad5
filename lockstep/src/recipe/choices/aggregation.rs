//! Per-token losses → one number, as TOML spells it.

use serde::{Deserialize, Serialize};

/// How per-token losses become one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AggregationMode {
    /// Σ l / M.
    TokenMean,
    /// Σ l.
    TokenSum,
    /// Mean over sequences of Σ l.
    SeqMeanTokenSum,
    /// Mean over sequences of Σ l / C.
    SeqMeanTokenSumNorm,
    /// The same with C the longest sequence of the call, masked tokens included: verl's Dr.GRPO without a configured constant. It changes
    /// from batch to batch.
    SeqMeanTokenSumNormPadded,
    /// Mean over sequences of the mean of l.
    #[default]
    SeqMeanTokenMean,
}

/// Which sequences N₊ counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountedSequences {
    /// Those with a live token (verl).
    #[default]
    Nonempty,
    /// All (TRL).
    All,
}

/// How the division by a sequence's length is guarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LengthGuard {
    /// Lᵢ + 1e-8 (verl).
    #[default]
    AddEps,
    /// max(Lᵢ, 1) (TRL, AReaL, slime).
    AtLeastOne,
}

/// Per-token losses → one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Aggregation {
    /// Mode.
    pub mode: AggregationMode,
    /// Which sequences are counted.
    pub sequences: CountedSequences,
    /// Guard of the length.
    pub length: LengthGuard,
    /// C of `seq-mean-token-sum-norm`, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizon: Option<f64>,
}
