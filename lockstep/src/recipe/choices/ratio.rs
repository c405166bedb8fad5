//! Log-probabilities → ratio, as TOML spells it.

use serde::{Deserialize, Serialize};

/// Over what a ratio is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    /// Each token by itself.
    #[default]
    Token,
    /// Log-ratios of column `log_ratio` (prefix and segment ratios of one's own).
    Given,
    /// Each token, plus the least log-ratio of a prefix before it, at most 0: MinPRO-style (our reading). No
    /// gradient flows through the prefix.
    MinPrefix,
    /// The geometric mean over the sequence (GSPO).
    Sequence,
    /// The product over the sequence, exp(Σ d): of whole responses (TRL's RLOO). A gate that differentiates
    /// the ratio gives every token the sequence's derivative: the sum over its tokens. Metrics of ratios and
    /// log-ratios are of the products.
    Product,
    /// The geometric mean over a segment, a run of live tokens: a turn, where the mask leaves out what lies
    /// between turns (ROLL).
    Segment,
}

/// What the ratio of a sequence passes on to its tokens, where the gate differentiates it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioGradient {
    /// To each token the derivative of its own term, as if the ratio were its alone (GSPO-token; verl).
    #[default]
    Own,
    /// The derivative itself: the mean over the live tokens of the sequence or segment (TRL, AReaL, ROLL).
    /// The same as `own` where all of them have one weight and one advantage, and at level `token`.
    Mean,
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
    pub advantage: RatioAdvantage,
    /// What the ratio of a sequence passes on to its tokens.
    pub gradient: RatioGradient,
    /// In the loss, `logp` without its gradient stands in for `logp_old`: every ratio is 1 (NeMo RL's
    /// `force_on_policy_ratio`).
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
