//! Whole recipes in `f64`: the stages that a recipe chooses, composed as in docs/maths from the
//! [oracle](crate::oracle)'s formulas.
//!
//! It reads a recipe's choices and a batch's columns, and calls none of Lockstep's stages or ops.

mod advantage;
pub use lockstep_recipe_bits::batches;
mod correction;
mod loss;
mod reward;
mod time;

use crate::oracle::kl::{Kl, KlFormula as Formula};
use advantage::Estimate;
use lockstep::Rollouts;
use lockstep::recipe::{
    AdvantageEstimator, CountsOf, Denominator, EntropyTokens, GroupStatistics, KlChoice, KlEstimator,
    KlPlace, KlRatio, NanReward, QuantileRule, RatioLevel, Recipe, SampleWeights,
};
use std::ops::Range;

pub use loss::{Loss, gate, loss};

/// The expected result of [`Recipe::advantages`].
#[derive(Clone, Debug, Default)]
pub struct Credit {
    /// Advantages per sequence or per token.
    pub advantage: Vec<f64>,
    /// Whether they are per token.
    pub per_token: bool,
    /// The critic's targets; empty without a critic.
    pub returns: Vec<f64>,
    /// Tokens that the loss sees.
    pub live: Vec<bool>,
    /// Weights of the rollout correction times those of the responses.
    pub weights: Option<Vec<f64>>,
    /// SPIRAL's state.
    pub role_values: Vec<f64>,
}

/// The first choice that this composition does not know and would silently get wrong.
pub fn unread(recipe: &Recipe) -> Option<&'static str> {
    [
        (recipe.reward.components.is_some(), "reward.components"),
        (recipe.reward.clip.is_some(), "reward.clip"),
        (
            recipe.ratio.level == RatioLevel::Sequence
                && recipe.kl.is_some_and(|kl| kl.ratio != KlRatio::Token),
            "kl.ratio",
        ),
        (recipe.mask.top_entropy.is_some() && recipe.mask.quantile != QuantileRule::Count, "mask.quantile"),
        (
            recipe.entropy.is_some_and(|term| match term.of {
                EntropyTokens::Live => false,
                EntropyTokens::Positive => term.over == CountsOf::Call,
                EntropyTokens::Kept => true,
            }),
            "entropy.of",
        ),
    ]
    .into_iter()
    .find_map(|(unread, name)| unread.then_some(name))
}

/// Sequences, groups and live tokens.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    sequences: Vec<Range<usize>>,
    groups: Vec<Range<usize>>,
    live: Vec<bool>,
}

impl Batch {
    fn of(rollouts: &Rollouts<'_>) -> Batch {
        let sequences = spans(rollouts.cu_seqlens);
        let tokens = sequences.last().map_or(0, |last| last.end);
        let live = |i| rollouts.loss_mask.is_none_or(|mask: &[u8]| mask[i] != 0);
        Batch { sequences, groups: spans(rollouts.cu_groups), live: (0..tokens).map(live).collect() }
    }

    fn with(&self, live: Vec<bool>) -> Batch {
        Batch { live, ..self.clone() }
    }

    /// Live tokens of a sequence.
    fn of_sequence(&self, s: usize) -> Vec<usize> {
        self.sequences[s].clone().filter(|i| self.live[*i]).collect()
    }

    /// Live tokens of each sequence.
    fn rows(&self) -> Vec<Vec<usize>> {
        (0..self.sequences.len()).map(|s| self.of_sequence(s)).collect()
    }

    fn length(&self, s: usize) -> usize {
        self.of_sequence(s).len()
    }

    /// Sums over the live tokens of each sequence.
    fn sums(&self, value: impl Fn(usize) -> f64) -> Vec<f64> {
        let sum = |s| self.of_sequence(s).into_iter().map(&value).sum();
        (0..self.sequences.len()).map(sum).collect()
    }
}

/// Converts offsets to ranges.
fn spans(offsets: Option<&[u32]>) -> Vec<Range<usize>> {
    offsets.unwrap_or_default().windows(2).map(|pair| pair[0] as usize..pair[1] as usize).collect()
}

/// A column in binary64; empty if absent.
fn wide(column: Option<&[f32]>) -> Vec<f64> {
    column.unwrap_or_default().iter().map(|x| f64::from(*x)).collect()
}

/// The estimator of a KL choice; `low_var_kl` has verl's clamps of 20 and 10 (docs/maths/conventions.md,
/// docs/maths/kl.md).
fn kl(choice: &KlChoice) -> Kl {
    let (estimator, clamps) = match choice.estimator {
        KlEstimator::K1 => (Formula::K1, [f64::INFINITY; 2]),
        KlEstimator::Abs => (Formula::Abs, [f64::INFINITY; 2]),
        KlEstimator::K2 => (Formula::K2, [f64::INFINITY; 2]),
        KlEstimator::K3 => (Formula::K3, [f64::INFINITY; 2]),
        KlEstimator::LowVarKl => (Formula::K3, [20.0, 10.0]),
    };
    Kl {
        estimator,
        clamp_in: choice.clamp_in.map_or(clamps[0], f64::from),
        clamp_out: choice.clamp_out.map_or(clamps[1], f64::from),
        straight_through: choice.straight_through,
    }
}

/// β·k of each token, with k taken under `logp_old`, if the penalty is part of the reward; otherwise 0.
fn penalty(recipe: &Recipe, rollouts: &Rollouts<'_>) -> impl Fn(usize) -> f64 {
    let choice = recipe.kl.filter(|kl| kl.place == KlPlace::Reward);
    let (old, reference) = (wide(rollouts.logp_old), wide(rollouts.logp_ref));
    move |i| choice.map_or(0.0, |choice| f64::from(choice.coef) * kl(&choice).value(old[i] - reference[i]))
}

/// The weight of each response, from the first of two numbers for the shortest or easiest to the second, with
/// mean 1 (ROLL).
fn sample_weights(choice: SampleWeights, batch: &Batch, difficulty: &[f64]) -> Vec<f64> {
    let lengths: Vec<f64> = (0..batch.sequences.len()).map(|s| batch.length(s) as f64).collect();
    let least = lengths.iter().copied().fold(f64::INFINITY, f64::min);
    let most = lengths.iter().copied().fold(0.0, f64::max);
    let line = |ends: Option<[f64; 2]>, x: f64| ends.map_or(1.0, |[a, b]| (1.0 - x) * a + x * b);
    let one = |s: usize| {
        let hard = difficulty.get(s).map_or(0.0, |d| d.clamp(0.0, 1.0));
        line(choice.length, (lengths[s] - least) / (most - least + 1e-8)) * line(choice.difficulty, hard)
    };
    let weights: Vec<f64> = (0..lengths.len()).map(one).collect();
    let mean = (weights.iter().sum::<f64>() + 1e-8) / weights.len() as f64;
    weights.into_iter().map(|w| w / mean).collect()
}

/// The advantage stages: correction, KL in the reward, shaping, estimator, whitening, sharpening, filter,
/// entropy shaping.
pub fn credit(recipe: &Recipe, rollouts: &Rollouts<'_>) -> Credit {
    let batch = Batch::of(rollouts);
    let zero = recipe.advantage.nan_reward == NanReward::Zero;
    let [rewards, components] = [rollouts.rewards, rollouts.reward_components].map(|column| {
        let column = column.filter(|_| zero)?.iter();
        Some(column.map(|r| if r.is_nan() { 0.0 } else { *r }).collect::<Vec<f32>>())
    });
    let rollouts = &Rollouts {
        rewards: rewards.as_deref().or(rollouts.rewards),
        reward_components: components.as_deref().or(rollouts.reward_components),
        ..*rollouts
    };
    let correction = recipe.correction.as_ref().map(|choice| {
        correction::correct(choice, &batch, &wide(rollouts.logp_old), &wide(rollouts.logp_rollout))
    });
    let choice = recipe.correction.as_ref();
    let mut live = match (&correction, choice.map(|c| c.denominator)) {
        (Some(correction), Some(Denominator::After)) => correction.kept.clone(),
        _ => batch.live.clone(),
    };
    // AReaL makes M2PO's mask in the loss.
    let late = choice.is_some_and(|c| c.m2_threshold.is_some());
    let seen = batch.with(if late { batch.live.clone() } else { live.clone() });
    let penalty = penalty(recipe, rollouts);
    let mut token_rewards = wide(rollouts.token_rewards);
    (0..token_rewards.len()).filter(|i| seen.live[*i]).for_each(|i| token_rewards[i] -= penalty(i));
    let weights = correction.as_ref().map(|correction| &correction.weights[..]);
    let (estimate, keep) = match (recipe.advantage.over_time, recipe.advantage.estimator) {
        (Some(choice), _) => {
            let mut out = time::estimate(recipe, &seen, rollouts, (&token_rewards, weights), choice);
            let keep = recipe.reward.filter.map(|filter| {
                let rewards = wide(rollouts.rewards);
                let valid = vec![true; rewards.len()];
                reward::kept(filter, &batch, &reward::Seen { rewards, valid }.scores())
            });
            let dropped = keep.iter().flat_map(|keep| batch.sequences.iter().zip(keep));
            dropped.filter(|(_, keep)| !**keep).for_each(|(span, _)| out.advantage[span.clone()].fill(0.0));
            (out, keep)
        }
        (None, AdvantageEstimator::ReinforcePlusPlus) => (time::returns(recipe, &seen, &token_rewards), None),
        (None, AdvantageEstimator::ReMax) if rollouts.rewards.is_none() => {
            (time::remax(recipe, &seen, &token_rewards, &wide(rollouts.baseline)), None)
        }
        _ => {
            let sums = seen.sums(&penalty);
            let all = recipe.correction.as_ref().is_none_or(|c| c.group_statistics == GroupStatistics::All);
            let is_left = |s: usize| {
                correction.as_ref().is_none_or(|c| batch.of_sequence(s).iter().any(|i| c.kept[*i]))
            };
            let valid: Vec<bool> = (0..batch.sequences.len())
                .map(|s| rollouts.valid.is_none_or(|valid| valid[s] != 0) && (all || is_left(s)))
                .collect();
            let reward = |s: usize| rollouts.rewards.map_or(0.0, |rewards| f64::from(rewards[s]));
            let rewards: Vec<f64> = sums.iter().enumerate().map(|(s, k)| reward(s) - k).collect();
            reward::outcome(recipe, [&batch, &seen], rollouts, &reward::Seen { rewards, valid })
        }
    };
    let Estimate { advantage, per_token, returns, role_values } = estimate;
    let weights = correction.map(|c| c.weights);
    let weights = match recipe.reward.weights {
        None => weights,
        Some(choice) => {
            let of_sequences = sample_weights(choice, &batch, &wide(rollouts.difficulty));
            let mut out = vec![0.0; batch.live.len()];
            for (s, weight) in of_sequences.into_iter().enumerate() {
                let own = |i: usize| weights.as_ref().map_or(1.0, |weights| weights[i]);
                batch.of_sequence(s).into_iter().for_each(|i| out[i] = weight * own(i));
            }
            Some(out)
        }
    };
    if let Some(keep) = keep {
        let dropped = batch.sequences.iter().zip(&keep).filter(|(_, keep)| !**keep);
        dropped.for_each(|(span, _)| live[span.clone()].fill(false));
    }
    Credit { advantage, per_token, returns, live, weights, role_values }
}
