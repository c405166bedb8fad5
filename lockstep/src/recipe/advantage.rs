//! From a recipe's advantage estimator to the ops.

use super::{AdvantageChoice, Estimator, NanReward, Recipe, SingletonChoice, WhitenChoice};
use crate::ops::advantage::{Advantages, GroupParams, group_advantage};
use crate::ops::tree::{Outcomes, Tempo, TempoParams, Tokens, tempo};
use crate::ops::whiten::{WhitenParams, whiten};
use crate::ops::{self};
use crate::{Advantage, Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::{Baseline, Scale, Singleton};

/// MC-GRPO's released code.
const MAD_FLOOR: f64 = 1e-3;
/// VCPO adds it to the sum of the weights.
const VCPO_EPS: f64 = 1e-8;

/// Outcome rewards and what some estimators want beside them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rewards<'a> {
    /// One per sequence, `[S]`; NaN = no score.
    pub rewards: &'a [f32],
    /// Sequences whose entry is 0 are left out of their group's statistics, `[S]`; absent = all count.
    pub valid: Option<&'a [u8]>,
    /// A baseline per group, `[G]`: `remax` (the reward of the greedy response).
    pub given: Option<&'a [f32]>,
    /// Weights per sequence, `[S]`: `vcpo` (squared sequence ratio times squared norm of the score).
    pub weights: Option<&'a [f32]>,
}

impl<'a> Rewards<'a> {
    /// Rewards alone.
    pub fn new(rewards: &'a [f32]) -> Self {
        Rewards { rewards, valid: None, given: None, weights: None }
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
        if self.advantage.estimator == Estimator::ReinforcePlusPlus {
            let expected = "reinforce_plus_plus needs rewards per token: call Recipe::token_advantages";
            return Err(Argument::Combination { argument: "rewards", expected }.into());
        }
        if self.advantage.estimator == Estimator::Tempo {
            let expected = "tempo needs the token ids: call Recipe::tree_advantages";
            return Err(Argument::Combination { argument: "rewards", expected }.into());
        }
        self.check_nan(input.rewards)?;
        let params =
            GroupParams { given: input.given, weights: input.weights, ..self.advantage.group_params() };
        let mut out = group_advantage(device, batch, input.rewards, input.valid, &params)?;
        if let Some(params) = self.advantage.whitening() {
            let counted = |i: usize| !input.rewards[i].is_nan() && input.valid.is_none_or(|v| v[i] != 0);
            let value = |(i, a): (usize, &f32)| if counted(i) { *a } else { f32::NAN };
            let values: Vec<f32> = out.advantage.iter().enumerate().map(value).collect();
            out.advantage = whiten(device, batch, Advantage::PerSequence(&values), &params)?;
        }
        Ok(out)
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
        let AdvantageChoice { estimator, norm_by_std, ddof, eps, .. } = self.advantage;
        if estimator != Estimator::Tempo {
            let expected = "advantage.estimator takes no token ids: only tempo does";
            return Err(Argument::Combination { argument: "tokens", expected }.into());
        }
        self.check_nan(outcomes.rewards)?;
        let singleton = self.advantage.group_params().singleton;
        tempo(device, batch, tokens, outcomes, &TempoParams { norm_by_std, ddof, eps, singleton, pad: None })
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
        if self.advantage.estimator != Estimator::ReinforcePlusPlus {
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
            Estimator::Vcpo => (Baseline::Weighted { eps: VCPO_EPS }, by_std(Scale::Std { ddof, eps })),
            Estimator::ReinforcePlusPlus | Estimator::ReinforcePlusPlusBaseline => (Baseline::Mean, none),
        };
        GroupParams {
            singleton: match self.singleton {
                SingletonChoice::Error => None,
                SingletonChoice::Zero => Some(Singleton::Zero),
                SingletonChoice::RawReward => Some(Singleton::RawReward),
            },
            limit: self.limit.unwrap_or(f64::INFINITY),
            ..GroupParams::new(baseline, scale)
        }
    }

    fn whitening(&self) -> Option<WhitenParams> {
        let reinforce = [Estimator::ReinforcePlusPlus, Estimator::ReinforcePlusPlusBaseline];
        match self.whiten {
            Some(WhitenChoice::Verl) => Some(WhitenParams::VERL),
            Some(WhitenChoice::Nemo) => Some(WhitenParams::NEMO),
            Some(WhitenChoice::Trl) => Some(WhitenParams::TRL),
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
        ];
        for (name, value, estimator, spelled, expected) in own {
            let Some(value) = value else { continue };
            if self.estimator != estimator {
                return Err(Error::Recipe(format!(
                    "advantage.{name} is used by the estimator {spelled} only"
                )));
            }
            let good = match name {
                "gamma" => (0.0..=1.0).contains(&value),
                "f_norm" => value > 0.0 && finite(value),
                _ => finite(value),
            };
            if !good {
                return Err(Error::Recipe(format!("advantage.{name} is {value}: expected {expected}")));
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
