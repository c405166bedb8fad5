//! What happens to rewards before the estimator and to advantages after it, as TOML spells it.

use super::{Filtration, SampleWeights};
use serde::{Deserialize, Serialize};

/// Reward → shaped reward; formulas: [`lockstep_core::reward`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ShapingChoice {
    /// Other values for the rewards 1 and 0: PSR, NSR, W-REINFORCE.
    Signs {
        /// In place of 1.
        correct: f64,
        /// In place of 0.
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
    /// BRPO: 1 for who won every vote against the response of column `reference`, else −1; the reference 0.
    Brpo {},
    /// GRPOVI: the largest variance with the same mean and order, under column `logp_ref`.
    Grpovi {
        /// m; absent = the group's least reward less `margin`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        low: Option<f64>,
        /// M; absent = the group's greatest reward plus `margin`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        high: Option<f64>,
        /// See `low` and `high`.
        #[serde(default)]
        margin: f64,
        /// Equal rewards stay equal (ours).
        #[serde(default)]
        merge_ties: bool,
    },
    /// EVOL-RL: bands by column `answer_class`, ranked inside by novelty (`similarity`).
    EvolRl {
        /// Weight of the mean similarity against the greatest.
        #[serde(default = "half")]
        mean_weight: f64,
    },
}

/// DAPO's penalty for overlong answers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverlongChoice {
    /// L_max in tokens.
    pub max_length: u32,
    /// B in tokens.
    pub buffer: u32,
    /// The penalty at L_max.
    #[serde(default = "one")]
    pub factor: f64,
    /// Never more than `factor` (the paper).
    #[serde(default)]
    pub saturate: bool,
}

/// Which groups and sequences remain; formulas: [`lockstep_core::reward::filter`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum FilterChoice {
    /// DAPO dynamic sampling: groups whose rewards differ.
    Varied {},
    /// UI-S1: groups whose deviation is above it.
    Spread {
        /// The least deviation.
        eta: f64,
    },
    /// RAPO: groups that are not solved.
    SolveRate {
        /// A reward above it is solved.
        threshold: f64,
        /// From this rate on a group is dropped.
        limit: f64,
    },
    /// BRPO: groups whose shaped rewards are balanced.
    Balanced {
        /// The largest mean.
        tau: f64,
    },
    /// PSR, NSR: sequences with this reward.
    Equal {
        /// The reward.
        value: f64,
    },
    /// SPIRAL: sequences whose advantage is not 0.
    NonzeroAdvantage {},
    /// DAPO overlong filtering: sequences of at most so many tokens.
    AtMostTokens {
        /// The limit.
        limit: u32,
    },
}

/// What sharpens advantages; formulas: [`lockstep_core::advantage::sharpen`].
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
        /// Greatest factor (ours).
        #[serde(default = "ace_cap")]
        cap: f64,
        /// max(c, 0) in place of the softplus.
        #[serde(default)]
        relu: bool,
        /// c by the sequence's tokens (ours).
        #[serde(default)]
        per_token: bool,
    },
}

/// Whose entropy raises advantages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntropyKind {
    /// −p log p of the sampled token: the released code.
    #[default]
    Sampled,
    /// The whole distribution's.
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
    /// Whose entropy.
    #[serde(default)]
    pub of: EntropyKind,
}

fn one() -> f64 {
    1.0
}
fn half() -> f64 {
    0.5
}
fn xrpo_lambda() -> f64 {
    2.5
}
fn ace_cap() -> f64 {
    5.0
}
fn mssr_alpha() -> f32 {
    0.4
}
fn mssr_kappa() -> f32 {
    2.0
}

/// Several rewards of one sequence, as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComponentsChoice {
    /// Σ w·r of columns `reward_components` and `reward_weights`; a NaN adds nothing, all NaN is no score
    /// (TRL).
    Sum,
}

/// Everything around the estimator; nothing by default.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RewardChoice {
    /// In place of column `rewards`; absent = that column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<ComponentsChoice>,
    /// Least and greatest reward of a sequence, before everything else; absent = none. NaN stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<[f32; 2]>,
    /// A reward above it is correct.
    pub threshold: f32,
    /// Reward → shaped reward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shaping: Option<ShapingChoice>,
    /// A penalty for overlong answers, after `shaping`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<OverlongChoice>,
    /// What remains: `keep` of the advantages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterChoice>,
    /// Advantage → advantage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharpen: Option<SharpenChoice>,
    /// PF-PPO-style (our reading), after `sharpen`: the advantage times the probability of being drawn and
    /// the size of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filtration: Option<Filtration>,
    /// Weights of responses in the policy loss, with mean 1 over the batch; they multiply those of the
    /// rollout correction (ROLL).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<SampleWeights>,
    /// RAPO: groups that failed altogether get their last success back:
    /// [`Duty::ReplaySuccesses`](crate::recipe::Duty).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replay_successes: bool,
    /// RAPO's factor n_groups/n_good on all advantages, at most this; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_factor_cap: Option<f64>,
    /// Advantage per sequence → per token.
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
    /// Whether nothing is chosen.
    pub(crate) fn is_default(&self) -> bool {
        *self == RewardChoice::default()
    }
}
