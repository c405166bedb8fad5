//! Recipes: one choice for each stage, from a builder, a TOML file or a name. No arithmetic happens here.
//!
//! ```toml
//! # Everything that is left out is as in the recipe that this one extends; an unknown key is an error.
//! name = "mine"
//! extends = "grpo"                 # any name (`lockstep list`); leave out: grpo. `key = "none"` takes away an optional key or table of it
//! # duties = ["dynamic_sampling"]  # what the training loop must do besides what the choices imply: [`Duty`]
//! [advantage]                      # reward → advantage
//! estimator = "grpo"               # grpo | grpo_batch | grpo_leave_one_out | rloo | opo | gpg | pass_k | mc_grpo | max_rl | remax
//!                                  # | vcpo | reinforce_plus_plus | reinforce_plus_plus_baseline | reward | pass_at_k | gdpo | v0_5
//!                                  # | role_baseline | tempo; the key may be called `kind`
//! norm_by_std = true               # false: Dr.GRPO
//! ddof = 1                         # 1 or 0
//! eps = 1e-6
//! # least_std = 1e-8               # a standard deviation of at most this divides nothing (VCPO)
//! singleton = "error"              # error | zero | leave_out (0, and no part in whiten: TRL's RLOO) | raw_reward
//! nan_reward = "exclude"           # exclude | zero (it counts 0: GDPO's TRL tree) | error
//! # limit = 10.0                   # largest magnitude
//! # mad_floor = 0.001              # mc_grpo
//! # over_nonzero = false            # mc_grpo: times members over those with an advantage
//! # f_norm = 1.0                   # gpg
//! # gamma = 1.0                    # reinforce_plus_plus
//! # whiten = "verl"                # over the batch: verl | nemo | areal (token-weighted) | trl | nemo_gdpo | mssr (over sequences)
//! # leave_one_out = true           # gdpo: each reward against the others (NeMo)
//! # pad_id = 0                     # tempo: finished responses compare equal to it (the released code)
//! # stop_at_mask = true            # tempo: behind the first masked token the response's own advantage (the released code)
//! # k = 4                          # estimator pass_at_k (analytic)
//! # robust = "median"              # vcpo: median | winsorised, in place of the weighted mean; winsor_share = 0.05
//! # tau2 = 0.05                    # v0_5 (our reading); laplace = true: variance of binary rewards
//! # decay = 0.95                   # role_baseline (SPIRAL); role_order = "subtract_then_update" | "update_then_subtract"
//! # [advantage.over_time]          # rewards with a place in time, instead of the estimator
//! # kind = "gae"                   # gae (gamma, lambda, lambda_critic, length_alpha) | vtrace (gamma, lambda, rho_bar, rho_pg, c_bar)
//!                                  # | mars (gamma, set: unique_values_and_zero | unique_values | samples)
//!                                  # | ui_s1 (gamma, include_first_mismatch, omega) | optimal_token_baseline (gamma, lone_tail_is_raw)
//!                                  # | signed_return (gamma, correct, wrong, offset, stop_at_mask: PSR, NSR, W-REINFORCE per token)
//! [reward]                         # leave out: rewards as they come
//! threshold = 0.5                  # a reward above it is correct
//! # components = "sum"             # the rewards are the weighted sum of column reward_components (TRL); leave out: column rewards
//! # clip = [-5.0, 5.0]             # rewards of sequences, before everything else; leave out: none
//! # replay_successes = true        # RAPO, a duty of the loop
//! # group_factor_cap = 4.0         # RAPO: advantages times groups/good groups, at most this; leave out: none
//! [reward.shaping]
//! kind = "signs"                   # signs (correct, wrong) | fapo (lambda) | conciser (limit) | brpo
//!                                  # | grpovi (low, high, margin, merge_ties) | evol_rl (mean_weight)
//! correct = 0.1
//! wrong = -1.0
//! [reward.overlong]                # DAPO
//! max_length = 20480
//! buffer = 4096
//! factor = 1.0
//! saturate = false                 # true: never less than -factor (the paper)
//! [reward.filter]                  # `keep` of the advantages; ops::mask_sequences makes it a loss mask
//! kind = "varied"                  # varied | spread (eta) | solve_rate (threshold, limit) | balanced (tau) | equal (value)
//!                                  # | nonzero_advantage | at_most_tokens (limit)
//! [reward.sharpen]
//! kind = "ace"                     # ace (alpha, cap, relu, per_token) | xrpo (lambda, kappa)
//! [reward.filtration]              # PF-PPO-style (our reading): advantages times how often a response is drawn
//! kind = "power"                   # power (power) | best_of_n | best_random | best_worst | max_min | max_random
//! power = 2
//! [reward.weights]                 # how much each response counts in the policy loss (ROLL); leave either key out: no part in it
//! length = [1.5, 0.5]              # of the shortest and of the longest response
//! difficulty = [0.5, 2.0]          # at 0 and at 1 of column difficulty
//! [reward.entropy]                 # MSSR: advantages per token, raised by entropy
//! alpha = 0.4
//! kappa = 2.0
//! of = "sampled"                   # sampled | distribution
//! [ratio]                          # logp, logp_old → ratio
//! level = "token"                  # token | sequence (GSPO: geometric mean; log_max = 10.0 bounds it)
//!                                  # | segment (each run of live tokens: ROLL) | product (over the sequence: TRL's RLOO)
//!                                  # | given (column log_ratio) | min_prefix (MinPRO-style)
//! gradient = "own"                 # own (GSPO-token) | mean (levels sequence and segment: the derivatives, averaged over its tokens: TRL)
//! on_policy = false                # logp in place of logp_old: every ratio is 1 (NeMo RL: force_on_policy_ratio)
//! advantage = "own"                # own | sequence_mean (of advantages per token, level sequence: AReaL)
//! guard = "clamp"                  # none | clamp | straight_through
//! guard_bound = 20.0
//! [correction]                     # logp_old, logp_rollout → weights, rejection; leave out: none
//! level = "token"                  # one (no weights) | token | sequence | geometric
//! rule = "truncate"                # truncate (TIS) | mask (IcePop, MIS) | plain
//! # low = 0.5                      # leave out: no lower end
//! high = 2.0                       # inf: no upper end
//! m2_threshold = 0.04              # M2PO: the largest squared log-ratios leave until their mean is below; leave out: none
//! nan_rollout = "error"            # a NaN of logp_rollout: error | one (the sampler gave none, the ratio is 1: TRL)
//! bound = 20.0                     # of log-ratios; leave out: none
//! normalize = false                # divide by the mean over the batch
//! denominator = "after"            # after (verl): rejected tokens leave the mask | before (TRL, NeMo, AReaL): weight 0
//! [[correction.reject]]            # as many as wanted, all must hold
//! statistic = "seq_mean_k1"        # token_k1..3 | seq_sum_k1..3 | seq_mean_k1..3 | seq_max_k1..3
//!                                  # | token_diff | seq_sum_diff | seq_mean_diff (p_old − p_rollout: ROLL)
//! low = 0.999                      # k1: as a ratio; leave out: 1/high; 0: none. diff: as it is; leave out: −high. k2, k3: none
//! high = 1.001                     # k1: as a ratio; others: as they are
//! band = "rho"                     # of k1: rho | inverse_rho (verl's code)
//! [gate]                           # ratio, advantage → loss, gradient
//! kind = "ppo_clip"                # ppo_clip | sapo (tau_pos, tau_neg) | cispo (low, high: absolute) | reinforce
//!                                  # | dppo_tv | dppo_kl (clip_ratio_low, clip_ratio_high, clip_ratio_c)
//!                                  # | trust_region (divergence: total_variation | binary_kl | given; clip_ratio_low, clip_ratio_high, clip_ratio_c)
//!                                  # | gmpo (clip_log_low, clip_log_high; bounds: log | ratio; mean: geometric | clipped_sum | product | harmonic) | dro (beta)
//!                                  # | minirl (clip_ratio_low, clip_ratio_high, clip_ratio_c) | remix (clip_ratio_low, clip_ratio_high)
//!                                  # | two_sided (clip_ratio_low, clip_ratio_high, delta) | topr
//!                                  # | kl_cov (kl_cov_ratio, ppo_kl_coef; clip_ratio_low, clip_ratio_high: leave out for no clip) | vespo (k_pos, lambda_pos, k_neg, lambda_neg,
//!                                  # against: rollout | old, the latter with the weights of [correction] in its exponent: TRL; lambda_floor)
//!                                  # | clip_cov (clip_ratio_low, clip_ratio_high, clip_cov_ratio, clip_cov_lb, clip_cov_ub)
//! clip_ratio_low = 0.2
//! clip_ratio_high = 0.28
//! clip_ratio_c = 3.0               # leave out: no dual clip
//! [mask]                           # leave out: none
//! opsm_delta = 0.1                 # off-policy sequence mask (A < 0 and mean(old - logp) > delta)
//! opsm_against = "old"             # old | rollout (the sampler)
//! top_entropy = 0.2                # 80/20: only the tokens with the largest entropies
//! quantile = "count"               # count (so many tokens, ties by index) | torch (all from torch.quantile on: TRL)
//! [kl]                             # leave out: no KL term
//! estimator = "k3"                 # k1 | abs | k2 | k3 | low_var_kl (k3 with clamps 20 and 10)
//! place = "loss"                   # loss | reward (of tokens, less coef·k) | convex (ReMix: of the base and the previous policy)
//! coef = 0.001
//! clamp_in = 20.0                  # of the log-ratio; leave out: none
//! clamp_out = 10.0                 # of the (weighted) estimate
//! straight_through = false         # verl's "k3+"
//! importance_weighted = "none"     # none | through_ratio (r·k, r differentiated: DeepSeek-V3.2, TRL, slime) | detached
//!                                  # | score (r = 1, differentiated: NeMo RL)
//! ratio = "token"                  # whose ratio that is: token | policy (of [ratio], one of sequences at its levels sequence and product: TRL)
//! [aggregation]
//! mode = "seq-mean-token-mean"     # token-mean | token-sum | seq-mean-token-sum | seq-mean-token-sum-norm
//! sequences = "nonempty"           # N₊: nonempty (verl) | all (TRL)
//! length = "add-eps"               # Lᵢ + 1e-8 (verl) | at-least-one: max(Lᵢ, 1) (TRL)
//! # horizon = 1024                 # C of seq-mean-token-sum-norm, in tokens | "longest": the longest sequence of the call
//! empty = "nothing"                # a sequence without live tokens adds: nothing | one (level product, gate gmpo: -A/S, TRL)
//! [entropy]                        # leave out: no entropy term
//! coef = 0.001                     # loss −coef·H, by the aggregation above
//! over = "batch"                   # whose counts divide it: batch (column counts) | call (the call's own: TRL)
//! of = "live"                      # live | kept (the tokens of mask.top_entropy alone: TRL)
//! # aggregation = { mode = "token-mean" } # its own; leave out: the policy's
//! [value]                          # leave out: no critic
//! cliprange_value = 0.5            # leave out: no clipping
//! huber_delta = 10.0               # errors beyond it enter linearly; leave out: the square alone
//! coef = 1.0
//! [value.aggregation]              # as [aggregation]; leave out the table: token-mean
//! mode = "token-mean"
//! [metrics]
//! band = [0.8, 1.2]                # ratios of `in_band_fraction`
//! reduction = "tree"               # tree | exact: loss and metrics without an order, the same for any sharding
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
mod duties;
mod extend;
mod named;
mod needs;
mod numbers;
mod read;
mod together;

pub use builder::Builder;
pub use choices::{
    AdvantageChoice, Against, Aggregation, AggregationMode, ComponentsChoice, CorrectionChoice,
    CountedSequences, CountsOf, Denominator, EmptySequence, EntropyBonusChoice, EntropyChoice, EntropyKind,
    EntropyTokens, Estimator, FilterChoice, Filtration, GateChoice, GmpoBounds, GuardChoice, Horizon, K1Band,
    KlChoice, KlEstimator, KlPlace, KlRatio, KlWeighting, LengthGuard, MaskChoice, MetricsChoice, NanReward,
    NanRollout, NormSet, OverlongChoice, QuantileRule, RatioAdvantage, RatioChoice, RatioGradient,
    RatioLevel, Reduction, RejectChoice, RewardChoice, RobustChoice, RoleOrder, SampleWeights, ShapingChoice,
    SharpenChoice, SingletonChoice, TimeChoice, ValueChoice, WeightLevel, WeightRule, WhitenChoice,
};
pub use duties::Duty;
pub use named::{Entry, entries, names};
pub use needs::{Call, Need};
pub use together::refused;

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
