//! The stages of a recipe, in the order of the data flow, and the two calls that run them:
//! [`Recipe::advantages`] and [`Recipe::loss`].

mod advantage;
mod apply;
mod compose;
mod correction;
mod entropy;
mod kl;
mod naming;
mod over_time;
mod reward;
mod robust;
mod shared_ratio;
mod top_entropy;
mod value;

use crate::ops::correction::Denominator;
use crate::ops::{log_ratio_scan, mask_sequences};
use crate::plan::Calls;
use crate::recipe::{AdvantageEstimator, Call, RatioLevel, Recipe, Reduction};
use crate::{Batch, CorrectionReport, Credit, Device, Error, Loss, Outputs, PolicyInput, Rollouts};
pub(crate) use advantage::PASS_AT_K;
use advantage::Rewards;
pub(crate) use apply::with_gate;
use lockstep_core::ratio::ScanKind;
pub(crate) use over_time::ENDS;
use reward::needed;
use std::borrow::Cow;

impl Recipe {
    /// Computes the advantages and everything else that the loss needs from a batch of rollouts: rollout
    /// correction, KL in the reward, shaping, the estimator, sharpening, filter, entropy shaping. Call it
    /// once for each batch; [`Credit::select`] returns the part of a minibatch.
    ///
    /// Errors: all missing columns, each with the stage that reads it; a column whose length does not match
    /// its shape; values out of their domain (column, index); those of [`Recipe::check`].
    ///
    /// ```
    /// use lockstep::{Device, Recipe, Rollouts};
    /// let rollouts = Rollouts { rewards: Some(&[1.0, 0.0]), ..Rollouts::new(&[0, 2, 4], &[0, 2]) };
    /// let credit = Recipe::named("rloo")?.advantages(&Device::cpu(), &rollouts)?;
    /// assert_eq!(credit.advantage, [1.0, -1.0]);
    /// let error = Recipe::named("spiral")?.advantages(&Device::cpu(), &rollouts).unwrap_err();
    /// assert_eq!(error.to_string(), "recipe `spiral`: missing columns: roles (for advantage)");
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn advantages(&self, device: &Device, rollouts: &Rollouts<'_>) -> Result<Credit, Error> {
        let mut credit = Credit::default();
        self.advantages_into(device, rollouts, &mut credit)?;
        Ok(credit)
    }

    /// Like [`Recipe::advantages`], into `credit`, whose buffers the estimators of groups reuse. `credit` is
    /// unspecified after an error.
    pub fn advantages_into(
        &self,
        device: &Device,
        rollouts: &Rollouts<'_>,
        credit: &mut Credit,
    ) -> Result<(), Error> {
        self.check()?;
        let used = self.check_columns(Call::Advantages, |column| rollouts.length(column).is_some())?;
        let batch = rollouts.batch()?;
        rollouts.check_of(&batch, used)?;
        if let Some(staged) = self.staged(device, rollouts, None, Calls::Advantages, Outputs::COEF)? {
            *credit = staged.0;
            return Ok(());
        }
        let [rewards, components] = self.without_nan(rollouts);
        // The set of columns is copied only if one of them changes.
        let (without, summed);
        let rollouts = match (rewards.as_deref(), components.as_deref()) {
            (None, None) => rollouts,
            (rewards, reward_components) => {
                without = Rollouts { rewards, reward_components, ..*rollouts };
                &without
            }
        };
        let own = self.rewards_of(device, &batch, rollouts)?;
        let rollouts = match own.as_deref() {
            None => rollouts,
            rewards => {
                summed = Rollouts { rewards, ..*rollouts };
                &summed
            }
        };
        let correction = match &self.correction {
            None => None,
            Some(choice) => Some(self.correct(choice, device, &batch, rollouts)?),
        };
        // Token rewards, and whitening over tokens, see the tokens of the loss; but M2PO takes out its tokens
        // in the loss.
        let of_loss = self.correction.as_ref().is_some_and(|own| own.m2_threshold.is_some());
        let kept = correction.as_ref().filter(|c| c.denominator == Denominator::After && !of_loss);
        let of_tokens = match kept {
            Some(correction) => batch.with_mask(&correction.kept_mask)?,
            None => batch,
        };
        let penalised = self.penalised_tokens(device, &of_tokens, rollouts)?;
        let token_rewards = penalised.as_deref().or(rollouts.token_rewards);
        match (self.advantage.over_time, self.advantage.estimator) {
            (Some(choice), _) => {
                let ratio = correction.as_ref().map(|correction| &correction.weights[..]);
                *credit =
                    self.advantages_over_time(device, &of_tokens, rollouts, token_rewards, ratio, choice)?;
            }
            (None, AdvantageEstimator::ReinforcePlusPlus) => {
                *credit =
                    self.token_advantages(device, &of_tokens, needed(token_rewards, "token_rewards")?)?;
            }
            (None, AdvantageEstimator::ReMax) if rollouts.rewards.is_none() => {
                let rewards = needed(token_rewards, "token_rewards")?;
                *credit = self.remax_advantages(
                    device,
                    &of_tokens,
                    rewards,
                    needed(rollouts.baseline, "baseline")?,
                )?;
            }
            (None, estimator) => {
                let penalised = self.penalised_sequences(device, &of_tokens, rollouts)?;
                let none: Vec<f32>;
                let rewards = match penalised.as_deref().or(rollouts.rewards) {
                    Some(rewards) => rewards,
                    // Estimators with other rewards do not read these.
                    None => {
                        none = vec![0.0; batch.sequences()];
                        &none
                    }
                };
                let kept = correction.as_ref().filter(|_| self.counts_kept()).map(|c| &c.kept[..]);
                let valid = valid(rollouts.valid, kept);
                let input = Rewards { rewards, valid: valid.as_deref(), columns: rollouts };
                match estimator {
                    AdvantageEstimator::Tempo => *credit = self.tree_advantages(device, &batch, &input)?,
                    _ => self.outcome_advantages(device, (&batch, &of_tokens), &input, credit)?,
                }
            }
        }
        if let Some(correction) = correction {
            let after = correction.denominator == Denominator::After;
            credit.loss_mask = after.then_some(correction.kept_mask);
            credit.weights = Some(correction.weights);
            let (stats, counts_before, counts_after) =
                (correction.stats, correction.counts_before, correction.counts_after);
            credit.correction = Some(CorrectionReport { stats, counts_before, counts_after });
        }
        if let Some(weights) = self.sample_weights(device, &batch, rollouts)? {
            credit.weights = Some(match credit.weights.take() {
                Some(own) => own.iter().zip(weights).map(|(a, b)| a * b).collect(),
                None => weights,
            });
        }
        if !credit.keep.is_empty() {
            let left = match &credit.loss_mask {
                Some(mask) => batch.with_mask(mask)?,
                None => batch,
            };
            credit.loss_mask = Some(mask_sequences(device, &left, &credit.keep)?);
        }
        Ok(())
    }

    /// Computes the loss, dL/dlogp and metrics of a batch or minibatch with its [`Credit`]: ratio, gate, KL,
    /// entropy and value terms, aggregation. Call it for every update, with new `logp`. The denominators are
    /// those of this batch, or of the whole batch if column `counts` is present.
    ///
    /// Errors: those of [`Recipe::advantages`]; a credit whose lengths do not match the batch; a result that
    /// is not finite (index).
    ///
    /// ```
    /// use lockstep::{Device, Recipe, Rollouts};
    /// let (device, recipe) = (Device::cpu(), Recipe::named("dapo")?);
    /// let old = [-0.5, -1.0, -0.2, -2.0];
    /// let rollouts = Rollouts {
    ///     rewards: Some(&[1.0, 0.0]),
    ///     logp_old: Some(&old),
    ///     logp: Some(&old),
    ///     ..Rollouts::new(&[0, 2, 4], &[0, 2])
    /// };
    /// let credit = recipe.advantages(&device, &rollouts)?;
    /// let loss = recipe.loss(&device, &rollouts, &credit)?;
    /// assert!(loss.coef[0] < 0.0 && loss.metrics.unwrap().ratio_mean == 1.0);
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn loss(&self, device: &Device, rollouts: &Rollouts<'_>, credit: &Credit) -> Result<Loss, Error> {
        let mut out = Loss::default();
        self.loss_into(device, rollouts, credit, Outputs::ALL, &mut out)?;
        Ok(out)
    }

    /// Like [`Recipe::loss`], but with only the results that `outputs` requests, into `out`, whose buffers
    /// are reused. `out` is unspecified after an error.
    pub fn loss_into(
        &self,
        device: &Device,
        rollouts: &Rollouts<'_>,
        credit: &Credit,
        outputs: Outputs,
        out: &mut Loss,
    ) -> Result<(), Error> {
        self.check()?;
        let used = self.check_columns(Call::Loss, |column| rollouts.length(column).is_some())?;
        let batch = rollouts.batch()?;
        rollouts.check_of(&batch, used)?;
        credit.check(&batch)?;
        if let Some(staged) = self.staged(device, rollouts, Some(credit), Calls::Loss, outputs)? {
            *out = staged.1;
            return Ok(());
        }
        let batch = match &credit.loss_mask {
            Some(mask) => batch.with_mask(mask)?,
            None => batch,
        };
        let counts = match rollouts.whole_counts()? {
            Some(counts) => counts,
            None => batch.counts(device)?,
        };
        let logp = needed(rollouts.logp, "logp")?;
        let current;
        let rollouts = if self.ratio.on_policy {
            current = Rollouts { logp_old: rollouts.logp, ..*rollouts };
            &current
        } else {
            rollouts
        };
        let scan = |of: &Batch<'_>, kind: ScanKind, cap_at_one: bool| -> Result<Vec<f32>, Error> {
            let old = needed(rollouts.logp_old, "logp_old")?;
            log_ratio_scan(device, of, logp, old, kind, cap_at_one)
        };
        let log_ratio = match self.ratio.level {
            RatioLevel::Given => rollouts.log_ratio.map(Cow::Borrowed),
            RatioLevel::MinPrefix => Some(scan(&batch, ScanKind::MinBefore, true)?.into()),
            RatioLevel::Product => Some(scan(&batch, ScanKind::Sum, false)?.into()),
            RatioLevel::Segment => {
                Some(shared_ratio::by_segment(&batch, |of| scan(of, ScanKind::Mean, false))?.into())
            }
            RatioLevel::Token | RatioLevel::Sequence => None,
        };
        let kept = self.kept_tokens(device, &batch, rollouts)?;
        let input = PolicyInput {
            log_ratio: log_ratio.as_deref(),
            logp_ref: self.kl_term().and(rollouts.logp_ref),
            weights: credit.weights.as_deref(),
            outputs,
            // Given log-ratios replace `logp_old`.
            ..PolicyInput::new(logp, rollouts.logp_old.unwrap_or(logp), credit.advantages())
        };
        let of = (rollouts, &input, kept.as_deref());
        self.policy_term(device, &batch, of, counts, &mut out.policy)?;
        self.add_kl_convex(device, &batch, rollouts, counts, &mut out.policy)?;
        let of = (rollouts, kept.as_deref(), credit);
        out.entropy = self.add_entropy(device, &batch, of, counts, &mut out.policy)?;
        let value = out.value.take();
        out.value = self.value_loss(device, &batch, (rollouts, credit), counts, outputs.token_loss, value)?;
        if self.metrics.reduction == Reduction::Exact {
            out.policy.reduce_exactly();
        }
        Ok(())
    }

    /// Runs both calls, for trainers with one update per batch. On a GPU, this takes one upload of the
    /// columns and one download of the results.
    ///
    /// Errors: those of [`Recipe::advantages`] and [`Recipe::loss`].
    pub fn step(&self, device: &Device, rollouts: &Rollouts<'_>) -> Result<(Credit, Loss), Error> {
        if let Some(both) = self.staged(device, rollouts, None, Calls::Both, Outputs::ALL)? {
            return Ok(*both);
        }
        let credit = self.advantages(device, rollouts)?;
        let loss = self.loss(device, rollouts, &credit)?;
        Ok((credit, loss))
    }
}

/// The sequences that count in their group's statistics: those of column `valid` that are `kept`.
fn valid<'a>(column: Option<&'a [u8]>, kept: Option<&'a [u8]>) -> Option<Cow<'a, [u8]>> {
    match (column, kept) {
        (Some(valid), Some(kept)) => {
            let both = valid.iter().zip(kept).map(|(v, k)| u8::from(*v != 0 && *k != 0));
            Some(both.collect())
        }
        (one, other) => one.or(other).map(Cow::Borrowed),
    }
}
