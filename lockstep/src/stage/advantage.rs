//! Runs a recipe's advantage estimator with the ops.

use super::naming::{Naming, TOKEN_REWARDS};
use super::reward::needed;
use super::robust::by_wide_baselines;
use crate::ops::advantage::{Advantages, GroupParams, group_advantage_into};
use crate::ops::tree::{Outcomes, TempoParams, tempo};
use crate::ops::whiten::{WhitenParams, whiten, whiten_into};
use crate::ops::{self, locate};
use crate::recipe::{AdvantageChoice, AdvantageEstimator, NanReward, Recipe, SingletonChoice, WhitenChoice};
use crate::{Advantage, Batch, Credit, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::{Baseline, Divisor, Scale, Singleton};
use lockstep_schedule::robust_baseline::VCPO_EPS;
use std::borrow::Cow;

/// MAD floor of MC-GRPO's released code.
const MAD_FLOOR: f64 = 1e-3;
/// Default number of attempts of `pass_at_k`.
pub(crate) const PASS_AT_K: u32 = 4;
/// Decay of SPIRAL's moving average.
pub(super) const ROLE_DECAY: f64 = 0.95;

/// Outcome rewards, and the other inputs of some estimators: the columns, after the correction and the KL
/// penalty.
#[derive(Clone, Copy)]
pub(super) struct Rewards<'a> {
    /// Reward per sequence, `[S]`; NaN = no score.
    pub(super) rewards: &'a [f32],
    /// Sequences whose entry is 0 are excluded from their group's statistics, `[S]`.
    pub(super) valid: Option<&'a [u8]>,
    pub(super) columns: &'a crate::Rollouts<'a>,
}

impl Recipe {
    /// Advantages per sequence, for estimators of outcome rewards. `of_tokens` has the tokens that the loss
    /// will see: baselines and whitening use its lengths, shaping and filter those of the whole batch.
    pub(super) fn outcome_advantages(
        &self,
        device: &Device,
        (batch, of_tokens): (&Batch<'_>, &Batch<'_>),
        input: &Rewards<'_>,
        credit: &mut Credit,
    ) -> Result<(), Error> {
        self.check_nan(input.rewards)?;
        let shaped = self.shaped_rewards(device, batch, input)?;
        let seen = Rewards { rewards: &shaped, ..*input };
        credit.clear();
        if self.other_estimator(device, of_tokens, &seen, credit)? {
            return self.after_estimator(device, batch, input, &shaped, credit);
        }
        let robust = self.robust_baselines(batch, &seen)?;
        let own: Vec<f32> = match self.advantage.estimator {
            AdvantageEstimator::Reward => vec![0.0; batch.groups()],
            _ => robust.iter().map(|baseline| *baseline as f32).collect(),
        };
        let params = self.advantage.group_params();
        // A column that the baseline does not read is not checked either.
        let reads_given = matches!(params.baseline, Baseline::Given | Baseline::Shrunk { .. });
        let given = if own.is_empty() { input.columns.baseline } else { Some(&own[..]) };
        let given = given.filter(|_| reads_given);
        let reads_weights = matches!(params.baseline, Baseline::Weighted { .. });
        let weights = input.columns.baseline_weights.filter(|_| reads_weights);
        let params = GroupParams { given, weights, ..params };
        credit.groups.advantage = std::mem::take(&mut credit.advantage);
        group_advantage_into(device, of_tokens, &shaped, input.valid, &params, &mut credit.groups)
            .naming(&[("given", "baseline"), ("weights", "baseline_weights")])?;
        let mut advantage = std::mem::take(&mut credit.groups.advantage);
        by_wide_baselines(batch, (&shaped, &robust), params.limit, &mut advantage);
        if self.advantage.over_nonzero == Some(true) {
            for group in 0..batch.groups() {
                let span = batch.cu_groups().span(group);
                let members = &mut advantage[span.start..span.end];
                let nonzero = members.iter().filter(|a| **a != 0.0).count().max(1);
                let factor = members.len() as f64 / nonzero as f64;
                members.iter_mut().for_each(|a| *a = (f64::from(*a) * factor) as f32);
            }
        }
        if let Some(params) = self.advantage.whitening() {
            let alone = self.alone(batch, &credit.groups.counted);
            let left_out = |i: usize| alone.get(i).is_some_and(|alone| *alone);
            let valid = |i: usize| input.valid.is_none_or(|v| v[i] != 0);
            let counted = |i: usize| !shaped[i].is_nan() && valid(i) && !left_out(i);
            let value = |(i, a): (usize, &f32)| if counted(i) { *a } else { f32::NAN };
            let values: Vec<f32> = advantage.iter().enumerate().map(value).collect();
            let alone = values.iter().filter(|value| !value.is_nan()).count() == 1;
            // MSSR's code only centres and divides if there are at least two responses.
            if !(alone && self.advantage.whiten == Some(WhitenChoice::Mssr)) {
                whiten_into(device, of_tokens, Advantage::PerSequence(&values), &params, &mut advantage)?;
            }
        }
        credit.advantage = advantage;
        self.after_estimator(device, batch, input, &shaped, credit)
    }

    /// Marks sequences of groups with fewer than two counted members, `[S]`, if `advantage.singleton` is
    /// `leave_out`; empty otherwise.
    fn alone(&self, batch: &Batch<'_>, counted: &[u32]) -> Vec<bool> {
        if self.advantage.singleton != SingletonChoice::LeaveOut {
            return Vec::new();
        }
        let mut alone = vec![false; batch.sequences()];
        for (group, _) in counted.iter().enumerate().filter(|(_, counted)| **counted < 2) {
            let span = batch.cu_groups().span(group);
            alone[span.start..span.end].fill(true);
        }
        alone
    }

    /// Errors on a NaN reward if the recipe's `nan_reward` is `error`.
    pub(super) fn check_nan(&self, rewards: &[f32]) -> Result<(), Error> {
        let (NanReward::Error, Some(index)) =
            (self.advantage.nan_reward, rewards.iter().position(|r| r.is_nan()))
        else {
            return Ok(());
        };
        let expected = "a number, because the recipe's nan_reward is error";
        Err(Argument::Value { argument: "rewards", index: Some(index), expected, got: f64::NAN }.into())
    }

    /// Advantages of tokens from the prefix trees of token ids: the estimator `tempo`.
    pub(super) fn tree_advantages(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &Rewards<'_>,
    ) -> Result<Credit, Error> {
        let AdvantageChoice { norm_by_std, ddof, eps, pad_id, stop_at_mask, .. } = self.advantage;
        self.check_nan(input.rewards)?;
        let shaped = self.shaped_rewards(device, batch, input)?;
        let outcomes =
            Outcomes { rewards: &shaped, valid: input.valid, weights: input.columns.outcome_weights };
        let singleton = self.advantage.group_params().singleton;
        let stop_at_mask = stop_at_mask.unwrap_or(false);
        let params = TempoParams { norm_by_std, ddof, eps, singleton, pad: pad_id, stop_at_mask };
        let tokens = needed(input.columns.tokens, "tokens")?;
        let out = tempo(device, batch, tokens.into(), &outcomes, &params)
            .naming(&[("weights", "outcome_weights")])?;
        let groups = Advantages { advantage: Vec::new(), ..out.group };
        Ok(Credit { groups, ..Credit::per_token(out.advantage) })
    }

    /// Whitened discounted returns of token rewards: the estimator `reinforce_plus_plus`.
    pub(super) fn token_advantages(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        token_rewards: &[f32],
    ) -> Result<Credit, Error> {
        let gamma = self.advantage.gamma.unwrap_or(1.0);
        let returns = ops::discounted_return(device, batch, token_rewards, gamma).naming(&[TOKEN_REWARDS])?;
        let mut advantage = self.whitened(device, batch, (&returns).into())?;
        let masked = |i: &usize| !batch.loss_mask().at(*i);
        (0..advantage.len()).filter(masked).for_each(|i| advantage[i] = 0.0);
        Ok(Credit { returns, ..Credit::per_token(advantage) })
    }

    /// ReMax for token rewards: the undiscounted return minus the greedy response's reward, within
    /// ±`advantage.limit`, whitened.
    pub(super) fn remax_advantages(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        token_rewards: &[f32],
        greedy: &[f32],
    ) -> Result<Credit, Error> {
        locate::each_finite("baseline", greedy)?;
        let returns = ops::discounted_return(device, batch, token_rewards, 1.0).naming(&[TOKEN_REWARDS])?;
        let limit = self.advantage.limit.map_or(f32::INFINITY, |limit| limit as f32);
        let mut advantage = vec![0.0; returns.len()];
        for (group, greedy) in greedy.iter().enumerate() {
            let sequences = batch.cu_groups().span(group);
            for sequence in sequences.start..sequences.end {
                let tokens = batch.cu_seqlens().span(sequence);
                let live = (tokens.start..tokens.end).filter(|i| batch.loss_mask().at(*i));
                live.for_each(|i| advantage[i] = (returns[i] - greedy).clamp(-limit, limit));
            }
        }
        let advantage = self.whitened(device, batch, advantage.into())?;
        Ok(Credit { returns, ..Credit::per_token(advantage) })
    }

    /// Whitens advantages of tokens if the recipe or its estimator does so, and checks that they are finite.
    pub(super) fn whitened(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        advantage: Cow<'_, [f32]>,
    ) -> Result<Vec<f32>, Error> {
        let advantage = match self.advantage.whitening() {
            Some(params) => whiten(device, batch, Advantage::PerToken(&advantage), &params)?,
            None => advantage.into_owned(),
        };
        locate::finite("advantage", &advantage, "the rewards are too large for f32")?;
        Ok(advantage)
    }
}

impl WhitenChoice {
    /// The parameters of this whitening, for [`whiten_by`](crate::ops::whiten::whiten_by) over ranks.
    pub fn params(self) -> Option<WhitenParams> {
        let (verl, trl) = (WhitenParams::VERL, WhitenParams::TRL);
        Some(match self {
            WhitenChoice::None => return None,
            WhitenChoice::Verl => verl,
            WhitenChoice::Nemo => WhitenParams::NEMO,
            WhitenChoice::Trl => trl,
            WhitenChoice::Mssr => WhitenParams { divisor: Divisor::Floor, ddof: 0, eps: 1e-6, ..trl },
            WhitenChoice::Areal => WhitenParams { divisor: Divisor::Outside, eps: 1e-5, ..verl },
            WhitenChoice::NemoGdpo => WhitenParams { eps: 0.0, ..trl },
        })
    }
}

impl AdvantageChoice {
    /// The group op's parameters.
    pub(crate) fn group_params(&self) -> GroupParams<'static> {
        let (ddof, eps) = (self.ddof, self.eps);
        let none = Scale::None { ddof };
        let by_std = |scale: Scale| if self.norm_by_std { scale } else { none };
        let (baseline, scale) = match self.estimator {
            // TEMPO's advantage is GRPO's except where responses diverge.
            AdvantageEstimator::Grpo | AdvantageEstimator::Tempo => {
                (Baseline::Mean, by_std(Scale::Std { ddof, eps }))
            }
            AdvantageEstimator::GrpoBatch => (Baseline::Mean, by_std(Scale::Batch { ddof, eps })),
            AdvantageEstimator::GrpoLeaveOneOut => {
                (Baseline::LeaveOneOut, by_std(Scale::LeaveOneOutStd { ddof, eps }))
            }
            AdvantageEstimator::Rloo => (Baseline::LeaveOneOut, none),
            AdvantageEstimator::Opo => (Baseline::Length, none),
            AdvantageEstimator::Gpg => (Baseline::Mean, Scale::Nonzero { norm: self.f_norm.unwrap_or(1.0) }),
            AdvantageEstimator::PassK => (Baseline::Second, by_std(Scale::Std { ddof, eps })),
            AdvantageEstimator::McGrpo => {
                (Baseline::Median, Scale::Mad { floor: self.mad_floor.unwrap_or(MAD_FLOOR) })
            }
            AdvantageEstimator::MaxRl => (Baseline::Mean, Scale::Mean { eps }),
            AdvantageEstimator::ReMax => (Baseline::Given, none),
            AdvantageEstimator::Vcpo if self.robust.is_some() => {
                (Baseline::Given, by_std(Scale::Std { ddof, eps }))
            }
            AdvantageEstimator::Vcpo => {
                (Baseline::Weighted { eps: VCPO_EPS }, by_std(Scale::Std { ddof, eps }))
            }
            AdvantageEstimator::ReinforcePlusPlus | AdvantageEstimator::ReinforcePlusPlusBaseline => {
                (Baseline::Mean, none)
            }
            AdvantageEstimator::Reward | AdvantageEstimator::RoleBaseline => (Baseline::Given, none),
            AdvantageEstimator::PassAtK => (Baseline::Mean, none),
            AdvantageEstimator::Gdpo if self.leave_one_out == Some(true) => {
                (Baseline::LeaveOneOut, by_std(Scale::LeaveOneOutStd { ddof, eps }))
            }
            AdvantageEstimator::Gdpo => (Baseline::Mean, by_std(Scale::Std { ddof, eps })),
            AdvantageEstimator::V05 => {
                let (tau2, laplace) = (self.tau2.unwrap_or(0.0), self.laplace.unwrap_or(false));
                (Baseline::Shrunk { tau2, laplace }, none)
            }
        };
        GroupParams {
            singleton: match self.singleton {
                SingletonChoice::Error => None,
                SingletonChoice::Zero | SingletonChoice::LeaveOut => Some(Singleton::Zero),
                SingletonChoice::RawReward => Some(Singleton::RawReward),
            },
            limit: self.limit.unwrap_or(f64::INFINITY),
            least_std: self.least_std.unwrap_or(0.0),
            ..GroupParams::new(baseline, scale)
        }
    }

    /// The whitening after the estimator, if any.
    pub(crate) fn whitening(&self) -> Option<WhitenParams> {
        let own = self.estimator.whitens().then_some(WhitenChoice::Verl);
        self.whiten.or(own)?.params()
    }
}
