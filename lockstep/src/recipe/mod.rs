//! A recipe: one choice for each stage, from a builder, a TOML file or a name. No arithmetic here.
//!
//! ```toml
//! # Everything that is left out has the default of `grpo`; an unknown key is an error.
//! name = "mine"
//! [advantage]                      # reward → advantage
//! estimator = "grpo"               # grpo | grpo_batch | grpo_leave_one_out | rloo | opo | gpg | pass_k | mc_grpo | max_rl | remax
//!                                  # | vcpo | reinforce_plus_plus | reinforce_plus_plus_baseline | tempo; the key may be called `kind`
//! norm_by_std = true               # false: Dr.GRPO
//! ddof = 1                         # 1 or 0
//! eps = 1e-6
//! singleton = "error"              # error | zero | raw_reward
//! nan_reward = "exclude"           # exclude | error
//! # limit = 10.0                   # largest magnitude
//! # mad_floor = 0.001              # mc_grpo
//! # f_norm = 1.0                   # gpg
//! # gamma = 1.0                    # reinforce_plus_plus
//! # whiten = "verl"                # over the batch: verl | nemo (both token-weighted) | trl (over sequences)
//! [ratio]                          # logp, logp_old → ratio
//! level = "token"                  # token | sequence (GSPO: geometric mean; log_max = 10.0 bounds it)
//! guard = "clamp"                  # none | clamp | straight_through
//! guard_bound = 20.0
//! [gate]                           # ratio, advantage → loss, gradient
//! kind = "ppo_clip"                # ppo_clip | sapo (tau_pos, tau_neg) | cispo (low, high: absolute) | reinforce
//!                                  # | dppo_tv | dppo_kl (clip_ratio_low, clip_ratio_high, clip_ratio_c)
//! clip_ratio_low = 0.2
//! clip_ratio_high = 0.28
//! clip_ratio_c = 3.0               # leave out: no dual clip
//! [kl]                             # leave out: no KL term
//! estimator = "k3"                 # k1 | abs | k2 | k3
//! coef = 0.001
//! clamp_in = 20.0                  # k3 only; leave out: none
//! clamp_out = 10.0
//! straight_through = false         # verl's "k3+"
//! [aggregation]
//! mode = "seq-mean-token-mean"     # token-mean | token-sum | seq-mean-token-sum | seq-mean-token-sum-norm
//! sequences = "nonempty"           # N₊: nonempty (verl) | all (TRL)
//! length = "add-eps"               # Lᵢ + 1e-8 (verl) | at-least-one: max(Lᵢ, 1) (TRL)
//! # horizon = 1024                 # C of seq-mean-token-sum-norm
//! [metrics]
//! band = [0.8, 1.2]                # ratios of `in_band_fraction`
//! ```

mod advantage;
mod apply;
mod builder;
mod choices;
mod named;
mod read;

pub use advantage::{Rewards, TokenAdvantages};
pub use builder::Builder;
pub use choices::{
    AdvantageChoice, Aggregation, AggregationMode, CountedSequences, Estimator, GateChoice, GuardChoice,
    KlChoice, KlEstimator, LengthGuard, MetricsChoice, NanReward, RatioChoice, RatioLevel, SingletonChoice,
    WhitenChoice,
};
pub use named::NAMES;

use serde::{Deserialize, Serialize};

/// One choice for each stage; see the [module](self) for the TOML form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// A name, for logs.
    pub name: String,
    /// Reward → advantage.
    pub advantage: AdvantageChoice,
    /// Log-probabilities → ratio.
    pub ratio: RatioChoice,
    /// Ratio and advantage → loss and gradient.
    pub gate: GateChoice,
    /// KL to a reference, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<KlChoice>,
    /// Per-token losses → one number.
    pub aggregation: Aggregation,
    /// What is measured.
    pub metrics: MetricsChoice,
}

impl Default for Recipe {
    /// The named recipe `grpo`.
    fn default() -> Self {
        Recipe {
            name: "grpo".into(),
            advantage: AdvantageChoice::default(),
            ratio: RatioChoice::default(),
            gate: GateChoice::default(),
            kl: None,
            aggregation: Aggregation::default(),
            metrics: MetricsChoice::default(),
        }
    }
}
