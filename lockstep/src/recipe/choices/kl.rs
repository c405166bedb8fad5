//! The KL term, as written in TOML.

use serde::{Deserialize, Serialize};

/// A KL estimator, under the names that frameworks use; u = logp_ref − logp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlEstimator {
    /// logp − logp_ref.
    #[serde(alias = "kl")]
    K1,
    /// |logp − logp_ref|.
    Abs,
    /// (logp − logp_ref)² / 2.
    #[serde(alias = "mse")]
    K2,
    /// eᵘ − u − 1.
    K3,
    /// k3 with verl's clamps 20 and 10 unless the recipe sets its own: verl uses it under both names. slime's
    /// is k3 with `clamp_out` 10.
    LowVarKl,
}

/// Whether the KL term is multiplied by the token's importance ratio r = exp(logp − logp_old), under the
/// recipe's guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlWeighting {
    /// Not multiplied.
    #[default]
    None,
    /// r·k, and the gradient flows through r too (DeepSeek-V3.2, TRL, slime).
    ThroughRatio,
    /// r·k with r a constant.
    Detached,
    /// k, as if the tokens came from the current policy: r = exp(logp − sg(logp)) is 1 and adds k to the
    /// gradient (NeMo RL; 2506.09477).
    Score,
}

/// The ratio that multiplies an importance-weighted KL term, and that `through_ratio` differentiates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlRatio {
    /// Each token's own ratio, whatever `ratio.level` is (slime).
    #[default]
    Token,
    /// The ratio of the policy term, which is per sequence if `ratio.level` is `sequence` or `product` (TRL).
    /// The metric `kl_ref_mean` is then of the weighted term too.
    Policy,
}

/// The place of the KL term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlPlace {
    /// In the loss: + β·k (GRPO).
    #[default]
    Loss,
    /// In the token rewards: r − β·k, for the policy that sampled (PPO, REINFORCE++). No gradient flows.
    Reward,
    /// In the loss, in two parts: with weight λ to the base policy, and 1 − λ to the previous one (ReMix).
    Convex,
}

/// The KL term to a reference policy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlChoice {
    /// The estimator.
    pub estimator: KlEstimator,
    /// Coefficient β; 0 means that the KL is only measured.
    pub coef: f32,
    /// Bound of |logp − logp_ref|; the gradient is 0 beyond it. Absent = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clamp_in: Option<f32>,
    /// Bound of the estimate's magnitude, after its importance weight; the gradient is 0 beyond it. Absent =
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clamp_out: Option<f32>,
    /// Whether the gradient is that of k2 (verl's `+`).
    #[serde(default)]
    pub straight_through: bool,
    /// Importance weight of the term: the tokens come from `logp_old`, the estimate is of the current policy.
    #[serde(default)]
    pub importance_weighted: KlWeighting,
    /// The ratio used by `through_ratio` and `detached`.
    #[serde(default)]
    pub ratio: KlRatio,
    /// The place of the term: in the loss or in the rewards.
    #[serde(default)]
    pub place: KlPlace,
}
