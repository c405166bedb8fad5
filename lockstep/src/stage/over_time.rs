//! Runs a recipe's estimator over time with the ops.

use super::naming::{Naming, TOKEN_REWARDS};
use super::reward::needed;
use crate::columns::{Column, Columns};
use crate::ops;
use crate::ops::filter::filter_groups;
use crate::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda};
use crate::ops::optimal_token_baseline::{Score, TokenBaselineParams};
use crate::ops::step_return::{StepParams, Steps};
use crate::ops::turns::{RoleNorm, Turns, spread};
use crate::ops::vtrace::{VTraceInput, VTraceParams};
use crate::ops::whiten::whiten;
use crate::recipe::{AdvantageChoice, Recipe, TimeChoice, ensure};
use crate::{Advantage, Batch, Credit, Device, Error, Rollouts};
use lockstep_core::Error as Argument;
use lockstep_schedule::signed_return::SignedReturn;

/// The columns of how sequences end.
pub(crate) const ENDS: Columns = Columns::of(&[Column::terminated, Column::truncated, Column::bootstrap]);

/// verl adds this to the sum of the weights.
const TOKEN_BASELINE_EPS: f64 = 1e-8;

impl Recipe {
    /// Advantages for rewards over time. `token_rewards` are those of the column, minus the KL penalty if the
    /// recipe has one; `ratio` are the weights of the rollout correction.
    pub(super) fn advantages_over_time(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        rollouts: &Rollouts<'_>,
        token_rewards: Option<&[f32]>,
        ratio: Option<&[f32]>,
        choice: TimeChoice,
    ) -> Result<Credit, Error> {
        let rewards = || needed(token_rewards, "token_rewards");
        let values = || needed(rollouts.values_old, "values_old");
        let (advantage, returns) = match choice {
            TimeChoice::Gae { gamma, lambda, lambda_critic, length_alpha } => {
                let input = GaeInput { rewards: rewards()?, values: values()?, ends: ends(rollouts)? };
                let lambda =
                    length_alpha.map_or(Lambda::Fixed(lambda), |alpha| Lambda::LengthAdaptive { alpha });
                let params = GaeParams { gamma, lambda, lambda_critic: lambda_critic.map(Lambda::Fixed) };
                let mut out = GaeOutput::default();
                ops::gae(device, batch, &input, &params, &mut out)
                    .naming(&[TOKEN_REWARDS, ("values", "values_old")])?;
                (out.advantage, out.returns)
            }
            TimeChoice::Vtrace { gamma, lambda, rho_bar, rho_pg, c_bar } => {
                let logp = needed(rollouts.logp_old, "logp_old")?;
                let sampler = self.sampler(needed(rollouts.logp_rollout, "logp_rollout")?, logp);
                let input = VTraceInput {
                    logp,
                    logp_rollout: &sampler,
                    rewards: rewards()?,
                    values: values()?,
                    ends: ends(rollouts)?,
                };
                let params = VTraceParams { gamma, lambda, rho_bar, rho_pg, c_bar };
                let out = ops::vtrace(device, batch, &input, &params).naming(&[
                    TOKEN_REWARDS,
                    ("logp", "logp_old"),
                    ("values", "values_old"),
                ])?;
                (out.advantage, out.vs)
            }
            TimeChoice::Mars { gamma, set } => {
                let turns = Turns {
                    cu_turns: needed(rollouts.cu_turns, "cu_turns")?,
                    rewards: needed(rollouts.turn_rewards, "turn_rewards")?,
                    roles: needed(rollouts.turn_roles, "turn_roles")?,
                };
                let norm = RoleNorm { set, by_std: self.advantage.norm_by_std, eps: self.advantage.eps };
                let returns = ops::turn_return(device, batch, &turns, gamma)
                    .naming(&[("turn rewards", "turn_rewards")])?;
                let advantage = ops::normalize_roles(device, &returns, turns.roles, &norm)?;
                let tokens = |values: &[f32]| spread(batch, turns.cu_turns, values);
                (tokens(&advantage)?, tokens(&returns)?)
            }
            TimeChoice::UiS1 { gamma, include_first_mismatch, omega } => {
                let steps = Steps {
                    cu_steps: needed(rollouts.cu_steps, "cu_steps")?,
                    rewards: needed(rollouts.step_rewards, "step_rewards")?,
                    matches: needed(rollouts.step_matches, "step_matches")?,
                };
                let AdvantageChoice { norm_by_std, eps, .. } = self.advantage;
                let params =
                    StepParams { gamma, include_first_mismatch, norm_by_std, eps, omega: omega as f32 };
                let episodes = needed(rollouts.rewards, "rewards")?;
                let out = ops::step_advantages(device, batch, &steps, episodes, &params)
                    .naming(&[("step rewards", "step_rewards")])?;
                let offsets = needed(rollouts.cu_step_tokens, "cu_step_tokens")?;
                let names = [("offsets", "cu_step_tokens")];
                let tokens = |values: &[f32]| spread(batch, offsets, values).naming(&names);
                (tokens(&out.advantage)?, tokens(&out.returns)?)
            }
            TimeChoice::OptimalTokenBaseline { gamma, lone_tail_is_raw } => {
                let returns =
                    ops::discounted_return(device, batch, rewards()?, gamma).naming(&[TOKEN_REWARDS])?;
                let params = TokenBaselineParams { eps: TOKEN_BASELINE_EPS, lone_tail_is_raw };
                let (score, name) = match rollouts.score_norm {
                    Some(norms) => (Score::Norm(norms), ("score norms", "score_norm")),
                    None => {
                        let sum_squares = needed(rollouts.sum_p_squared, "sum_p_squared")?;
                        let logp = needed(rollouts.logp_old, "logp_old")?;
                        (Score::Probabilities { logp, sum_squares }, ("sum_squares", "sum_p_squared"))
                    }
                };
                let advantage = ops::optimal_token_baseline(device, batch, &returns, score, ratio, &params);
                (advantage.naming(&[name, ("logp", "logp_old")])?, returns)
            }
            TimeChoice::SignedReturn { gamma, correct, wrong, offset, stop_at_mask } => {
                let rewards = needed(rollouts.rewards, "rewards")?;
                self.check_nan(rewards)?;
                let rule = SignedReturn { gamma, correct, wrong, offset, stop_at_mask };
                ops::signed_return(batch, rewards, &rule)?
            }
        };
        let credit = self.finish(device, batch, advantage, returns)?;
        self.filtered(device, batch, rollouts, credit)
    }

    /// Whether the estimator reads how sequences end.
    pub(crate) fn reads_ends(&self) -> bool {
        matches!(self.advantage.over_time, Some(TimeChoice::Gae { .. } | TimeChoice::Vtrace { .. }))
    }

    /// Errors unless all or none of the columns of how sequences end are present, if the estimator reads
    /// them.
    pub(crate) fn check_ends_present(&self, present: Columns) -> Result<(), Error> {
        let there = |column| present.contains(column);
        if !self.reads_ends() {
            return Ok(());
        }
        together([there(Column::terminated), there(Column::truncated), there(Column::bootstrap)])
    }

    /// What the op checks of how sequences end, for launches that read `truncated` and `bootstrap` alone.
    pub(crate) fn check_ends(&self, rollouts: &Rollouts<'_>) -> Result<(), Error> {
        if self.reads_ends() { ends(rollouts)?.check_flags() } else { Ok(()) }
    }

    /// Sets the advantage of sequences that the filter drops to 0; the estimators that can have a filter use
    /// outcome rewards.
    fn filtered(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        rollouts: &Rollouts<'_>,
        mut credit: Credit,
    ) -> Result<Credit, Error> {
        let Some(filter) = self.reward.filter else { return Ok(credit) };
        let rewards = needed(rollouts.rewards, "rewards")?;
        credit.keep = filter_groups(device, batch, rewards, None, filter.criterion())?.keep;
        for (s, _) in credit.keep.iter().enumerate().filter(|(_, keep)| **keep == 0) {
            let span = batch.cu_seqlens().span(s);
            credit.advantage[span.start..span.end].fill(0.0);
        }
        Ok(credit)
    }

    /// Applies whitening and the limit, if the recipe has them.
    fn finish(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        mut advantage: Vec<f32>,
        returns: Vec<f32>,
    ) -> Result<Credit, Error> {
        if let Some(params) = self.advantage.whitening() {
            advantage = whiten(device, batch, Advantage::PerToken(&advantage), &params)?;
        }
        if let Some(limit) = self.advantage.limit {
            ops::limit(&mut advantage, [-limit as f32, limit as f32])?;
        }
        Ok(Credit { returns, ..Credit::per_token(advantage) })
    }
}

/// How sequences end: all three columns, or none (every response terminated).
fn ends<'a>(rollouts: &Rollouts<'a>) -> Result<Ends<'a>, Error> {
    let Rollouts { terminated, truncated, bootstrap, .. } = *rollouts;
    together([terminated.is_some(), truncated.is_some(), bootstrap.is_some()])?;
    Ok(match (terminated, truncated, bootstrap) {
        (Some(terminated), Some(truncated), Some(bootstrap)) => {
            Ends::Flags { terminated, truncated, bootstrap }
        }
        _ => Ends::Terminated,
    })
}

/// Errors unless all or none of `terminated`, `truncated` and `bootstrap` are present.
fn together(present: [bool; 3]) -> Result<(), Error> {
    let missing = present.iter().position(|present| !present);
    let Some(which) = missing.filter(|_| present.contains(&true)) else { return Ok(()) };
    let argument = ["terminated", "truncated", "bootstrap"][which];
    let expected = "terminated, truncated and bootstrap must be given together, or not at all";
    Err(Argument::Combination { argument, expected }.into())
}

impl TimeChoice {
    /// Errors unless every number is in its domain.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let must = |good: bool, name: &str, x: f64, expected: &str| {
            ensure!(good, "advantage.over_time.{name} is {x}: expected {expected}");
            Ok(())
        };
        let unit = |name, x| must((0.0..=1.0).contains(&x), name, x, "0 to 1");
        let positive = |name, x| must(x > 0.0, name, x, "a positive number");
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
            TimeChoice::SignedReturn { gamma, correct, wrong, offset, stop_at_mask } => {
                Ok(SignedReturn { gamma, correct, wrong, offset, stop_at_mask }.check()?)
            }
            TimeChoice::UiS1 { gamma, omega, .. } => {
                unit("gamma", gamma)?;
                must(
                    omega == 0.0 || (omega as f32).is_normal(),
                    "omega",
                    omega,
                    "0 or a number in the range of binary32",
                )
            }
        }
    }
}
