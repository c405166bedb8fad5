//! The aggregation stage (per-token losses → one number), as written in TOML.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// How per-token losses l are aggregated to one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AggregationMode {
    /// Σ l / M, where M is the number of live tokens.
    TokenMean,
    /// Σ l.
    TokenSum,
    /// Mean over sequences of Σ l.
    SeqMeanTokenSum,
    /// Mean over sequences of Σ l / C, where C is the horizon.
    SeqMeanTokenSumNorm,
    /// Mean over sequences of the mean of l.
    #[default]
    SeqMeanTokenMean,
}

/// The sequences that the denominator N₊ counts.
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

/// What a sequence without live tokens adds to a loss whose ratio is per sequence: `ratio.level` `product`,
/// gate `gmpo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmptySequence {
    /// Nothing (verl).
    #[default]
    Nothing,
    /// −A/S and no gradient: its ratio is the empty product, 1 (TRL). With advantages per token, it has none.
    One,
}

/// The aggregation stage: per-token losses → one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Aggregation {
    /// The aggregation mode.
    pub mode: AggregationMode,
    /// The sequences that are counted.
    pub sequences: CountedSequences,
    /// Guard of the length.
    pub length: LengthGuard,
    /// C of `seq-mean-token-sum-norm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizon: Option<Horizon>,
    /// What a sequence without live tokens adds to the policy term.
    pub empty: EmptySequence,
}

/// C of `seq-mean-token-sum-norm`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Horizon {
    /// A fixed number of tokens.
    Tokens(f64),
    /// The length of the call's longest sequence, masked tokens included: verl's Dr.GRPO without a configured
    /// constant. It changes from batch to batch.
    Longest,
}

/// [`Horizon::Longest`] in TOML.
const LONGEST: &str = "longest";

impl Serialize for Horizon {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Horizon::Tokens(tokens) => to.serialize_f64(*tokens),
            Horizon::Longest => to.serialize_str(LONGEST),
        }
    }
}

impl<'de> Deserialize<'de> for Horizon {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Horizon;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number of tokens or \"{LONGEST}\"")
            }

            fn visit_f64<E: de::Error>(self, tokens: f64) -> Result<Horizon, E> {
                Ok(Horizon::Tokens(tokens))
            }

            fn visit_i64<E: de::Error>(self, tokens: i64) -> Result<Horizon, E> {
                Ok(Horizon::Tokens(tokens as f64))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Horizon, E> {
                if text == LONGEST {
                    Ok(Horizon::Longest)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(text), &self))
                }
            }
        }

        from.deserialize_any(Visitor)
    }
}
