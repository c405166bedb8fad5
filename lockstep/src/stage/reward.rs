//! From a recipe's reward stage to the ops.

use super::{
    EntropyBonusChoice, EntropyKind, Estimator, FilterChoice, FiltrationChoice, OverlongChoice, Recipe,
    RewardChoice, Rewards, ShapingChoice, SharpenChoice,
};
use crate::ops::advantage::Advantages;
use crate::ops::filter::filter_groups;
use crate::ops::filtration;
use crate::ops::reward::{
    Bands, ShapeParams, VarianceParams, novelty_bands, shape_rewards, variance_increase,
};
use crate::ops::sharpen::{EntropyOf, SharpenParams, entropy_bonus, sequence_logp, sharpen};
use crate::ops::{combine, gdpo, pass_at_k, role_baseline};
use crate::{Advantage, Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::Sharpening;
use lockstep_core::advantage::filtration::Filtration;
use lockstep_core::reward::{Criterion, Shaping, rapo};
use lockstep_core::schedule::rapo::replaces;
use std::borrow::Cow;

/// The error for an array that a choice needs and nobody gave.
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

impl FiltrationChoice {
    fn rule(self) -> Filtration {
        match self {
            FiltrationChoice::BestOfN {} => Filtration::BestOfN,
            FiltrationChoice::BestRandom {} => Filtration::BestRandom,
            FiltrationChoice::BestWorst {} => Filtration::BestWorst,
            FiltrationChoice::MaxMin {} => Filtration::MaxMin,
            FiltrationChoice::MaxRandom {} => Filtration::MaxRandom,
            FiltrationChoice::Power { power } => Filtration::Power(power),
        }
    }
}

impl FilterChoice {
    fn criterion(self) -> Criterion {
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
    /// Whether every number is in its domain.
    pub(super) fn check(&self) -> Result<(), Error> {
        if !self.threshold.is_finite() {
            return Err(Error::Recipe(format!(
                "reward.threshold is {}: expected a finite number",
                self.threshold
            )));
        }
        match self.shaping {
            Some(ShapingChoice::Signs { correct, wrong }) => Shaping::Signs { correct, wrong }.check()?,
            Some(ShapingChoice::Fapo { lambda }) => Shaping::Flawed { lambda }.check()?,
            Some(ShapingChoice::Conciser { limit }) => Shaping::Brevity { limit }.check()?,
            Some(ShapingChoice::Grpovi { low, high, margin, .. }) => {
                let bounds = low.unwrap_or(f64::NEG_INFINITY) < high.unwrap_or(f64::INFINITY);
                if !(bounds && margin >= 0.0 && margin.is_finite()) {
                    let message =
                        "reward.shaping grpovi: expected low < high and a finite margin of at least 0";
                    return Err(Error::Recipe(message.into()));
                }
            }
            Some(ShapingChoice::EvolRl { mean_weight }) if !(0.0..=1.0).contains(&mean_weight) => {
                return Err(Error::Recipe(format!(
                    "reward.shaping.mean_weight is {mean_weight}: expected 0 to 1"
                )));
            }
            Some(ShapingChoice::EvolRl { .. } | ShapingChoice::Brpo {}) | None => {}
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
        if let Some(EntropyBonusChoice { alpha, kappa, .. }) = self.entropy
            && !(alpha >= 0.0 && alpha.is_finite() && kappa > 0.0 && kappa.is_finite())
        {
            let message = "reward.entropy: expected a finite alpha of at least 0 and a positive finite kappa";
            return Err(Error::Recipe(message.into()));
        }
        match self.group_factor_cap {
            Some(cap) if cap.is_nan() || cap < 1.0 => Err(Error::Recipe(format!(
                "reward.group_factor_cap is {cap}: expected a number of at least 1"
            ))),
            _ => Ok(()),
        }
    }
}

impl Recipe {
    /// The rewards that the estimator sees: shaped, then less the penalty for overlong answers.
    ///
    /// Borrowed where nothing shapes them. Errors: those of [`shape_rewards`], [`novelty_bands`], [`variance_increase`]; an array that the shaping
    /// needs and nobody gave.
    pub fn shaped_rewards<'a>(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &Rewards<'a>,
    ) -> Result<Cow<'a, [f32]>, Error> {
        let choice = &self.reward;
        let shape = |rewards: &[f32], shaping| {
            let params = ShapeParams {
                threshold: choice.threshold,
                flags: input.flags,
                reference: input.reference,
                ..ShapeParams::new(shaping)
            };
            shape_rewards(device, batch, rewards, input.valid, &params).map(Cow::Owned)
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
                let logp = match input.logp_ref {
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
                let classes = needed(input.classes, "classes")?;
                let similarity = needed(input.similarity, "similarity")?;
                let bands = Bands { mean_weight, ..Bands::EVOL_RL };
                Cow::Owned(novelty_bands(device, batch, classes, similarity, input.valid, &bands)?.rewards)
            }
        };
        match choice.overlong {
            Some(overlong) => shape(&shaped, overlong.shaping()),
            None => Ok(shaped),
        }
    }

    /// The estimators that are not one call of the group op; `None` for the others.
    pub(super) fn other_estimator(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &Rewards<'_>,
    ) -> Result<Option<Advantages>, Error> {
        let choice = &self.advantage;
        let mut out = Advantages::default();
        match choice.estimator {
            Estimator::PassAtK => {
                let k = choice.k.unwrap_or(super::advantage::PASS_AT_K);
                let threshold = self.reward.threshold;
                let passed = pass_at_k(device, batch, input.rewards, input.valid, k, threshold)?;
                (out.advantage, out.mean) = (passed.advantage, passed.pass_at_k);
            }
            Estimator::Gdpo => {
                let components = needed(input.components, "components")?;
                let weights = needed(input.component_weights, "component weights")?;
                let params = choice.whitening().unwrap_or(crate::ops::whiten::WhitenParams::VERL);
                out.advantage = gdpo(device, batch, components, weights, &choice.group_params(), &params)?;
            }
            Estimator::RoleBaseline => {
                let roles = needed(input.roles, "roles")?;
                let state = needed(input.role_state, "role state")?;
                let (decay, order) = (choice.decay.unwrap_or(super::advantage::ROLE_DECAY), choice.order());
                (out.advantage, out.role_state) =
                    role_baseline(device, input.rewards, roles, state, decay, order)?;
            }
            _ => return Ok(None),
        }
        Ok(Some(out))
    }

    /// What follows the estimator: sharpening, RAPO's factor, the filter. `shaped` is what the estimator saw, `input` what came in.
    pub(super) fn after_estimator(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &Rewards<'_>,
        shaped: &[f32],
        mut out: Advantages,
    ) -> Result<Advantages, Error> {
        if let Some(choice) = self.reward.sharpen {
            let (sharpening, per_token) = choice.sharpening();
            let logp_ref = match choice {
                SharpenChoice::Xrpo { .. } => None,
                SharpenChoice::Ace { .. } => Some(needed(input.logp_ref, "logp_ref")?),
            };
            let logp = needed(input.logp, "logp")?;
            let threshold = self.reward.threshold;
            let params = SharpenParams { sharpening, threshold, logp, logp_ref, per_token };
            out.advantage = sharpen(device, batch, &out.advantage, input.rewards, input.valid, &params)?;
        }
        if let Some(choice) = self.reward.filtration {
            let counted = |i: usize| input.valid.is_none_or(|valid| valid[i] != 0);
            let value = |(i, r): (usize, &f32)| if counted(i) { *r } else { f32::NAN };
            let counted: Vec<f32> = shaped.iter().enumerate().map(value).collect();
            let weights = filtration(batch, &counted, choice.rule())?;
            for group in 0..batch.groups() {
                let span = batch.cu_groups().span(group);
                let n = (span.start..span.end).filter(|i| !counted[*i].is_nan()).count() as f64;
                for i in span.start..span.end {
                    out.advantage[i] = (f64::from(out.advantage[i]) * (n * weights[i])) as f32;
                }
            }
        }
        if let Some(cap) = self.reward.group_factor_cap {
            let good = out.std.iter().filter(|std| **std > 0.0).count();
            let factor = rapo::group_factor(batch.groups() as u32, good as u32, cap);
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
                _ => input.rewards,
            };
            let filtered = filter_groups(device, batch, metric, input.valid, filter.criterion())?;
            for (advantage, keep) in out.advantage.iter_mut().zip(&filtered.keep) {
                if *keep == 0 {
                    *advantage = 0.0;
                }
            }
            out.keep = filtered.keep;
        }
        Ok(out)
    }

    /// RAPO's replay: the sequence of each group that gives way to the group's stored success, `[G]`; none where one succeeded or `stored` `[G]`
    /// is 0. Before the advantages: put the stored tokens, reward and log-probabilities in its place, then take the advantages of the whole group.
    /// [`stores`](lockstep_core::schedule::rapo::stores) says what a group leaves behind.
    ///
    /// Errors: a recipe without `reward.replay_successes`; lengths that disagree.
    ///
    /// ```
    /// use lockstep::{Batch, Recipe};
    /// let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 2, 4], None)?;
    /// let recipe = Recipe::named("rapo_replay")?;
    /// // The first group has a success of its own; the second gets the stored one in place of sequence 2 or 3.
    /// let replaced = recipe.replays(&batch, &[0.0, 1.0, 0.0, 0.1], &[1, 1], 7, 0)?;
    /// assert!(replaced[0].is_none() && matches!(replaced[1], Some(2 | 3)));
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn replays(
        &self,
        batch: &Batch<'_>,
        rewards: &[f32],
        stored: &[u8],
        seed: u64,
        step: u32,
    ) -> Result<Vec<Option<u32>>, Error> {
        if !self.reward.replay_successes {
            let expected = "given, but the recipe has no reward.replay_successes";
            return Err(Argument::Combination { argument: "stored", expected }.into());
        }
        batch.check_sequences("rewards", rewards.len())?;
        crate::batch::check_length("stored", batch.groups(), "one per group", stored.len())?;
        let of_group = |group: usize| {
            let span = batch.cu_groups().span(group);
            let which =
                replaces(&rewards[span.start..span.end], stored[group] != 0, seed, step, group as u32);
            which.map(|i| span.start as u32 + i)
        };
        Ok((0..batch.groups()).map(of_group).collect())
    }

    /// The advantages `[S]` as advantages per token, `[N]`, raised by entropy as `reward.entropy` says.
    ///
    /// Errors: a recipe without `reward.entropy`, or with the other kind; those of [`entropy_bonus`].
    pub fn entropy_shaped(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        advantage: &[f32],
        entropy: EntropyOf<'_>,
    ) -> Result<Vec<f32>, Error> {
        let kind = match entropy {
            EntropyOf::Sampled(_) => EntropyKind::Sampled,
            EntropyOf::Distribution(_) => EntropyKind::Distribution,
        };
        match self.reward.entropy {
            Some(EntropyBonusChoice { alpha, kappa, of }) if of == kind => {
                entropy_bonus(device, batch, Advantage::PerSequence(advantage), entropy, alpha, kappa)
            }
            _ => {
                let expected = "the kind of entropy that reward.entropy.of names";
                Err(Argument::Combination { argument: "entropy", expected }.into())
            }
        }
    }
}
