//! Recipes: one choice for each stage, from a builder, a TOML file or a name. No arithmetic happens here.
//!
//! ```toml
//! # Omitted keys are as in the recipe that this one extends; an unknown key is an error.
//! name = "mine"
//! extends = "grpo"                 # any name (`lockstep list`); omitted: grpo.
//!                                  # `key = "none"` removes an optional key or table of that recipe
//! # duties = ["dynamic_sampling"]  # duties besides those that the choices imply: [`Duty`]
//! [advantage]                      # reward → advantage
//! estimator = "grpo"               # grpo | grpo_batch | grpo_leave_one_out | rloo | opo | gpg | pass_k
//!                                  # | mc_grpo | max_rl | remax | vcpo | reinforce_plus_plus
//!                                  # | reinforce_plus_plus_baseline | reward | pass_at_k | gdpo | v0_5
//!                                  # | role_baseline | tempo; the key may also be called `kind`
//! norm_by_std = true               # false: Dr.GRPO
//! ddof = 1                         # 1 or 0
//! eps = 1e-6
//! # least_std = 1e-8               # a standard deviation of at most this is not divided by (VCPO)
//! singleton = "error"              # error | zero | leave_out (0, and excluded from whiten: TRL's RLOO)
//!                                  # | raw_reward
//! nan_reward = "exclude"           # exclude | zero (counts as 0: GDPO's TRL tree) | error
//! # limit = 10.0                   # largest magnitude
//! # mad_floor = 0.001              # mc_grpo
//! # over_nonzero = false            # mc_grpo: times members over members with a non-zero advantage
//! # f_norm = 1.0                   # gpg
//! # gamma = 1.0                    # reinforce_plus_plus
//! # whiten = "verl"                # over the batch: verl | nemo | areal (token-weighted)
//!                                  # | trl | nemo_gdpo | mssr (over sequences) | none
//! # leave_one_out = true           # gdpo: each reward relative to the other members (NeMo)
//! # pad_id = 0                     # tempo: finished responses equal this id (the released code)
//! # stop_at_mask = true            # tempo: after the first masked token, the response's own advantage
//!                                  # (the released code)
//! # k = 4                          # estimator pass_at_k (analytic)
//! # robust = "median"              # vcpo: median | winsorised, instead of the weighted mean;
//!                                  # winsor_share = 0.05
//! # tau2 = 0.05                    # v0_5 (our reading); laplace = true: variance of binary rewards
//! # decay = 0.95                   # role_baseline (SPIRAL);
//!                                  # role_order = "subtract_then_update" | "update_then_subtract"
//! # [advantage.over_time]          # an estimator for rewards over time, instead of `estimator`
//! # kind = "gae"                   # gae (gamma, lambda, lambda_critic, length_alpha)
//!                                  # | vtrace (gamma, lambda, rho_bar, rho_pg, c_bar)
//!                                  # | mars (gamma, set: unique_values_and_zero | unique_values | samples)
//!                                  # | ui_s1 (gamma, include_first_mismatch, omega)
//!                                  # | optimal_token_baseline (gamma, lone_tail_is_raw)
//!                                  # | signed_return (gamma, correct, wrong, offset, stop_at_mask:
//!                                  # PSR, NSR, W-REINFORCE per token)
//! [reward]                         # omitted: unchanged rewards
//! threshold = 0.5                  # a reward above this is correct
//! # components = "sum"             # weighted sum of column reward_components (TRL);
//!                                  # omitted: column rewards
//! # clip = [-5.0, 5.0]             # of sequence rewards, before everything else; omitted: none
//! # replay_successes = true        # RAPO, a duty of the training loop
//! # group_factor_cap = 4.0         # RAPO: advantages times groups/good groups, at most this;
//!                                  # omitted: none
//! [reward.shaping]
//! kind = "signs"                   # signs (correct, wrong) | fapo (lambda) | conciser (limit) | brpo
//!                                  # | grpovi (low, high, margin, merge_ties) | evol_rl (mean_weight)
//! correct = 0.1
//! wrong = -1.0
//! [reward.overlong]                # DAPO
//! max_length = 20480
//! buffer = 4096
//! factor = 1.0
//! saturate = false                 # true: never below -factor (the paper)
//! [reward.filter]                  # makes `keep` of the credit; ops::mask_sequences makes it a loss mask
//! kind = "varied"                  # varied | spread (eta) | solve_rate (threshold, limit)
//!                                  # | balanced (tau) | equal (value) | nonzero_advantage
//!                                  # | at_most_tokens (limit)
//! [reward.sharpen]
//! kind = "ace"                     # ace (alpha, cap, relu, per_token) | xrpo (lambda, kappa)
//! [reward.filtration]              # PF-PPO-style (our reading): advantages times draw probability and
//!                                  # group size
//! kind = "power"                   # power (power) | best_of_n | best_random | best_worst | max_min
//!                                  # | max_random
//! power = 2
//! [reward.weights]                 # weight of each response in the policy loss (ROLL);
//!                                  # an omitted key has no effect
//! length = [1.5, 0.5]              # of the shortest and the longest response
//! difficulty = [0.5, 2.0]          # at 0 and at 1 of column difficulty
//! [reward.entropy]                 # MSSR: advantages per token, raised by entropy
//! alpha = 0.4
//! kappa = 2.0
//! of = "sampled"                   # sampled | distribution
//! [ratio]                          # logp, logp_old → ratio
//! level = "token"                  # token | sequence (GSPO: geometric mean; log_max = 10.0 bounds it)
//!                                  # | segment (each run of live tokens: ROLL)
//!                                  # | product (over the sequence: TRL's RLOO)
//!                                  # | given (column log_ratio) | min_prefix (MinPRO-style)
//! gradient = "own"                 # own (GSPO-token) | mean (levels sequence and segment:
//!                                  # the mean of the derivatives over the tokens: TRL)
//! on_policy = false                # logp instead of logp_old: every ratio is 1
//!                                  # (NeMo RL: force_on_policy_ratio)
//! advantage = "own"                # own | sequence_mean (of per-token advantages, level sequence: AReaL)
//! guard = "clamp"                  # none | clamp | straight_through
//! guard_bound = 20.0
//! [correction]                     # logp_old, logp_rollout → weights, rejection; omitted: none
//! level = "token"                  # one (no weights) | token | sequence | geometric
//! rule = "truncate"                # truncate (TIS) | mask (IcePop, MIS) | plain
//! # low = 0.5                      # omitted: no lower end
//! high = 2.0                       # inf: no upper end
//! m2_threshold = 0.04              # M2PO: rejects the largest squared log-ratios until their mean is
//!                                  # below this; omitted: none
//! group_statistics = "kept"        # in a group's mean and deviation: kept (not rejected) | all (frameworks)
//! nan_rollout = "error"            # a NaN in logp_rollout: error | one (the ratio is 1: TRL)
//! bound = 20.0                     # of log-ratios; omitted: none
//! normalize = false                # true: divide by the mean over the batch
//! denominator = "after"            # after (verl): rejected tokens are removed from the mask
//!                                  # | before (TRL, NeMo, AReaL): they have weight 0
//! [[correction.reject]]            # any number; all must hold
//! statistic = "seq_mean_k1"        # token_k1..3 | seq_sum_k1..3 | seq_mean_k1..3 | seq_max_k1..3
//!                                  # | token_diff | seq_sum_diff | seq_mean_diff (p_old − p_rollout: ROLL)
//! low = 0.999                      # k1: a ratio; omitted: 1/high; 0: none. diff: as it is;
//!                                  # omitted: −high. k2, k3: none
//! high = 1.001                     # k1: a ratio; others: as they are
//! band = "rho"                     # of k1: rho | inverse_rho (verl's code)
//! [gate]                           # ratio, advantage → loss, gradient
//! kind = "ppo_clip"                # ppo_clip | sapo (tau_pos, tau_neg) | cispo (low, high: absolute)
//!                                  # | reinforce
//!                                  # | dppo_tv | dppo_kl (clip_ratio_low, clip_ratio_high, clip_ratio_c)
//!                                  # | trust_region (divergence: total_variation | binary_kl | given;
//!                                  # clip_ratio_low, clip_ratio_high, clip_ratio_c)
//!                                  # | gmpo (clip_log_low, clip_log_high; bounds: log | ratio;
//!                                  # mean: geometric | clipped_sum | product | harmonic)
//!                                  # | dro (beta)
//!                                  # | minirl (clip_ratio_low, clip_ratio_high, clip_ratio_c)
//!                                  # | remix (clip_ratio_low, clip_ratio_high)
//!                                  # | two_sided (clip_ratio_low, clip_ratio_high, delta) | topr
//!                                  # | kl_cov (kl_cov_ratio, ppo_kl_coef;
//!                                  # clip_ratio_low, clip_ratio_high: omit for no clip)
//!                                  # | vespo (k_pos, lambda_pos, k_neg, lambda_neg, lambda_floor,
//!                                  # against: rollout | old; old has the weights of [correction] in its
//!                                  # exponent: TRL)
//!                                  # | clip_cov (clip_ratio_low, clip_ratio_high, clip_cov_ratio,
//!                                  # clip_cov_lb, clip_cov_ub)
//! clip_ratio_low = 0.2
//! clip_ratio_high = 0.28
//! clip_ratio_c = 3.0               # omitted: no dual clip
//! [mask]                           # omitted: none
//! opsm_delta = 0.1                 # off-policy sequence mask (A < 0 and mean(old - logp) > delta)
//! opsm_against = "old"             # old | rollout (the sampler)
//! top_entropy = 0.2                # 80/20: only the tokens with the largest entropies
//! quantile = "count"               # count (that many tokens, ties by index)
//!                                  # | torch (all at or above torch.quantile: TRL)
//! [kl]                             # omitted: no KL term
//! estimator = "k3"                 # k1 | abs | k2 | k3 | low_var_kl (k3 with clamps 20 and 10)
//! place = "loss"                   # loss | reward (token rewards minus coef·k)
//!                                  # | convex (ReMix: to the base and the previous policy)
//! coef = 0.001
//! clamp_in = 20.0                  # of the log-ratio; omitted: none
//! clamp_out = 10.0                 # of the (weighted) estimate
//! straight_through = false         # verl's "k3+"
//! importance_weighted = "none"     # none | through_ratio (r·k, r differentiated: DeepSeek-V3.2, TRL, slime)
//!                                  # | detached | score (r = 1, differentiated: NeMo RL)
//! ratio = "token"                  # the ratio r: token | policy (that of [ratio], per sequence at its
//!                                  # levels sequence and product: TRL)
//! [aggregation]
//! mode = "seq-mean-token-mean"     # token-mean | token-sum | seq-mean-token-sum
//!                                  # | seq-mean-token-sum-norm | seq-mean-token-mean
//! sequences = "nonempty"           # N₊: nonempty (verl) | all (TRL)
//! length = "add-eps"               # Lᵢ + 1e-8 (verl) | at-least-one: max(Lᵢ, 1) (TRL)
//! # horizon = 1024                 # C of seq-mean-token-sum-norm, in tokens
//!                                  # | "longest": the longest sequence of the call
//! empty = "nothing"                # a sequence without live tokens adds:
//!                                  # nothing | one (level product, gate gmpo: -A/S, TRL)
//! [entropy]                        # omitted: no entropy term
//! coef = 0.001                     # loss −coef·H, with the aggregation above
//! over = "batch"                   # the counts that divide it: batch (column counts)
//!                                  # | call (the call's own: TRL)
//! of = "live"                      # live | kept (only the tokens of mask.top_entropy: TRL)
//!                                  # | positive (only tokens with A > 0)
//! # aggregation = { mode = "token-mean" } # its own; omitted: the policy's
//! [value]                          # omitted: no critic
//! cliprange_value = 0.5            # omitted: no clipping
//! huber_delta = 10.0               # larger errors enter linearly; omitted: squared errors only
//! coef = 1.0
//! [value.aggregation]              # like [aggregation]; omitted: token-mean
//! mode = "token-mean"
//! [metrics]
//! band = [0.8, 1.2]                # of `in_band_fraction`, as ratios
//! reduction = "tree"               # tree | exact: the same loss and metrics for any sharding
//! ```

/// Returns a recipe error with the message of `format!` unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        // The condition is negated as a whole: a comparison with NaN is false, so NaN is rejected, as
        // intended.
        let holds: bool = $holds;
        if !holds {
            return Err(crate::Error::Recipe(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;

mod advantage_check;
mod builder;
mod choices;
mod conflicts;
mod duties;
mod extend;
mod named;
mod needs;
mod numbers;
mod place;
mod read;

pub use builder::Builder;
pub use choices::{
    AdvantageChoice, AdvantageEstimator, Against, Aggregation, AggregationMode, ComponentsChoice,
    CorrectionChoice, CountedSequences, CountsOf, Denominator, EmptySequence, EntropyBonusChoice,
    EntropyChoice, EntropyKind, EntropyTokens, FilterChoice, Filtration, GateChoice, GmpoBounds,
    GroupStatistics, GuardChoice, Horizon, K1Band, KlChoice, KlEstimator, KlPlace, KlRatio, KlWeighting,
    LengthGuard, MaskChoice, MetricsChoice, NanReward, NanRollout, NormSet, OverlongChoice, QuantileRule,
    RatioAdvantage, RatioChoice, RatioGradient, RatioLevel, Reduction, RejectChoice, RewardChoice,
    RobustChoice, RoleOrder, SampleWeights, ShapingChoice, SharpenChoice, SingletonChoice, TimeChoice,
    ValueChoice, WeightLevel, WeightRule, WhitenChoice,
};
pub use conflicts::refused;
pub use duties::Duty;
pub use named::{Confidence, NamedRecipe, entries, names};
pub use needs::{Call, Need};

use serde::{Deserialize, Serialize};

/// A recipe: one choice for each stage. See the [module](self) for the TOML form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// The name, for logs.
    pub name: String,
    /// Duties of the training loop besides those that the choices imply; [`Recipe::duties`] returns both.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub duties: Vec<Duty>,
    /// Reward → shaped reward, and the steps after the estimator.
    #[serde(skip_serializing_if = "RewardChoice::is_default")]
    pub reward: RewardChoice,
    /// Reward → advantage.
    pub advantage: AdvantageChoice,
    /// Log-probabilities → ratio.
    pub ratio: RatioChoice,
    /// Ratio and advantage → loss and gradient.
    pub gate: GateChoice,
    /// Tokens that the policy term excludes.
    #[serde(skip_serializing_if = "nothing")]
    pub mask: MaskChoice,
    /// KL to a reference, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<KlChoice>,
    /// Importance weights and rejection that correct for the sampler's probabilities, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correction: Option<CorrectionChoice>,
    /// Per-token losses → one number.
    pub aggregation: Aggregation,
    /// Entropy bonus, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entropy: Option<EntropyChoice>,
    /// Loss of the critic, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<ValueChoice>,
    /// The metrics.
    pub metrics: MetricsChoice,
}

/// Whether a recipe masks nothing.
fn nothing(mask: &MaskChoice) -> bool {
    *mask == MaskChoice::default()
}

impl Default for Recipe {
    /// The named recipe `grpo`.
    fn default() -> Self {
        Recipe {
            name: "grpo".into(),
            duties: Vec::new(),
            reward: RewardChoice::default(),
            advantage: AdvantageChoice::default(),
            ratio: RatioChoice::default(),
            gate: GateChoice::default(),
            mask: MaskChoice::default(),
            kl: None,
            correction: None,
            aggregation: Aggregation::default(),
            entropy: None,
            value: None,
            metrics: MetricsChoice::default(),
        }
    }
}
