//! The result of [`Recipe::advantages`](crate::Recipe::advantages), which the loss reads.

use crate::ops::correction::WeightStats;
use crate::rollouts::members;
use crate::{Advantage, Advantages, Batch, Counts, Error, Rollouts};
use lockstep_core::Error as Argument;
use lockstep_core::require;
use serde::{Deserialize, Serialize};

/// Advantages and everything else that the loss needs from the rollouts. [`Credit::select`] returns the part
/// of a minibatch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Credit {
    /// Advantages, `[S]`, or `[N]` if `per_token`.
    pub advantage: Vec<f32>,
    /// Whether there is one advantage per token.
    pub per_token: bool,
    /// The critic's regression targets, `[N]`; empty for estimators without returns.
    pub returns: Vec<f32>,
    /// The loss mask after filter and rejection, `[N]`; `None` = the batch's own mask.
    pub loss_mask: Option<Vec<u8>>,
    /// 1 = the sequence is kept, `[S]`; empty = all are.
    pub keep: Vec<u8>,
    /// Weights of tokens: those of the rollout correction times those of
    /// [`reward.weights`](crate::recipe::SampleWeights), `[N]`.
    pub weights: Option<Vec<f32>>,
    /// Statistics of the groups, if the estimator has them. Its `advantage` is moved to
    /// [`Credit::advantage`].
    pub groups: Advantages,
    /// The report of the rollout correction, if the recipe has one.
    pub correction: Option<CorrectionReport>,
    /// State for the next batch.
    pub state: State,
}

/// The report of a rollout correction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CorrectionReport {
    /// Statistics of the weights.
    pub stats: WeightStats,
    /// Counts of the original mask.
    pub counts_before: Counts,
    /// Counts of the mask after rejection.
    pub counts_after: Counts,
}

/// State that some estimators carry from one batch to the next; save it in checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct State {
    /// Moving average of each role's reward, `[P]`: the column `role_values` of the next batch (SPIRAL).
    pub role_values: Vec<f64>,
}

impl Credit {
    /// A credit with your own advantages, one per sequence, `[S]`.
    pub fn per_sequence(advantage: Vec<f32>) -> Credit {
        Credit { advantage, ..Credit::default() }
    }

    /// A credit with your own advantages, one per token, `[N]`.
    pub fn per_token(advantage: Vec<f32>) -> Credit {
        Credit { advantage, per_token: true, ..Credit::default() }
    }

    /// Empties the credit, and keeps the buffers of what an estimator of groups fills.
    pub(crate) fn clear(&mut self) {
        let Advantages { advantage, mean, std, counted, status, pivot, keep, role_state } = &mut self.groups;
        [&mut self.advantage, &mut self.returns, advantage, mean, std].into_iter().for_each(Vec::clear);
        [counted, status, pivot].into_iter().for_each(Vec::clear);
        [&mut self.keep, keep].into_iter().for_each(Vec::clear);
        [&mut self.state.role_values, role_state].into_iter().for_each(Vec::clear);
        (self.per_token, self.loss_mask, self.weights, self.correction) = (false, None, None, None);
    }

    /// The advantages, in the form that the ops take.
    pub fn advantages(&self) -> Advantage<'_> {
        match self.per_token {
            true => Advantage::PerToken(&self.advantage),
            false => Advantage::PerSequence(&self.advantage),
        }
    }

    /// Checks that every array has the length that this batch requires.
    ///
    /// Errors: the first array with a wrong length.
    pub fn check(&self, batch: &Batch<'_>) -> Result<(), Error> {
        self.advantages().check(batch, "credit.advantage")?;
        if let Some(mask) = &self.loss_mask {
            batch.check_tokens("credit.loss_mask", mask.len())?;
        }
        if let Some(weights) = &self.weights {
            batch.check_tokens("credit.weights", weights.len())?;
        }
        if !self.returns.is_empty() {
            batch.check_tokens("credit.returns", self.returns.len())?;
        }
        let groups = &self.groups;
        let of_groups = [groups.mean.len(), groups.std.len(), groups.counted.len(), groups.status.len()];
        for len in of_groups.into_iter().filter(|len| *len != 0) {
            require::length("credit.groups", batch.groups(), "one per group of `cu_groups`", len)?;
        }
        Ok(())
    }

    /// Selects the credit of the minibatch [`rollouts.select(groups)`](Rollouts::select). Group statistics
    /// are selected too; the report of the correction and the state stay those of the whole batch.
    ///
    /// Errors: lengths that disagree with the rollouts; a group that does not exist (index).
    pub fn select(&self, rollouts: &Rollouts<'_>, groups: &[usize]) -> Result<Credit, Error> {
        let batch = rollouts.batch()?;
        self.check(&batch)?;
        let sequences = members(&batch, groups)?;
        let tokens: Vec<usize> = sequences
            .iter()
            .flat_map(|s| {
                let span = batch.cu_seqlens().span(*s);
                span.start..span.end
            })
            .collect();
        fn take<T: Copy>(values: &[T], places: &[usize]) -> Vec<T> {
            // An empty array means an absent one.
            if values.is_empty() { Vec::new() } else { places.iter().map(|i| values[*i]).collect() }
        }
        let own = if self.per_token { &tokens } else { &sequences };
        Ok(Credit {
            advantage: take(&self.advantage, own),
            per_token: self.per_token,
            returns: take(&self.returns, &tokens),
            loss_mask: self.loss_mask.as_deref().map(|mask| take(mask, &tokens)),
            keep: take(&self.keep, &sequences),
            weights: self.weights.as_deref().map(|weights| take(weights, &tokens)),
            groups: Advantages {
                mean: take(&self.groups.mean, groups),
                std: take(&self.groups.std, groups),
                counted: take(&self.groups.counted, groups),
                status: take(&self.groups.status, groups),
                pivot: take(&self.groups.pivot, groups),
                ..Advantages::default()
            },
            correction: self.correction,
            state: self.state.clone(),
        })
    }

    /// The returns for the value loss. Errors if the estimator made none.
    pub(crate) fn needed_returns(&self) -> Result<&[f32], Error> {
        let expected = "needed by [value]: this estimator computes none, so set your own in the credit";
        match self.returns.is_empty() {
            true => Err(Argument::Combination { argument: "credit.returns", expected }.into()),
            false => Ok(&self.returns),
        }
    }
}
