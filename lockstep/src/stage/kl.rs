//! The KL stage of a recipe: the term of the loss, ReMix's convex pair, and the penalty in the rewards.

use super::naming::{Naming, TOKEN_REWARDS};
use super::reward::needed;
use crate::ops::kl;
use crate::ops::kl_importance::kl_in_reward;
use crate::ops::policy_loss::{PolicyOutput, add_kl};
use crate::recipe::{KlChoice, KlEstimator, KlPlace, Recipe};
use crate::{Batch, Counts, Device, Error, Rollouts};
use lockstep_core::gate::remix::kl_convex_lambda;
use lockstep_core::kl::{Kl, KlFormula};
use lockstep_core::require;

impl Recipe {
    /// The KL estimator and its coefficient, if the loss has a KL term.
    pub(crate) fn kl_term(&self) -> Option<(Kl, f32)> {
        self.kl.filter(|kl| kl.place == KlPlace::Loss).map(|kl| (kl.kl(), kl.coef))
    }

    /// Adds ReMix's KL-convex term β·(λ·KL(π ‖ base) + (1 − λ)·KL(π ‖ previous)) if `kl.place` is `convex`; λ
    /// is [`kl_convex_lambda`] of the training step.
    pub(super) fn add_kl_convex(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        rollouts: &Rollouts<'_>,
        counts: Counts,
        out: &mut PolicyOutput,
    ) -> Result<(), Error> {
        let Some(choice) = self.kl.filter(|kl| kl.place == KlPlace::Convex) else { return Ok(()) };
        let steps = needed(rollouts.step, "step")?;
        require::length("step", 1, "the number of the training step", steps.len())?;
        let logp = needed(rollouts.logp, "logp")?;
        let base = needed(rollouts.logp_ref, "logp_ref")?;
        let previous = needed(rollouts.logp_previous, "logp_previous")?;
        let weight = self.aggregation.weight_in(batch, counts);
        let lambda = kl_convex_lambda(steps[0]);
        let terms = [("logp_ref", base, lambda), ("logp_previous", previous, 1.0 - lambda)];
        for (column, reference, share) in terms {
            let coef = (f64::from(choice.coef) * share) as f32;
            add_kl(device, batch, [logp, reference], (choice.kl(), coef), weight, out)
                .naming(&[("logp_ref", column)])?;
        }
        Ok(())
    }

    /// Token rewards minus the KL penalty of the policy that sampled, if `kl.place` is `reward`.
    pub(super) fn penalised_tokens(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        rollouts: &Rollouts<'_>,
    ) -> Result<Option<Vec<f32>>, Error> {
        let (Some(choice), Some(rewards)) = (self.kl_in_reward(), rollouts.token_rewards) else {
            return Ok(None);
        };
        let (old, reference) = policies(rollouts)?;
        kl_in_reward(device, batch, rewards, old, reference, &choice.kl(), choice.coef)
            .naming(&[TOKEN_REWARDS, ("logp", "logp_old")])
            .map(Some)
    }

    /// Sequence rewards minus the sum of that penalty over the live tokens.
    pub(super) fn penalised_sequences(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        rollouts: &Rollouts<'_>,
    ) -> Result<Option<Vec<f32>>, Error> {
        let (Some(choice), Some(rewards)) = (self.kl_in_reward(), rollouts.rewards) else {
            return Ok(None);
        };
        let (old, reference) = policies(rollouts)?;
        let sums = kl(device, batch, old, reference, &choice.kl()).naming(&[("logp", "logp_old")])?.row_sum;
        let less = |(r, k): (&f32, f64)| (f64::from(*r) - f64::from(choice.coef) * k) as f32;
        Ok(Some(rewards.iter().zip(sums).map(less).collect()))
    }

    fn kl_in_reward(&self) -> Option<KlChoice> {
        self.kl.filter(|kl| kl.place == KlPlace::Reward)
    }
}

/// The policy that sampled and the reference.
fn policies<'a>(rollouts: &Rollouts<'a>) -> Result<(&'a [f32], &'a [f32]), Error> {
    Ok((needed(rollouts.logp_old, "logp_old")?, needed(rollouts.logp_ref, "logp_ref")?))
}

impl KlChoice {
    /// The estimator with its clamps.
    fn kl(&self) -> Kl {
        let (estimator, guarded) = match self.estimator {
            KlEstimator::K1 => (KlFormula::K1, false),
            KlEstimator::Abs => (KlFormula::Abs, false),
            KlEstimator::K2 => (KlFormula::K2, false),
            KlEstimator::K3 => (KlFormula::K3, false),
            KlEstimator::LowVarKl => (KlFormula::K3, true),
        };
        let own = if guarded { Kl::guarded(estimator) } else { Kl::new(estimator) };
        Kl {
            clamp_in: self.clamp_in.unwrap_or(own.clamp_in),
            clamp_out: self.clamp_out.unwrap_or(own.clamp_out),
            straight_through: self.straight_through,
            ..own
        }
    }
}
