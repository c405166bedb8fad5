//! The ratio stage (log-probabilities → ratio), as written in TOML.

use serde::{Deserialize, Serialize};

/// The level at which the ratio is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    /// A ratio for each token.
    #[default]
    Token,
    /// Log-ratios from column `log_ratio` (your own prefix or segment ratios).
    Given,
    /// A log-ratio for each token, plus the smallest log-ratio of a prefix before it, at most 0: MinPRO-style
    /// (our reading). No gradient flows through the prefix.
    MinPrefix,
    /// The geometric mean over the sequence (GSPO).
    Sequence,
    /// The product over the sequence, exp(Σ d), the ratio of whole responses (TRL's RLOO). A gate that
    /// differentiates the ratio gives every token the sequence's derivative, which is the sum over its
    /// tokens. Metrics of ratios and log-ratios are of the products.
    Product,
    /// The geometric mean over a segment, which is a run of live tokens: a turn, if the mask excludes the
    /// tokens between turns (ROLL).
    Segment,
}

/// The gradient that the ratio of a sequence passes to its tokens, if the gate differentiates it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioGradient {
    /// Each token gets the derivative of its own term, as if the ratio were its own (GSPO-token; verl).
    #[default]
    Own,
    /// The true derivative: the mean over the live tokens of the sequence or segment (TRL, AReaL, ROLL). It
    /// equals `own` if they all have the same weight and advantage, and at level `token`.
    Mean,
}

/// The advantage of a token whose ratio is that of its sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioAdvantage {
    /// The token's own advantage (GSPO-token; verl, TRL).
    #[default]
    Own,
    /// The mean advantage of the sequence's live tokens (AReaL).
    SequenceMean,
}

/// The guard of the log-ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardChoice {
    /// No guard.
    None,
    /// Clamp; the gradient is 0 outside.
    #[default]
    Clamp,
    /// Clamp; the gradient is kept.
    StraightThrough,
}

/// The ratio stage: log-probabilities → ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RatioChoice {
    /// The level at which the ratio is computed.
    pub level: RatioLevel,
    /// Guard of the log-ratio.
    pub guard: GuardChoice,
    /// Bound of the guard, in nats.
    pub guard_bound: f32,
    /// Upper bound of a sequence's log-ratio; absent = none. verl: 10. For level `sequence` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_max: Option<f32>,
    /// The advantage of a token, if advantages are per token. For level `sequence` only.
    pub advantage: RatioAdvantage,
    /// The gradient that the ratio of a sequence passes to its tokens.
    pub gradient: RatioGradient,
    /// Whether the loss uses `logp` without its gradient in place of `logp_old`, so that every ratio is 1
    /// (NeMo RL's `force_on_policy_ratio`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub on_policy: bool,
}

impl Default for RatioChoice {
    fn default() -> Self {
        RatioChoice {
            level: RatioLevel::Token,
            guard: GuardChoice::Clamp,
            guard_bound: 20.0,
            log_max: None,
            advantage: RatioAdvantage::Own,
            gradient: RatioGradient::Own,
            on_policy: false,
        }
    }
}
