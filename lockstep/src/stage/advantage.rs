//! From a recipe's advantage estimator to the ops.

use super::{AdvantageChoice, Estimator, NanReward, Recipe, RoleOrder, SingletonChoice, WhitenChoice};
use crate::ops::advantage::{Advantages, GroupParams, group_advantage};
use crate::ops::locate;
use crate::ops::tree::{Outcomes, Tempo, TempoParams, Tokens, tempo};
use crate::ops::whiten::{WhitenParams, whiten};
use crate::ops::{self};
use crate::{Advantage, Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::{Baseline, Divisor, Order, Scale, Singleton};
use std::borrow::Cow;

/// MC-GRPO's released code.
const MAD_FLOOR: f64 = 1e-3;
/// Attempts of `pass_at_k` unless the recipe says how many.
pub(super) const PASS_AT_K: u32 = 4;
/// SPIRAL's decay.
pub(super) const ROLE_DECAY: f64 = 0.95;
/// VCPO adds it to the sum of the weights.
const VCPO_EPS: f64 = 1e-8;

/// Outcome rewards and what some estimators want beside them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rewards<'a> {
    /// One per sequence, `[S]`; NaN = no score.
    pub rewards: &'a [f32],
    /// Sequences whose entry is 0 are left out of their group's statistics, `[S]`; absent = all count.
    pub valid: Option<&'a [u8]>,
    /// A baseline per group, `[G]`: `remax` (the reward of the greedy response), the prior of `v0_5`, MSSR's tracked value.
    pub given: Option<&'a [f32]>,
    /// Weights per sequence, `[S]`: `vcpo` (squared sequence ratio times squared norm of the score).
    pub weights: Option<&'a [f32]>,
    /// Correct but flawed answers, `[S]`: FAPO.
    pub flags: Option<&'a [u8]>,
    /// Position in its group of the answer that the others were compared with, `[G]`: BRPO.
    pub reference: Option<&'a [u32]>,
    /// Classes of the answers, `[S]`: EVOL-RL, from [`ops::reward::majority`].
    pub classes: Option<&'a [u32]>,
    /// Similarities inside the groups, `[Σ n²]`: EVOL-RL.
    pub similarity: Option<&'a [f32]>,
    /// Log-probabilities per token, `[N]`: XRPO, ACE.
    pub logp: Option<&'a [f32]>,
    /// The reference's, `[N]`: ACE, GRPOVI.
    pub logp_ref: Option<&'a [f32]>,
    /// K rewards `[S]`, one array after the other: GDPO, which does not read `rewards`.
    pub components: Option<&'a [f32]>,
    /// Their weights, `[K]`.
    pub component_weights: Option<&'a [f32]>,
    /// Role of each sequence, `[S]`: SPIRAL.
    pub roles: Option<&'a [u32]>,
    /// Moving average of each role, `[P]`, as the last call returned it.
    pub role_state: Option<&'a [f64]>,
}

impl<'a> Rewards<'a> {
    /// Rewards alone.
    pub fn new(rewards: &'a [f32]) -> Self {
        Rewards {
            rewards,
            valid: None,
            given: None,
            weights: None,
            flags: None,
            reference: None,
            classes: None,
            similarity: None,
            logp: None,
            logp_ref: None,
            components: None,
            component_weights: None,
            roles: None,
            role_state: None,
        }
    }
}

/// Advantages per token, with the returns behind them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenAdvantages {
    /// `[N]`; 0 where masked.
    pub advantage: Vec<f32>,
    /// Discounted returns, `[N]`.
    pub returns: Vec<f32>,
}

impl Recipe {
    /// Advantages of `rewards` `[S]`. A NaN reward is excluded or refused, as the recipe says. Errors: see
    /// [`group_advantage`].
    pub fn advantages(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        rewards: &[f32],
    ) -> Result<Advantages, Error> {
        self.advantages_with(device, batch, &Rewards::new(rewards))
    }

    /// As [`Recipe::advantages`], with sequences whose entry in `valid` `[S]` is 0 left out of their group's statistics.
    pub fn advantages_of(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        rewards: &[f32],
        valid: Option<&[u8]>,
    ) -> Result<Advantages, Error> {
        self.advantages_with(device, batch, &Rewards { valid, ..Rewards::new(rewards) })
    }

    /// As [`Recipe::advantages`], with all that an estimator may want.
    ///
    /// ```
    /// use lockstep::recipe::Rewards;
    /// use lockstep::{Batch, Device, Recipe};
    /// let batch = Batch::new(&[0, 1, 2], &[0, 2], None)?;
    /// let remax = Recipe::from_toml("[advantage]\nkind = \"remax\"\n")?;
    /// let rewards = Rewards { given: Some(&[0.75]), ..Rewards::new(&[1.0, 0.0]) };
    /// assert_eq!(remax.advantages_with(&Device::cpu(), &batch, &rewards)?.advantage, [0.25, -0.75]);
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn advantages_with(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &Rewards<'_>,
    ) -> Result<Advantages, Error> {
        if self.advantage.over_time.is_some() {
            let expected = "advantage.over_time needs rewards with a place in time: call the recipe's method of its name";
            return Err(Argument::Combination { argument: "rewards", expected }.into());
        }
        if self.advantage.estimator == Estimator::ReinforcePlusPlus {
            let expected = "reinforce_plus_plus needs rewards per token: call Recipe::token_advantages";
            return Err(Argument::Combination { argument: "rewards", expected }.into());
        }
        if self.advantage.estimator == Estimator::Tempo {
            let expected = "tempo needs the token ids: call Recipe::tree_advantages";
            return Err(Argument::Combination { argument: "rewards", expected }.into());
        }
        self.check_nan(input.rewards)?;
        let shaped = self.shaped_rewards(device, batch, input)?;
        let seen = Rewards { rewards: &shaped, ..*input };
        if let Some(out) = self.other_estimator(device, batch, &seen)? {
            return self.after_estimator(device, batch, input, &shaped, out);
        }
        let own = match self.advantage.estimator {
            Estimator::Reward => vec![0.0; batch.groups()],
            _ => self.robust_baselines(batch, &seen)?,
        };
        let given = if own.is_empty() { input.given } else { Some(&own[..]) };
        let weights = input.weights.filter(|_| self.advantage.robust.is_none());
        let params = GroupParams { given, weights, ..self.advantage.group_params() };
        let mut out = group_advantage(device, batch, &shaped, input.valid, &params)?;
        if let Some(params) = self.advantage.whitening() {
            let counted = |i: usize| !shaped[i].is_nan() && input.valid.is_none_or(|v| v[i] != 0);
            let value = |(i, a): (usize, &f32)| if counted(i) { *a } else { f32::NAN };
            let values: Vec<f32> = out.advantage.iter().enumerate().map(value).collect();
            out.advantage = whiten(device, batch, Advantage::PerSequence(&values), &params)?;
        }
        self.after_estimator(device, batch, input, &shaped, out)
    }

    /// Whether NaN rewards are what the recipe takes them for.
    fn check_nan(&self, rewards: &[f32]) -> Result<(), Error> {
        let nan = rewards.iter().position(|r| r.is_nan());
        if let (NanReward::Error, Some(_)) = (self.advantage.nan_reward, nan) {
            let expected = "a number (the recipe's nan_reward is error)";
            let (argument, index, got) = ("rewards", nan, f64::NAN);
            return Err(Argument::Value { argument, index, expected, got }.into());
        }
        Ok(())
    }

    /// Advantages of tokens by the prefix trees of token ids `[N]`, of the estimator `tempo`.
    ///
    /// Errors: another estimator; see [`tempo`].
    ///
    /// ```
    /// use lockstep::ops::tree::Outcomes;
    /// use lockstep::{Batch, Device, Recipe};
    /// let batch = Batch::new(&[0, 2, 4], &[0, 2], None)?;
    /// let tokens: &[u32] = &[7, 8, 7, 9];
    /// let out = Recipe::named("tempo")?.tree_advantages(&Device::cpu(), &batch, tokens.into(), &Outcomes::new(&[1.0, 0.0]))?;
    /// assert!(out.advantage[1] > out.advantage[0]);
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn tree_advantages(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        tokens: Tokens<'_>,
        outcomes: &Outcomes<'_>,
    ) -> Result<Tempo, Error> {
        let AdvantageChoice { estimator, norm_by_std, ddof, eps, pad_id, stop_at_mask, .. } = self.advantage;
        if estimator != Estimator::Tempo {
            let expected = "advantage.estimator takes no token ids: only tempo does";
            return Err(Argument::Combination { argument: "tokens", expected }.into());
        }
        self.check_nan(outcomes.rewards)?;
        let singleton = self.advantage.group_params().singleton;
        tempo(
            device,
            batch,
            tokens,
            outcomes,
            &TempoParams {
                norm_by_std,
                ddof,
                eps,
                singleton,
                pad: pad_id,
                stop_at_mask: stop_at_mask.unwrap_or(false),
            },
        )
    }

    /// Advantages of rewards per token `[N]`, of the estimator `reinforce_plus_plus`: discounted returns, whitened.
    ///
    /// Errors: another estimator; see [`ops::discounted_return()`], [`whiten`].
    pub fn token_advantages(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        token_rewards: &[f32],
    ) -> Result<TokenAdvantages, Error> {
        if self.advantage.estimator != Estimator::ReinforcePlusPlus || self.advantage.over_time.is_some() {
            let expected = "advantage.estimator takes rewards per sequence: only reinforce_plus_plus takes them per token";
            return Err(Argument::Combination { argument: "token rewards", expected }.into());
        }
        let gamma = self.advantage.gamma.unwrap_or(1.0);
        let returns = ops::discounted_return(device, batch, token_rewards, gamma)?;
        let advantage = self.whitened(device, batch, (&returns).into())?;
        Ok(TokenAdvantages { advantage, returns })
    }

    /// Advantages of tokens, whitened where the recipe or its estimator wants it, and finite.
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
    pub(super) fn params(self) -> WhitenParams {
        match self {
            WhitenChoice::Verl => WhitenParams::VERL,
            WhitenChoice::Nemo => WhitenParams::NEMO,
            WhitenChoice::Trl => WhitenParams::TRL,
            WhitenChoice::Mssr => {
                WhitenParams { divisor: Divisor::Floor, ddof: 0, eps: 1e-6, ..WhitenParams::TRL }
            }
            WhitenChoice::Areal => {
                WhitenParams { divisor: Divisor::Outside, eps: 1e-5, ..WhitenParams::VERL }
            }
            WhitenChoice::NemoGdpo => WhitenParams { eps: 0.0, ..WhitenParams::TRL },
        }
    }
}

impl AdvantageChoice {
    /// The group op's parameters.
    pub(super) fn group_params(&self) -> GroupParams<'static> {
        let (ddof, eps) = (self.ddof, self.eps);
        let none = Scale::None { ddof };
        let by_std = |scale: Scale| if self.norm_by_std { scale } else { none };
        let (baseline, scale) = match self.estimator {
            // TEMPO's is GRPO's but where responses part.
            Estimator::Grpo | Estimator::Tempo => (Baseline::Mean, by_std(Scale::Std { ddof, eps })),
            Estimator::GrpoBatch => (Baseline::Mean, by_std(Scale::Batch { ddof, eps })),
            Estimator::GrpoLeaveOneOut => {
                (Baseline::LeaveOneOut, by_std(Scale::LeaveOneOutStd { ddof, eps }))
            }
            Estimator::Rloo => (Baseline::LeaveOneOut, none),
            Estimator::Opo => (Baseline::Length, none),
            Estimator::Gpg => (Baseline::Mean, Scale::Nonzero { norm: self.f_norm.unwrap_or(1.0) }),
            Estimator::PassK => (Baseline::Second, by_std(Scale::Std { ddof, eps })),
            Estimator::McGrpo => {
                (Baseline::Median, Scale::Mad { floor: self.mad_floor.unwrap_or(MAD_FLOOR) })
            }
            Estimator::MaxRl => (Baseline::Mean, Scale::Mean),
            Estimator::ReMax => (Baseline::Given, none),
            Estimator::Vcpo if self.robust.is_some() => (Baseline::Given, by_std(Scale::Std { ddof, eps })),
            Estimator::Vcpo => (Baseline::Weighted { eps: VCPO_EPS }, by_std(Scale::Std { ddof, eps })),
            Estimator::ReinforcePlusPlus | Estimator::ReinforcePlusPlusBaseline => (Baseline::Mean, none),
            Estimator::Reward | Estimator::RoleBaseline => (Baseline::Given, none),
            Estimator::PassAtK => (Baseline::Mean, none),
            Estimator::Gdpo if self.leave_one_out == Some(true) => {
                (Baseline::LeaveOneOut, by_std(Scale::LeaveOneOutStd { ddof, eps }))
            }
            Estimator::Gdpo => (Baseline::Mean, by_std(Scale::Std { ddof, eps })),
            Estimator::V05 => {
                let (tau2, laplace) = (self.tau2.unwrap_or(0.0), self.laplace.unwrap_or(false));
                (Baseline::Shrunk { tau2, laplace }, none)
            }
        };
        GroupParams {
            singleton: match self.singleton {
                SingletonChoice::Error => None,
                SingletonChoice::Zero => Some(Singleton::Zero),
                SingletonChoice::RawReward => Some(Singleton::RawReward),
            },
            limit: self.limit.unwrap_or(f64::INFINITY),
            least_std: self.least_std.unwrap_or(0.0),
            ..GroupParams::new(baseline, scale)
        }
    }

    /// Which comes first in `role_baseline`.
    pub(super) fn order(&self) -> Order {
        match self.role_order {
            Some(RoleOrder::UpdateThenSubtract) => Order::UpdateThenSubtract,
            Some(RoleOrder::SubtractThenUpdate) | None => Order::SubtractThenUpdate,
        }
    }

    pub(super) fn whitening(&self) -> Option<WhitenParams> {
        let reinforce = [Estimator::ReinforcePlusPlus, Estimator::ReinforcePlusPlusBaseline];
        match self.whiten {
            Some(choice) => Some(choice.params()),
            None => reinforce.contains(&self.estimator).then_some(WhitenParams::VERL),
        }
    }
}
