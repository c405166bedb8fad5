//! The steps on rewards before the estimator and on advantages after it, as written in TOML.

use super::{Filtration, SampleWeights};
use serde::{Deserialize, Serialize};

/// A reward shaping (reward → shaped reward); formulas: [`lockstep_core::reward`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ShapingChoice {
    /// Other values for the rewards 1 and 0: PSR, NSR, W-REINFORCE.
    Signs {
        /// Replaces the reward 1.
        correct: f64,
        /// Replaces the reward 0.
        wrong: f64,
    },
    /// FAPO: 1, −1, and 1 − λ for correct answers that column `flawed` marks.
    Fapo {
        /// λ.
        #[serde(default = "one")]
        lambda: f64,
    },
    /// ConciseR-style stage 2 (our reading): shorter is better where all are correct.
    Conciser {
        /// L_limit in tokens.
        limit: u32,
    },
    /// BRPO: 1 for responses that beat the response of column `reference` in every vote, else −1; the
    /// reference gets 0.
    Brpo {},
    /// GRPOVI: rewards with the largest variance that keep the mean and the order, under the probabilities of
    /// column `logp_ref`.
    Grpovi {
        /// Lower bound m; absent = the group's smallest reward minus `margin`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        low: Option<f64>,
        /// Upper bound M; absent = the group's largest reward plus `margin`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        high: Option<f64>,
        /// The margin around the group's own bounds; see `low` and `high`.
        #[serde(default)]
        margin: f64,
        /// Whether equal rewards stay equal (ours).
        #[serde(default)]
        merge_ties: bool,
    },
    /// EVOL-RL: reward bands by column `answer_class`, placed within a band by novelty (column `similarity`).
    EvolRl {
        /// Weight of the mean similarity; the largest similarity gets the rest.
        #[serde(default = "half")]
        mean_weight: f64,
    },
}

/// DAPO's penalty for overlong answers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverlongChoice {
    /// Largest length L_max, in tokens.
    pub max_length: u32,
    /// Length B of the buffer before L_max, in tokens.
    pub buffer: u32,
    /// The penalty at L_max.
    #[serde(default = "one")]
    pub factor: f64,
    /// Whether the penalty is never more than `factor` (the paper).
    #[serde(default)]
    pub saturate: bool,
}

/// A filter of groups and sequences; formulas: [`lockstep_core::reward::filter`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum FilterChoice {
    /// DAPO dynamic sampling: keeps groups whose rewards differ.
    Varied {},
    /// UI-S1: keeps groups whose standard deviation is above `eta`.
    Spread {
        /// The bound of the standard deviation.
        eta: f64,
    },
    /// RAPO: keeps groups that are not solved.
    SolveRate {
        /// A reward above this is a success.
        threshold: f64,
        /// A group with at least this success rate is dropped.
        limit: f64,
    },
    /// BRPO: keeps groups whose shaped rewards are balanced.
    Balanced {
        /// The largest mean.
        tau: f64,
    },
    /// PSR, NSR: keeps sequences with this reward.
    Equal {
        /// The reward.
        value: f64,
    },
    /// SPIRAL: keeps sequences whose advantage is not 0.
    NonzeroAdvantage {},
    /// DAPO overlong filtering: keeps sequences of at most `limit` tokens.
    AtMostTokens {
        /// The limit, in tokens.
        limit: u32,
    },
}

/// A sharpening of advantages; formulas: [`lockstep_core::advantage::sharpen`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SharpenChoice {
    /// XRPO-style (our reading); needs column `logp_old`.
    Xrpo {
        /// λ.
        #[serde(default = "xrpo_lambda")]
        lambda: f64,
        /// κ.
        #[serde(default = "half")]
        kappa: f64,
    },
    /// ACE; needs columns `logp_old` and `logp_ref`.
    Ace {
        /// α.
        #[serde(default = "one")]
        alpha: f64,
        /// Largest factor (ours).
        #[serde(default = "ace_cap")]
        cap: f64,
        /// Whether to use max(c, 0) instead of the softplus.
        #[serde(default)]
        relu: bool,
        /// Whether c is divided by the sequence's number of tokens (ours).
        #[serde(default)]
        per_token: bool,
    },
}

/// The entropy that raises advantages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntropyKind {
    /// −p log p of the sampled token (the released code).
    #[default]
    Sampled,
    /// The entropy of the full distribution.
    Distribution,
}

/// MSSR's entropy shaping; formula: [`lockstep_core::advantage::entropy_bonus`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntropyBonusChoice {
    /// α.
    #[serde(default = "mssr_alpha")]
    pub alpha: f32,
    /// κ.
    #[serde(default = "mssr_kappa")]
    pub kappa: f32,
    /// The entropy to use.
    #[serde(default)]
    pub of: EntropyKind,
}

defaults! {
    one: f64 = 1.0;
    half: f64 = 0.5;
    xrpo_lambda: f64 = 2.5;
    ace_cap: f64 = 5.0;
    mssr_alpha: f32 = 0.4;
    mssr_kappa: f32 = 2.0;
}

/// How several rewards of a sequence are combined to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComponentsChoice {
    /// Σ w·r of columns `reward_components` and `reward_weights`; a NaN adds nothing, and all NaN means no
    /// score (TRL).
    Sum,
}

/// The reward stage: all steps before and after the estimator; none by default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RewardChoice {
    /// Rewards that replace column `rewards`; absent = that column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<ComponentsChoice>,
    /// Range `[low, high]` that rewards of sequences are clipped to, before everything else; absent = none.
    /// NaN stays NaN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<[f32; 2]>,
    /// A reward above this is correct.
    pub threshold: f32,
    /// Reward → shaped reward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shaping: Option<ShapingChoice>,
    /// A penalty for overlong answers, after `shaping`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<OverlongChoice>,
    /// The filter that sets the credit's `keep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterChoice>,
    /// Sharpening of advantages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharpen: Option<SharpenChoice>,
    /// PF-PPO-style (our reading), after `sharpen`: multiplies the advantage by the probability of being
    /// drawn and the size of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filtration: Option<Filtration>,
    /// Weights of responses in the policy loss, with mean 1 over the batch; they multiply those of the
    /// rollout correction (ROLL).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<SampleWeights>,
    /// RAPO: whether a group whose rollouts all failed gets its last success back:
    /// [`Duty::ReplaySuccesses`](crate::recipe::Duty).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replay_successes: bool,
    /// Upper bound of RAPO's factor n_groups/n_good on all advantages; absent = no factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_factor_cap: Option<f64>,
    /// MSSR's entropy shaping: advantage per sequence → per token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entropy: Option<EntropyBonusChoice>,
}

impl Default for RewardChoice {
    fn default() -> Self {
        RewardChoice {
            components: None,
            clip: None,
            threshold: 0.5,
            shaping: None,
            overlong: None,
            filter: None,
            sharpen: None,
            filtration: None,
            weights: None,
            replay_successes: false,
            group_factor_cap: None,
            entropy: None,
        }
    }
}

impl RewardChoice {
    /// Whether all choices are the default.
    pub(crate) fn is_default(&self) -> bool {
        *self == RewardChoice::default()
    }
}
