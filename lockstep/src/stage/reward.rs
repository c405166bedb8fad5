//! Runs a recipe's reward stage with the ops.

use super::advantage::Rewards;
use super::naming::Naming;
use crate::ops::filter::filter_groups;
use crate::ops::reward::{
    Bands, ShapeParams, VarianceParams, novelty_bands, shape_rewards, variance_increase,
};
use crate::ops::roles::ROLES;
use crate::ops::sharpen::{EntropyOf, SharpenParams, entropy_bonus, sequence_logp, sharpen};
use crate::ops::turns::spread;
use crate::ops::{combine, filtration, gdpo, pass_at_k, role_baseline, sample_weights};
use crate::recipe::{
    AdvantageEstimator, ComponentsChoice, EntropyBonusChoice, EntropyKind, FilterChoice, NanReward,
    OverlongChoice, Recipe, RewardChoice, RoleOrder, ShapingChoice, SharpenChoice, ensure,
};
use crate::{Advantage, Batch, Credit, Device, Error, Rollouts};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::Sharpening;
use lockstep_core::reward::{Criterion, Shaping};
use lockstep_schedule::rapo_reward;
use std::borrow::Cow;

/// The array, or the error for a missing array that a choice needs.
pub(super) fn needed<'a, T: ?Sized>(array: Option<&'a T>, argument: &'static str) -> Result<&'a T, Error> {
    array.ok_or_else(|| Argument::Combination { argument, expected: "needed by this recipe" }.into())
}

impl OverlongChoice {
    fn shaping(self) -> Shaping {
        let OverlongChoice { max_length, buffer, factor, saturate } = self;
        Shaping::Overlong { max_length, buffer, factor, saturate }
    }
}

impl SharpenChoice {
    fn sharpening(self) -> (Sharpening, bool) {
        match self {
            SharpenChoice::Xrpo { lambda, kappa } => (Sharpening::Novelty { lambda, kappa }, true),
            SharpenChoice::Ace { alpha, cap, relu, per_token } => {
                (Sharpening::Overconfidence { alpha, cap, relu }, per_token)
            }
        }
    }
}

impl FilterChoice {
    /// Whether the filter reads the original rewards.
    pub(crate) fn of_rewards(&self) -> bool {
        use FilterChoice::{AtMostTokens, Balanced, NonzeroAdvantage};
        !matches!(self, Balanced { .. } | NonzeroAdvantage {} | AtMostTokens { .. })
    }

    pub(crate) fn criterion(self) -> Criterion {
        match self {
            FilterChoice::Varied {} => Criterion::Varied,
            FilterChoice::Spread { eta } => Criterion::Spread { eta },
            FilterChoice::SolveRate { threshold, limit } => Criterion::SolveRate { threshold, limit },
            FilterChoice::Balanced { tau } => Criterion::Balanced { tau },
            FilterChoice::Equal { value } => Criterion::Equal { value },
            FilterChoice::NonzeroAdvantage {} => Criterion::Nonzero,
            FilterChoice::AtMostTokens { limit } => Criterion::AtMost { limit: limit.into() },
        }
    }
}

impl RewardChoice {
    /// The shapings that are launches of one op, in order.
    pub(crate) fn shapings(&self) -> impl Iterator<Item = Shaping> {
        let own = match self.shaping {
            Some(ShapingChoice::Signs { correct, wrong }) => Some(Shaping::Signs { correct, wrong }),
            Some(ShapingChoice::Fapo { lambda }) => Some(Shaping::Flawed { lambda }),
            Some(ShapingChoice::Conciser { limit }) => Some(Shaping::Brevity { limit }),
            Some(ShapingChoice::Brpo {}) => Some(Shaping::Preferred),
            Some(ShapingChoice::Grpovi { .. } | ShapingChoice::EvolRl { .. }) | None => None,
        };
        own.into_iter().chain(self.overlong.map(OverlongChoice::shaping))
    }

    /// The first stage that reads rewards of responses, for an estimator that can do without them.
    pub(crate) fn of_sequences(&self) -> Option<&'static str> {
        let stages = [
            (self.components.is_some(), "reward.components"),
            (self.clip.is_some(), "reward.clip"),
            (self.shaping.is_some(), "reward.shaping"),
            (self.overlong.is_some(), "reward.overlong"),
            (self.sharpen.is_some(), "reward.sharpen"),
            (self.filtration.is_some(), "reward.filtration"),
            (self.group_factor_cap.is_some(), "reward.group_factor_cap"),
            (self.filter.is_some(), "reward.filter"),
            (self.entropy.is_some(), "reward.entropy"),
        ];
        stages.into_iter().find(|(holds, _)| *holds).map(|(_, key)| key)
    }

    /// Errors unless every number is in its domain.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let threshold = self.threshold;
        ensure!(threshold.is_finite(), "reward.threshold is {threshold}: expected a finite number");
        if let Some([low, high]) = self.clip {
            ensure!(low <= high, "reward.clip is [{low}, {high}]: expected low <= high");
        }
        match self.shaping {
            Some(ShapingChoice::Signs { correct, wrong }) => Shaping::Signs { correct, wrong }.check()?,
            Some(ShapingChoice::Fapo { lambda }) => Shaping::Flawed { lambda }.check()?,
            Some(ShapingChoice::Conciser { limit }) => Shaping::Brevity { limit }.check()?,
            Some(ShapingChoice::Grpovi { low, high, margin, .. }) => {
                let bounds = low.unwrap_or(f64::NEG_INFINITY) < high.unwrap_or(f64::INFINITY);
                ensure!(
                    bounds && margin >= 0.0 && margin.is_finite(),
                    "reward.shaping grpovi: expected low < high and a finite margin of at least 0"
                );
            }
            Some(ShapingChoice::EvolRl { mean_weight: weight }) => {
                let unit = (0.0..=1.0).contains(&weight);
                ensure!(unit, "reward.shaping.mean_weight is {weight}: expected 0 to 1");
            }
            Some(ShapingChoice::Brpo {}) | None => {}
        }
        if let Some(overlong) = self.overlong {
            overlong.shaping().check()?;
        }
        if let Some(filter) = self.filter {
            filter.criterion().check()?;
        }
        if let Some(sharpen) = self.sharpen {
            sharpen.sharpening().0.check()?;
        }
        if let Some(weights) = self.weights {
            weights.check()?;
        }
        if let Some(EntropyBonusChoice { alpha, kappa, .. }) = self.entropy {
            ensure!(
                alpha >= 0.0 && alpha.is_finite() && kappa > 0.0 && kappa.is_finite(),
                "reward.entropy: expected a finite alpha of at least 0 and a positive finite kappa"
            );
        }
        if let Some(cap) = self.group_factor_cap {
            ensure!(cap >= 1.0, "reward.group_factor_cap is {cap}: expected a number of at least 1");
        }
        Ok(())
    }
}

impl Recipe {
    /// The rewards that replace the column: the sum of the components, clipped to `reward.clip`. `None` if
    /// the recipe has neither.
    pub(super) fn rewards_of(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        rollouts: &Rollouts<'_>,
    ) -> Result<Option<Vec<f32>>, Error> {
        let mut rewards = match (self.reward.components, self.reward.clip) {
            (None, None) => return Ok(None),
            (None, Some(_)) => needed(rollouts.rewards, "rewards")?.to_vec(),
            (Some(ComponentsChoice::Sum), _) => {
                let components = needed(rollouts.reward_components, "reward_components")?;
                let weights = needed(rollouts.reward_weights, "reward_weights")?;
                combine(device, batch, components, weights)
                    .naming(&[("components", "reward_components"), ("weights", "reward_weights")])?
            }
        };
        if let Some([low, high]) = self.reward.clip {
            // A NaN is neither below nor above.
            rewards.iter_mut().for_each(|reward| *reward = reward.clamp(low, high));
        }
        Ok(Some(rewards))
    }

    /// Columns `rewards` and `reward_components` with NaN replaced by 0, if the recipe's `nan_reward` is
    /// `zero`.
    pub(super) fn without_nan(&self, rollouts: &Rollouts<'_>) -> [Option<Vec<f32>>; 2] {
        if self.advantage.nan_reward != NanReward::Zero {
            return [None, None];
        }
        let zero = |r: &f32| if r.is_nan() { 0.0 } else { *r };
        [rollouts.rewards, rollouts.reward_components].map(|column| Some(column?.iter().map(zero).collect()))
    }

    /// Weights of responses in the policy loss, at each of their tokens, if the recipe has them.
    pub(super) fn sample_weights(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        rollouts: &Rollouts<'_>,
    ) -> Result<Option<Vec<f32>>, Error> {
        let Some(choice) = self.reward.weights else { return Ok(None) };
        let weights = sample_weights(device, batch, rollouts.difficulty, &choice)?;
        let weights: Vec<f32> = weights.into_iter().map(|weight| weight as f32).collect();
        let offsets = needed(rollouts.cu_seqlens, "cu_seqlens")?;
        spread(batch, offsets, &weights).map(Some)
    }

    /// The rewards that the estimator sees: shaped, then minus the penalty for overlong answers. Borrowed if
    /// there is no shaping.
    pub(super) fn shaped_rewards<'a>(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &Rewards<'a>,
    ) -> Result<Cow<'a, [f32]>, Error> {
        let choice = &self.reward;
        let shape = |rewards: &[f32], shaping| {
            let params = ShapeParams {
                threshold: choice.threshold,
                flags: input.columns.flawed.filter(|_| matches!(shaping, Shaping::Flawed { .. })),
                reference: input.columns.reference.filter(|_| shaping == Shaping::Preferred),
                ..ShapeParams::new(shaping)
            };
            let shaped = shape_rewards(device, batch, rewards, input.valid, &params);
            shaped.naming(&[("flags", "flawed")]).map(Cow::Owned)
        };
        let shaped = match choice.shaping {
            None => Cow::Borrowed(input.rewards),
            Some(ShapingChoice::Signs { correct, wrong }) => {
                shape(input.rewards, Shaping::Signs { correct, wrong })?
            }
            Some(ShapingChoice::Fapo { lambda }) => shape(input.rewards, Shaping::Flawed { lambda })?,
            Some(ShapingChoice::Conciser { limit }) => shape(input.rewards, Shaping::Brevity { limit })?,
            Some(ShapingChoice::Brpo {}) => shape(input.rewards, Shaping::Preferred)?,
            Some(ShapingChoice::Grpovi { low, high, margin, merge_ties }) => {
                let logp = match input.columns.logp_ref {
                    Some(logp) => Some(sequence_logp(device, batch, "logp_ref", logp)?),
                    None => None,
                };
                let params = VarianceParams {
                    logp: logp.as_deref(),
                    low: low.unwrap_or(f64::NEG_INFINITY),
                    high: high.unwrap_or(f64::INFINITY),
                    margin,
                    merge_ties,
                };
                Cow::Owned(variance_increase(device, batch, input.rewards, input.valid, &params)?)
            }
            Some(ShapingChoice::EvolRl { mean_weight }) => {
                let classes = needed(input.columns.answer_class, "answer_class")?;
                let similarity = needed(input.columns.similarity, "similarity")?;
                let bands = Bands { mean_weight, ..Bands::EVOL_RL };
                Cow::Owned(novelty_bands(device, batch, classes, similarity, input.valid, &bands)?.rewards)
            }
        };
        match choice.overlong {
            Some(overlong) => shape(&shaped, overlong.shaping()),
            None => Ok(shaped),
        }
    }

    /// Runs an estimator that is not one call of the group op, into an empty credit. Returns whether the
    /// recipe's is one.
    pub(super) fn other_estimator(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &Rewards<'_>,
        out: &mut Credit,
    ) -> Result<bool, Error> {
        let (choice, columns) = (&self.advantage, input.columns);
        match choice.estimator {
            AdvantageEstimator::PassAtK => {
                let k = choice.k.unwrap_or(super::advantage::PASS_AT_K);
                let threshold = self.reward.threshold;
                let passed = pass_at_k(device, batch, input.rewards, input.valid, k, threshold, choice.eps)?;
                (out.advantage, out.groups.mean) = (passed.advantage, passed.pass_at_k);
                out.groups.counted = passed.counted;
            }
            AdvantageEstimator::Gdpo => {
                let components = needed(columns.reward_components, "reward_components")?;
                let weights = needed(columns.reward_weights, "reward_weights")?;
                let whitening = choice.whitening();
                let params = needed(whitening.as_ref(), "advantage.whiten")?;
                let counted = without_invalid(components, input.valid);
                out.advantage = gdpo(device, batch, &counted, weights, &choice.group_params(), params)
                    .naming(&[("rewards", "reward_components"), ("weights", "reward_weights")])?;
            }
            AdvantageEstimator::RoleBaseline => {
                let roles = needed(columns.roles, "roles")?;
                let start: Vec<f64>;
                let state = match columns.role_values {
                    Some(state) => state,
                    None => {
                        // The op refuses larger roles.
                        let last = roles.iter().filter(|role| **role < ROLES).max();
                        start = vec![0.0; last.map_or(0, |last| *last as usize + 1)];
                        &start
                    }
                };
                let (decay, order) = (
                    choice.decay.unwrap_or(super::advantage::ROLE_DECAY),
                    choice.role_order.unwrap_or(RoleOrder::SubtractThenUpdate),
                );
                let counted = without_invalid(input.rewards, input.valid);
                (out.advantage, out.state.role_values) =
                    role_baseline(device, &counted, roles, state, decay, order)
                        .naming(&[("state", "role_values")])?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The steps after the estimator: sharpening, filtration, RAPO's factor, the filter, entropy shaping.
    /// `shaped` are the rewards that the estimator saw; sharpening and most filters read those before shaping
    /// and a KL penalty.
    pub(super) fn after_estimator(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &Rewards<'_>,
        shaped: &[f32],
        out: &mut Credit,
    ) -> Result<(), Error> {
        let columns = input.columns;
        let original = columns.rewards.unwrap_or(input.rewards);
        if let Some(choice) = self.reward.sharpen {
            let (sharpening, per_token) = choice.sharpening();
            let logp_ref = match choice {
                SharpenChoice::Xrpo { .. } => None,
                SharpenChoice::Ace { .. } => Some(needed(columns.logp_ref, "logp_ref")?),
            };
            let logp = needed(columns.logp_old, "logp_old")?;
            let threshold = self.reward.threshold;
            let params = SharpenParams { sharpening, threshold, logp, logp_ref, per_token };
            out.advantage = sharpen(device, batch, &out.advantage, original, input.valid, &params)
                .naming(&[("logp", "logp_old")])?;
        }
        if let Some(choice) = self.reward.filtration {
            let counted = without_invalid(shaped, input.valid);
            let weights = filtration(batch, &counted, choice)?;
            for group in 0..batch.groups() {
                let span = batch.cu_groups().span(group);
                let n = (span.start..span.end).filter(|i| !counted[*i].is_nan()).count() as f64;
                for i in span.start..span.end {
                    out.advantage[i] = (f64::from(out.advantage[i]) * (n * weights[i])) as f32;
                }
            }
        }
        if let Some(cap) = self.reward.group_factor_cap {
            let counted = without_invalid(shaped, input.valid);
            let varied = |group: &usize| {
                let span = batch.cu_groups().span(*group);
                let mut rewards = counted[span.start..span.end].iter().filter(|reward| !reward.is_nan());
                rewards.next().is_some_and(|first| rewards.any(|reward| reward != first))
            };
            let good = (0..batch.groups()).filter(varied).count();
            let factor = rapo_reward::group_factor(batch.groups() as u32, good as u32, cap);
            out.advantage = combine(device, batch, &out.advantage, &[factor as f32])?;
        }
        if let Some(filter) = self.reward.filter {
            let lengths: Vec<f32>;
            let metric = match filter {
                FilterChoice::Balanced { .. } => shaped,
                FilterChoice::NonzeroAdvantage {} => &out.advantage[..],
                FilterChoice::AtMostTokens { .. } => {
                    lengths = batch.lengths(device)?.into_iter().map(|n| n as f32).collect();
                    &lengths
                }
                _ => original,
            };
            let filtered = filter_groups(device, batch, metric, input.valid, filter.criterion())?;
            for (advantage, keep) in out.advantage.iter_mut().zip(&filtered.keep) {
                if *keep == 0 {
                    *advantage = 0.0;
                }
            }
            out.keep = filtered.keep;
        }
        if let Some(EntropyBonusChoice { alpha, kappa, of }) = self.reward.entropy {
            let entropy = match of {
                EntropyKind::Sampled => EntropyOf::Sampled(needed(columns.logp_old, "logp_old")?),
                EntropyKind::Distribution => EntropyOf::Distribution(needed(columns.entropy, "entropy")?),
            };
            let advantage = Advantage::PerSequence(&out.advantage);
            out.advantage = entropy_bonus(device, batch, advantage, entropy, alpha, kappa)
                .naming(&[("logp", "logp_old")])?;
            out.per_token = true;
        }
        Ok(())
    }
}

/// `values` `[K·S]`, with NaN (no score) for the sequences whose entry in `valid` is 0.
fn without_invalid<'a>(values: &'a [f32], valid: Option<&[u8]>) -> Cow<'a, [f32]> {
    match valid {
        None => Cow::Borrowed(values),
        Some(valid) => {
            let counted = values.iter().zip(valid.iter().cycle());
            counted.map(|(x, v)| if *v == 0 { f32::NAN } else { *x }).collect()
        }
    }
}
