//! The advantage stage (reward → advantage), as written in TOML.

use super::TimeChoice;
use lockstep_core::advantage::Order;
use serde::{Deserialize, Serialize};

/// An advantage estimator; formulas: [`lockstep_core::advantage::baseline`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdvantageEstimator {
    /// Group mean and standard deviation: GRPO, and Dr.GRPO without the division.
    #[default]
    Grpo,
    /// Group mean and standard deviation of the whole batch (Lite-PPO; TRL's `scale_rewards=batch`).
    GrpoBatch,
    /// Mean and standard deviation of the *other* members (NeMo).
    GrpoLeaveOneOut,
    /// Mean of the other members.
    Rloo,
    /// Length-weighted mean.
    Opo,
    /// Group mean; divides by `f_norm` times the fraction of the batch's rewards that are not 0.
    Gpg,
    /// The best member relative to the second best; all others get 0 (verl's pass@k).
    PassK,
    /// Median and MAD + `mad_floor`; the pivot is excluded.
    McGrpo,
    /// Group mean, which is also the divisor (MaxRL).
    MaxRl,
    /// A baseline per group from the caller: ReMax's greedy reward.
    #[serde(rename = "remax")]
    ReMax,
    /// Mean weighted by the caller's weights, and division by the standard deviation: VCPO's minimum-variance
    /// baseline.
    Vcpo,
    /// Discounted returns of token rewards, whitened: REINFORCE++.
    ReinforcePlusPlus,
    /// Group mean, whitened over the batch: REINFORCE++'s baseline variant.
    ReinforcePlusPlusBaseline,
    /// The shaped reward itself: PSR, NSR, W-REINFORCE, BRPO.
    Reward,
    /// Analytic pass@k: one of `k` attempts has a reward above `reward.threshold`.
    PassAtK,
    /// Several rewards, each normalised within its group, combined with the caller's weights and whitened:
    /// GDPO.
    Gdpo,
    /// V0.5-style (our reading): the group mean, shrunk towards a prior per group from the caller.
    #[serde(rename = "v0_5")]
    V05,
    /// SPIRAL's RAE: subtracts a moving average per role, whose state the caller keeps.
    RoleBaseline,
    /// Group mean and standard deviation, corrected at the tokens where responses diverge: TEMPO.
    Tempo,
}

/// Whitening of advantages over the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhitenChoice {
    /// No whitening, for the two REINFORCE++ estimators. For an estimator that does not whiten by itself,
    /// `"none"` in TOML is the same as no choice.
    None,
    /// Token-weighted, ddof 1, 1e-8 inside the root.
    Verl,
    /// Token-weighted, ddof 0, variance at least 1e-8.
    Nemo,
    /// Over sequences, ddof 1, 1e-4 outside the root.
    Trl,
    /// Over sequences, ddof 0, variance at least 1e-6; a batch with one counted response is left unchanged.
    Mssr,
    /// Token-weighted, ddof 1, 1e-5 outside the root.
    Areal,
    /// Over sequences, ddof 1, nothing added: NeMo's batch step of GDPO.
    NemoGdpo,
}

/// The policy for a group with one counted sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SingletonChoice {
    /// It is an error: almost always a wrong group key.
    #[default]
    Error,
    /// Advantage 0 (TRL).
    Zero,
    /// Advantage 0, and excluded from the mean and deviation of `whiten` (TRL's RLOO).
    LeaveOut,
    /// mean := 0, std := 1 (verl).
    RawReward,
}

/// A replacement for VCPO's weighted mean: a baseline that is not dominated by a few large weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RobustChoice {
    /// The weighted median.
    Median,
    /// The weighted mean after clipping to the quantiles `winsor_share` and 1 − `winsor_share`.
    Winsorised,
}

/// The meaning of a NaN reward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NanReward {
    /// "No score": excluded from its group, advantage 0 (TRL).
    #[default]
    Exclude,
    /// It counts as 0 within its group (GDPO's TRL tree).
    Zero,
    /// It is an error.
    Error,
}

/// The advantage stage: reward → advantage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdvantageChoice {
    /// Estimator; `kind` is another name of this key.
    #[serde(alias = "kind")]
    pub estimator: AdvantageEstimator,
    /// Whether to divide by the standard deviation: for `grpo`, `grpo_batch`, `grpo_leave_one_out`, `pass_k`,
    /// `vcpo`.
    pub norm_by_std: bool,
    /// 1 = unbiased, 0 = population; for the same estimators.
    pub ddof: u32,
    /// Added to the standard deviation, outside the root; for the same estimators.
    pub eps: f64,
    /// A standard deviation of at most this is not divided by; absent = 0. VCPO's code: 1e-8. For `grpo`,
    /// `grpo_batch`, `pass_k`, `vcpo`, `gdpo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_std: Option<f64>,
    /// Policy for groups of one.
    pub singleton: SingletonChoice,
    /// Policy for NaN rewards.
    pub nan_reward: NanReward,
    /// Largest magnitude of a group-relative advantage; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// Added to the MAD of `mc_grpo`; absent = 1e-3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mad_floor: Option<f64>,
    /// Whether to multiply by the number of members of the group over the number of those whose advantage is
    /// not 0 (`mc_grpo`'s GSM8K trainer); absent = false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_nonzero: Option<bool>,
    /// f_norm of `gpg`; absent = 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f_norm: Option<f64>,
    /// Discount per token of `reinforce_plus_plus`; absent = 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gamma: Option<f64>,
    /// Attempts of `pass_at_k`; absent = 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
    /// Variance of the error of `v0_5`'s prior; absent = estimated from the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tau2: Option<f64>,
    /// Whether `v0_5` uses the Laplace-smoothed variance of binary rewards; absent = false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub laplace: Option<bool>,
    /// Whether `gdpo` compares each reward with the mean and standard deviation of the other members (NeMo);
    /// absent = false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leave_one_out: Option<bool>,
    /// Padding id of `tempo`, which the ends of finished responses equal (the released code); absent = they
    /// never match a live token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pad_id: Option<u32>,
    /// Whether `tempo` gives the response's own advantage after the first masked token (the released code);
    /// absent = false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_at_mask: Option<bool>,
    /// γ of `role_baseline`; absent = 0.95.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decay: Option<f64>,
    /// Order of `role_baseline`; absent = `subtract_then_update`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_order: Option<Order>,
    /// Replacement for `vcpo`'s weighted mean; absent = the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robust: Option<RobustChoice>,
    /// Share of the weight beyond each quantile of `robust = "winsorised"`; absent = 0.05.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub winsor_share: Option<f64>,
    /// Whitening over the batch after the estimator; absent = none, except `verl` for `gdpo` and the two
    /// REINFORCE++ estimators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whiten: Option<WhitenChoice>,
    /// An estimator for rewards over time, instead of `estimator`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_time: Option<TimeChoice>,
}

impl AdvantageEstimator {
    /// Whether the estimator whitens by itself, unless `whiten` says otherwise.
    pub(crate) fn whitens(self) -> bool {
        matches!(self, Self::ReinforcePlusPlus | Self::ReinforcePlusPlusBaseline | Self::Gdpo)
    }
}

impl Default for AdvantageChoice {
    fn default() -> Self {
        AdvantageChoice {
            estimator: AdvantageEstimator::Grpo,
            norm_by_std: true,
            ddof: 1,
            eps: 1e-6,
            least_std: None,
            singleton: SingletonChoice::Error,
            nan_reward: NanReward::Exclude,
            limit: None,
            mad_floor: None,
            over_nonzero: None,
            f_norm: None,
            gamma: None,
            k: None,
            tau2: None,
            laplace: None,
            leave_one_out: None,
            pad_id: None,
            stop_at_mask: None,
            decay: None,
            role_order: None,
            robust: None,
            winsor_share: None,
            whiten: None,
            over_time: None,
        }
    }
}
