//! KL to a reference, as TOML spells it.

use serde::{Deserialize, Serialize};

/// KL estimator, under the names that frameworks use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlEstimator {
    /// logp − logp_ref.
    #[serde(alias = "kl")]
    K1,
    /// Its magnitude.
    Abs,
    /// Half its square.
    #[serde(alias = "mse")]
    K2,
    /// eᵘ − u − 1.
    K3,
    /// The same with verl's clamps 20 and 10, where the recipe sets none: verl under both names. slime's is
    /// k3 with `clamp_out` 10.
    LowVarKl,
}

/// Whether the KL term is multiplied by the token's importance ratio r = exp(logp − logp_old), under the
/// recipe's guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlWeighting {
    /// No.
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

/// Whose ratio weighs an importance-weighted KL term, and is differentiated by `through_ratio`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlRatio {
    /// Each token's own, whatever `ratio.level` is (slime).
    #[default]
    Token,
    /// That of the policy term: of sequences where `ratio.level` is `sequence` or `product` (TRL). The metric
    /// `kl_ref_mean` is of the weighted term too.
    Policy,
}

/// Where the KL term goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlPlace {
    /// Into the loss: + β·k (GRPO).
    #[default]
    Loss,
    /// Into the rewards of tokens, of the policy that sampled: r − β·k (PPO, REINFORCE++). No gradient flows.
    Reward,
    /// Into the loss in two parts, λ of the base policy and 1 − λ of the previous one (ReMix).
    Convex,
}

/// KL to a reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlChoice {
    /// Estimator.
    pub estimator: KlEstimator,
    /// β; 0 only measures.
    pub coef: f32,
    /// Bound of |logp − logp_ref|; the gradient is 0 beyond it. Absent = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clamp_in: Option<f32>,
    /// Bound of the estimate's magnitude, after its importance weight; the gradient is 0 beyond it. Absent =
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clamp_out: Option<f32>,
    /// Gradient of k2 (verl's `+`).
    #[serde(default)]
    pub straight_through: bool,
    /// Importance weight of the term: the tokens come from `logp_old`, the estimate is of the current policy.
    #[serde(default)]
    pub importance_weighted: KlWeighting,
    /// Whose ratio that is; of `through_ratio` and `detached`.
    #[serde(default)]
    pub ratio: KlRatio,
    /// In the loss or in the rewards.
    #[serde(default)]
    pub place: KlPlace,
}
