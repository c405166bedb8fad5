//! From a recipe's advantage estimator to the ops.

use super::{
    AdvantageChoice, Estimator, NanReward, Recipe, RobustChoice, RoleOrder, SingletonChoice, WhitenChoice,
};
use crate::ops::advantage::{Advantages, GroupParams, group_advantage};
use crate::ops::tree::{Outcomes, Tempo, TempoParams, Tokens, tempo};
use crate::ops::whiten::{WhitenParams, whiten};
use crate::ops::{self};
use crate::{Advantage, Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::{Baseline, Divisor, Order, Scale, Singleton};

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

    /// Advantages of rewards per token `[N]`, of the estimator `remax`: what is still to come, less the `greedy` response's reward `[G]`.
    ///
    /// Errors: another estimator; lengths that disagree; a live reward or a greedy one that is not finite (index); a result that is not finite (index).
    ///
    /// ```
    /// use lockstep::{Batch, Device, Recipe};
    /// let batch = Batch::new(&[0, 2, 3], &[0, 2], None)?;
    /// let out = Recipe::named("remax")?.remax_advantages(&Device::cpu(), &batch, &[0.25, 1.0, 0.0], &[0.5])?;
    /// assert_eq!((out.advantage, out.returns), (vec![0.75, 0.5, -0.5], vec![1.25, 1.0, 0.0]));
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn remax_advantages(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        token_rewards: &[f32],
        greedy: &[f32],
    ) -> Result<TokenAdvantages, Error> {
        if self.advantage.estimator != Estimator::ReMax || self.advantage.over_time.is_some() {
            let expected = "advantage.estimator takes no greedy rewards: only remax does";
            return Err(Argument::Combination { argument: "greedy rewards", expected }.into());
        }
        crate::batch::check_length("greedy rewards", batch.groups(), "one per group", greedy.len())?;
        if let Some(index) = greedy.iter().position(|r| !r.is_finite()) {
            let (argument, expected, got) = ("greedy rewards", "a finite number", greedy[index].into());
            return Err(Argument::Value { argument, index: Some(index), expected, got }.into());
        }
        let returns = ops::discounted_return(device, batch, token_rewards, 1.0)?;
        let mut advantage = vec![0.0; returns.len()];
        for (group, greedy) in greedy.iter().enumerate() {
            let sequences = batch.cu_groups().span(group);
            for sequence in sequences.start..sequences.end {
                let tokens = batch.cu_seqlens().span(sequence);
                let live = (tokens.start..tokens.end).filter(|i| batch.loss_mask().at(*i));
                live.for_each(|i| advantage[i] = returns[i] - greedy);
            }
        }
        if let Some(params) = self.advantage.whitening() {
            advantage = whiten(device, batch, Advantage::PerToken(&advantage), &params)?;
        }
        match advantage.iter().position(|a| !a.is_finite()) {
            None => Ok(TokenAdvantages { advantage, returns }),
            Some(index) => {
                let hint = "the rewards are too large for f32";
                Err(Argument::NotFinite { result: "advantage", index, hint }.into())
            }
        }
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
        let params = self.advantage.whitening().unwrap_or(WhitenParams::VERL);
        let advantage = whiten(device, batch, Advantage::PerToken(&returns), &params)?;
        Ok(TokenAdvantages { advantage, returns })
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

impl Estimator {
    /// Whether the group op divides by a standard deviation.
    fn divides_by_std(self) -> bool {
        use Estimator::{Gdpo, Grpo, GrpoBatch, GrpoLeaveOneOut, PassK, Vcpo};
        matches!(self, Grpo | GrpoBatch | GrpoLeaveOneOut | PassK | Vcpo | Gdpo)
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

    /// Whether every number is in its domain and belongs to the estimator.
    pub(super) fn check(&self) -> Result<(), Error> {
        let Self { ddof, eps, .. } = *self;
        if ddof > 1 {
            return Err(Error::Recipe(format!("advantage.ddof is {ddof}: expected 0 or 1")));
        }
        if !(eps >= 0.0 && eps.is_finite()) {
            return Err(Error::Recipe(format!(
                "advantage.eps is {eps}: expected a finite number of at least 0"
            )));
        }
        let finite = |x: f64| x >= 0.0 && x.is_finite();
        let own = [
            ("mad_floor", self.mad_floor, Estimator::McGrpo, "mc_grpo", "a finite number of at least 0"),
            ("f_norm", self.f_norm, Estimator::Gpg, "gpg", "a positive finite number"),
            ("gamma", self.gamma, Estimator::ReinforcePlusPlus, "reinforce_plus_plus", "0 to 1"),
            ("tau2", self.tau2, Estimator::V05, "v0_5", "a finite number of at least 0"),
            ("decay", self.decay, Estimator::RoleBaseline, "role_baseline", "0 to 1"),
            ("k", self.k.map(f64::from), Estimator::PassAtK, "pass_at_k", "at least 1"),
            ("laplace", self.laplace.map(|_| 1.0), Estimator::V05, "v0_5", "true or false"),
            ("leave_one_out", self.leave_one_out.map(|_| 1.0), Estimator::Gdpo, "gdpo", "true or false"),
            ("stop_at_mask", self.stop_at_mask.map(|_| 1.0), Estimator::Tempo, "tempo", "true or false"),
            ("pad_id", self.pad_id.map(f64::from), Estimator::Tempo, "tempo", "a token id"),
            ("robust", self.robust.map(|_| 1.0), Estimator::Vcpo, "vcpo", "median or winsorised"),
            ("winsor_share", self.winsor_share, Estimator::Vcpo, "vcpo", "at least 0 and below 0.5"),
            (
                "role_order",
                self.role_order.map(|_| 1.0),
                Estimator::RoleBaseline,
                "role_baseline",
                "an order",
            ),
        ];
        for (name, value, estimator, spelled, expected) in own {
            let Some(value) = value else { continue };
            if self.estimator != estimator {
                return Err(Error::Recipe(format!(
                    "advantage.{name} is used by the estimator {spelled} only"
                )));
            }
            let good = match name {
                "gamma" | "decay" => (0.0..=1.0).contains(&value),
                "k" => value >= 1.0,
                "winsor_share" => (0.0..0.5).contains(&value),
                "f_norm" => value > 0.0 && finite(value),
                _ => finite(value),
            };
            if !good {
                return Err(Error::Recipe(format!("advantage.{name} is {value}: expected {expected}")));
            }
        }
        if let Some(least) = self.least_std {
            if !finite(least) {
                return Err(Error::Recipe(format!(
                    "advantage.least_std is {least}: expected a finite number of at least 0"
                )));
            }
            if !(self.norm_by_std && self.over_time.is_none() && self.estimator.divides_by_std()) {
                let message = "advantage.least_std is for estimators that divide by a standard deviation";
                return Err(Error::Recipe(message.into()));
            }
        }
        if self.winsor_share.is_some() && self.robust != Some(RobustChoice::Winsorised) {
            let message = "advantage.winsor_share is used by advantage.robust winsorised only";
            return Err(Error::Recipe(message.into()));
        }
        if let Some(over_time) = &self.over_time {
            over_time.check()?;
            if self.estimator != Estimator::Grpo {
                return Err(Error::Recipe(
                    "advantage.over_time stands instead of advantage.estimator: leave one out".into(),
                ));
            }
        }
        if self.estimator == Estimator::Tempo && (self.limit.is_some() || self.whiten.is_some()) {
            return Err(Error::Recipe("advantage.limit and advantage.whiten are not for tempo".into()));
        }
        match self.limit {
            Some(limit) if limit.is_nan() || limit <= 0.0 => {
                Err(Error::Recipe(format!("advantage.limit is {limit}: expected a positive number")))
            }
            Some(_) if self.estimator == Estimator::ReinforcePlusPlus => {
                Err(Error::Recipe("advantage.limit is for advantages per sequence".into()))
            }
            _ => Ok(()),
        }
    }
}
