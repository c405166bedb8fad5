//! The choices of each stage, as TOML spells them.

use serde::{Deserialize, Serialize};

/// Advantage estimator; formulas: [`lockstep_core::advantage::baseline`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// Group mean and standard deviation: GRPO, and Dr.GRPO without the division.
    #[default]
    Grpo,
    /// Group mean, standard deviation of the whole batch (Lite-PPO; TRL's `scale_rewards=batch`).
    GrpoBatch,
    /// Mean and standard deviation of the *other* members (NeMo).
    GrpoLeaveOneOut,
    /// Mean of the other members.
    Rloo,
    /// Length-weighted mean.
    Opo,
    /// Group mean, divided by `f_norm` times the batch's fraction of rewards that are not 0.
    Gpg,
    /// The best member against the second best, all others 0 (verl's pass@k).
    PassK,
    /// Median and MAD + `mad_floor`; the pivot is excluded.
    McGrpo,
    /// Group mean, divided by it.
    MaxRl,
    /// A baseline per group that the caller gives: ReMax's greedy reward.
    #[serde(rename = "remax")]
    ReMax,
    /// Mean weighted by the caller's weights, over the standard deviation: VCPO's minimum-variance baseline.
    Vcpo,
    /// Discounted returns of token rewards, whitened: REINFORCE++.
    ReinforcePlusPlus,
    /// Group mean, whitened over the batch: REINFORCE++'s baseline variant.
    ReinforcePlusPlusBaseline,
}

/// Whitening of advantages over the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhitenChoice {
    /// Token-weighted, ddof 1, 1e-8 inside the root.
    Verl,
    /// Token-weighted, ddof 0, variance at least 1e-8.
    Nemo,
    /// Over sequences, ddof 1, 1e-4 outside the root.
    Trl,
}

/// What a group with one counted sequence gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SingletonChoice {
    /// It is an error: almost always a wrong group key.
    #[default]
    Error,
    /// Advantage 0 (TRL).
    Zero,
    /// mean := 0, std := 1 (verl).
    RawReward,
}

/// What a NaN reward means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NanReward {
    /// "No score": excluded from its group, advantage 0 (TRL).
    #[default]
    Exclude,
    /// It is an error.
    Error,
}

/// Reward → advantage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdvantageChoice {
    /// Estimator; `kind` is another name of this key.
    #[serde(alias = "kind")]
    pub estimator: Estimator,
    /// Divide by the standard deviation: `grpo`, `grpo_batch`, `grpo_leave_one_out`, `pass_k`, `vcpo`.
    pub norm_by_std: bool,
    /// 1 = unbiased, 0 = population; of the same estimators.
    pub ddof: u32,
    /// Added to the standard deviation, outside the root; of the same estimators.
    pub eps: f64,
    /// Policy for a group of one.
    pub singleton: SingletonChoice,
    /// Policy for a NaN reward.
    pub nan_reward: NanReward,
    /// Largest magnitude of a group-relative advantage; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// Added to the MAD of `mc_grpo`; absent = 1e-3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mad_floor: Option<f64>,
    /// f_norm of `gpg`; absent = 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f_norm: Option<f64>,
    /// Discount per token of `reinforce_plus_plus`; absent = 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gamma: Option<f64>,
    /// Whitening over the batch after the estimator; absent = none, but `verl` for the two of REINFORCE++.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whiten: Option<WhitenChoice>,
}

impl Default for AdvantageChoice {
    fn default() -> Self {
        AdvantageChoice {
            estimator: Estimator::Grpo,
            norm_by_std: true,
            ddof: 1,
            eps: 1e-6,
            singleton: SingletonChoice::Error,
            nan_reward: NanReward::Exclude,
            limit: None,
            mad_floor: None,
            f_norm: None,
            gamma: None,
            whiten: None,
        }
    }
}

/// Over what a ratio is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    /// Each token by itself.
    #[default]
    Token,
    /// The geometric mean over the sequence (GSPO).
    Sequence,
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
}

impl Default for RatioChoice {
    fn default() -> Self {
        RatioChoice { level: RatioLevel::Token, guard: GuardChoice::Clamp, guard_bound: 20.0, log_max: None }
    }
}

/// Ratio and advantage → loss and gradient.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum GateChoice {
    /// PPO clip, clip-higher, dual clip.
    PpoClip {
        /// Distance of the lower bound from 1.
        #[serde(default = "default_clip")]
        clip_ratio_low: f32,
        /// Distance of the upper bound from 1.
        #[serde(default = "default_clip")]
        clip_ratio_high: f32,
        /// Dual-clip constant; absent = off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clip_ratio_c: Option<f32>,
    },
    /// CISPO: clipped weight, never differentiated. Bounds are absolute.
    Cispo {
        /// Least weight; 0 = none.
        #[serde(default)]
        low: f32,
        /// Greatest weight.
        #[serde(default = "default_cispo_high")]
        high: f32,
    },
    /// REINFORCE without importance weight (GPG).
    Reinforce {},
    /// DPPO, trust region by total variation.
    DppoTv {
        /// Most that a probability may fall.
        #[serde(default = "default_dppo")]
        clip_ratio_low: f32,
        /// Most that a probability may rise.
        #[serde(default = "default_dppo")]
        clip_ratio_high: f32,
        /// Greatest importance weight.
        #[serde(default = "default_dppo_c")]
        clip_ratio_c: f32,
    },
    /// DPPO, trust region by binary KL divergence.
    DppoKl {
        /// Greatest divergence of a probability that falls.
        #[serde(default = "default_dppo")]
        clip_ratio_low: f32,
        /// Greatest divergence of a probability that rises.
        #[serde(default = "default_dppo")]
        clip_ratio_high: f32,
        /// Greatest importance weight.
        #[serde(default = "default_dppo_c")]
        clip_ratio_c: f32,
    },
    /// SAPO's soft gate.
    Sapo {
        /// Temperature for positive advantages.
        #[serde(default = "default_tau_pos")]
        tau_pos: f32,
        /// Temperature for the others.
        #[serde(default = "default_tau_neg")]
        tau_neg: f32,
    },
}

fn default_cispo_high() -> f32 {
    1.28
}
fn default_dppo() -> f32 {
    0.15
}
fn default_dppo_c() -> f32 {
    3.0
}
fn default_clip() -> f32 {
    0.2
}
fn default_tau_pos() -> f32 {
    1.0
}
fn default_tau_neg() -> f32 {
    1.05
}

impl Default for GateChoice {
    fn default() -> Self {
        GateChoice::PpoClip { clip_ratio_low: 0.2, clip_ratio_high: 0.2, clip_ratio_c: None }
    }
}

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
    #[serde(alias = "low_var_kl")]
    K3,
}

/// KL to a reference, added to the loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlChoice {
    /// Estimator.
    pub estimator: KlEstimator,
    /// β; 0 only measures.
    pub coef: f32,
    /// k3's clamp of u; absent = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clamp_in: Option<f32>,
    /// k3's clamp of the value; absent = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clamp_out: Option<f32>,
    /// Gradient of k2 (verl's `+`).
    #[serde(default)]
    pub straight_through: bool,
}

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

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsChoice {
    /// Ratios of `in_band_fraction`, both ends included.
    pub band: [f32; 2],
}

impl Default for MetricsChoice {
    fn default() -> Self {
        MetricsChoice { band: [0.8, 1.2] }
    }
}
