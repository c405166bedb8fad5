//! From a recipe's estimator over time to the ops.

use super::{AdvantageChoice, NormSetChoice, Recipe, TimeChoice, TokenAdvantages};
use crate::ops::gae::{GaeInput, GaeOutput, GaeParams, Lambda};
use crate::ops::optimal_token_baseline::{Score, TokenBaselineParams};
use crate::ops::step_return::{StepParams, Steps};
use crate::ops::turns::{NormSet, RoleNorm, Turns, spread};
use crate::ops::vtrace::{VTraceInput, VTraceParams};
use crate::ops::whiten::whiten;
use crate::ops::{self};
use crate::{Advantage, Batch, Device, Error};

/// verl adds it to the sum of the weights.
const TOKEN_BASELINE_EPS: f64 = 1e-8;

impl Recipe {
    /// GAE, whitened as the recipe says. Errors: another estimator; see [`ops::gae()`], [`whiten`].
    ///
    /// ```
    /// use lockstep::ops::gae::{Ends, GaeInput};
    /// use lockstep::{Batch, Device, Recipe};
    /// let batch = Batch::new(&[0, 3], &[0, 1], None)?;
    /// let input = GaeInput { rewards: &[0.0, 0.0, 1.0], values: &[0.2, 0.4, 0.7], ends: Ends::Terminated };
    /// let out = Recipe::named("gae")?.gae(&Device::cpu(), &batch, &input)?;
    /// assert!(out.advantage.iter().sum::<f32>().abs() < 1e-6 && out.returns[2] == 1.0);
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn gae(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &GaeInput<'_>,
    ) -> Result<TokenAdvantages, Error> {
        let Some(TimeChoice::Gae { gamma, lambda, lambda_critic, length_alpha }) = self.advantage.over_time
        else {
            return Err(other("gae"));
        };
        let lambda = length_alpha.map_or(Lambda::Fixed(lambda), |alpha| Lambda::LengthAdaptive { alpha });
        let params = GaeParams { gamma, lambda, lambda_critic: lambda_critic.map(Lambda::Fixed) };
        let mut out = GaeOutput::default();
        ops::gae(device, batch, input, &params, &mut out)?;
        self.finish(device, batch, out.advantage, out.returns)
    }

    /// V-trace; `returns` are vs. Errors: another estimator; see [`ops::vtrace()`], [`whiten`].
    pub fn vtrace(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &VTraceInput<'_>,
    ) -> Result<TokenAdvantages, Error> {
        let Some(TimeChoice::Vtrace { gamma, lambda, rho_bar, rho_pg, c_bar }) = self.advantage.over_time
        else {
            return Err(other("vtrace"));
        };
        let params = VTraceParams { gamma, lambda, rho_bar, rho_pg, c_bar };
        let out = ops::vtrace(device, batch, input, &params)?;
        self.finish(device, batch, out.advantage, out.vs)
    }

    /// MARS: returns of turns, normalised in their role. Errors: another estimator; see [`ops::turn_return`],
    /// [`ops::normalize_roles`], [`whiten`].
    pub fn turn_advantages(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        turns: &Turns<'_>,
    ) -> Result<TokenAdvantages, Error> {
        let Some(TimeChoice::Mars { gamma, set }) = self.advantage.over_time else {
            return Err(other("mars"));
        };
        let set = match set {
            NormSetChoice::UniqueValuesAndZero => NormSet::UniqueValues { with_zero: true },
            NormSetChoice::UniqueValues => NormSet::UniqueValues { with_zero: false },
            NormSetChoice::Samples => NormSet::Samples,
        };
        let norm = RoleNorm { set, by_std: self.advantage.norm_by_std, eps: self.advantage.eps };
        let returns = ops::turn_return(device, batch, turns, gamma)?;
        let advantage = ops::normalize_roles(device, &returns, turns.roles, &norm)?;
        let tokens = |values: &[f32]| spread(batch, turns.cu_turns, values);
        self.finish(device, batch, tokens(&advantage)?, tokens(&returns)?)
    }

    /// UI-S1: steps against steps and episodes against episodes. Step k holds tokens `step_tokens[k]..step_tokens[k+1]`, `[K+1]`.
    /// Errors: another estimator; see [`ops::step_advantages`], [`whiten`].
    pub fn step_advantages(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        steps: &Steps<'_>,
        step_tokens: &[u32],
        episode_rewards: &[f32],
    ) -> Result<TokenAdvantages, Error> {
        let Some(TimeChoice::UiS1 { gamma, include_first_mismatch, omega }) = self.advantage.over_time else {
            return Err(other("ui_s1"));
        };
        let AdvantageChoice { norm_by_std, eps, .. } = self.advantage;
        let params = StepParams { gamma, include_first_mismatch, norm_by_std, eps, omega: omega as f32 };
        let out = ops::step_advantages(device, batch, steps, episode_rewards, &params)?;
        let tokens = |values: &[f32]| spread(batch, step_tokens, values);
        self.finish(device, batch, tokens(&out.advantage)?, tokens(&out.returns)?)
    }

    /// Discounted returns against the optimal token baseline; `ratio` `[N]` (rollout correction) enters its weights squared. Errors:
    /// another estimator; see [`ops::discounted_return()`], [`ops::optimal_token_baseline()`], [`whiten`].
    pub fn token_baseline_advantages(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        token_rewards: &[f32],
        score: Score<'_>,
        ratio: Option<&[f32]>,
    ) -> Result<TokenAdvantages, Error> {
        let Some(TimeChoice::OptimalTokenBaseline { gamma, lone_tail_is_raw }) = self.advantage.over_time
        else {
            return Err(other("optimal_token_baseline"));
        };
        let returns = ops::discounted_return(device, batch, token_rewards, gamma)?;
        let params = TokenBaselineParams { eps: TOKEN_BASELINE_EPS, lone_tail_is_raw };
        let advantage = ops::optimal_token_baseline(device, batch, &returns, score, ratio, &params)?;
        self.finish(device, batch, advantage, returns)
    }

    /// Whitening and the limit, where the recipe has them.
    fn finish(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        mut advantage: Vec<f32>,
        returns: Vec<f32>,
    ) -> Result<TokenAdvantages, Error> {
        if let Some(params) = self.advantage.whiten.map(super::WhitenChoice::params) {
            advantage = whiten(device, batch, Advantage::PerToken(&advantage), &params)?;
        }
        if let Some(limit) = self.advantage.limit {
            let limit = limit as f32;
            advantage.iter_mut().for_each(|a| *a = a.clamp(-limit, limit));
        }
        Ok(TokenAdvantages { advantage, returns })
    }
}

fn other(kind: &str) -> Error {
    Error::Recipe(format!("advantage.over_time is not {kind}, which this call is for"))
}

impl TimeChoice {
    /// Whether every number is in its domain.
    pub(super) fn check(&self) -> Result<(), Error> {
        let unit = |name: &str, x: f64| match (0.0..=1.0).contains(&x) {
            true => Ok(()),
            false => Err(Error::Recipe(format!("advantage.over_time.{name} is {x}: expected 0 to 1"))),
        };
        let positive = |name: &str, x: f64| match x > 0.0 {
            true => Ok(()),
            false => {
                Err(Error::Recipe(format!("advantage.over_time.{name} is {x}: expected a positive number")))
            }
        };
        match *self {
            TimeChoice::Gae { gamma, lambda, lambda_critic, length_alpha } => {
                unit("gamma", gamma)?;
                unit("lambda", lambda)?;
                unit("lambda_critic", lambda_critic.unwrap_or(1.0))?;
                positive("length_alpha", length_alpha.unwrap_or(1.0))
            }
            TimeChoice::Vtrace { gamma, lambda, rho_bar, rho_pg, c_bar } => {
                unit("gamma", gamma)?;
                unit("lambda", lambda)?;
                positive("rho_bar", rho_bar)?;
                positive("rho_pg", rho_pg)?;
                positive("c_bar", c_bar)
            }
            TimeChoice::Mars { gamma, .. } | TimeChoice::OptimalTokenBaseline { gamma, .. } => {
                unit("gamma", gamma)
            }
            TimeChoice::UiS1 { gamma, omega, .. } => {
                unit("gamma", gamma)?;
                match (omega as f32).is_finite() {
                    true => Ok(()),
                    false => Err(Error::Recipe(format!(
                        "advantage.over_time.omega is {omega}: expected a finite number"
                    ))),
                }
            }
        }
    }
}
