//! The KL stage of a recipe: the term of the loss, and the penalty of the rewards.

use super::{KlChoice, KlEstimator, KlPlace, Recipe};
use crate::ops::kl_importance::kl_in_reward;
use crate::ops::policy_loss::{PolicyOutput, add_kl};
use crate::{Batch, Counts, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::gate::remix::kl_convex_lambda;
use lockstep_core::kl::{Estimator, Kl};

impl Recipe {
    /// The KL estimator and its coefficient, if the loss has a KL term.
    pub fn kl_term(&self) -> Option<(Kl, f32)> {
        self.kl.filter(|kl| kl.place == KlPlace::Loss).map(|kl| (kl.kl(), kl.coef))
    }

    /// Adds ReMix's KL-convex term β·(λ·KL(π ‖ base) + (1 − λ)·KL(π ‖ previous)) to a loss and its coefficients, where `kl.place` is `convex`; λ of the
    /// training step is [`kl_convex_lambda`]. Log-probabilities `[N]` of the current, the base and the previous policy; `counts` are those of the
    /// *whole* batch when this is a part of it. Returns the term.
    ///
    /// Errors: a recipe with another KL term, or none; see [`add_kl`].
    ///
    /// ```
    /// use lockstep::{Advantage, Batch, Device, PolicyInput, Recipe};
    /// let (device, recipe) = (Device::cpu(), Recipe::named("remix_full")?);
    /// let batch = Batch::new(&[0, 1], &[0, 1], None)?;
    /// let (logp, base, previous) = ([-1.0], [-1.5], [-0.75]);
    /// let mut out = recipe.policy_loss(&device, &batch, &PolicyInput::new(&logp, &logp, Advantage::PerSequence(&[0.0])))?;
    /// // Step 0: the base policy alone. x = 0.5, whose k2 is 0.125 with gradient 0.5.
    /// let term = recipe.add_kl_convex(&device, &batch, [&logp, &base, &previous], 0, None, &mut out)?;
    /// assert!((term - 0.01 * 0.125).abs() < 1e-9 && (out.coef[0] - 0.01 * 0.5).abs() < 1e-9);
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn add_kl_convex(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        [logp, base, previous]: [&[f32]; 3],
        step: u64,
        counts: Option<Counts>,
        out: &mut PolicyOutput,
    ) -> Result<f64, Error> {
        self.check()?;
        let Some(choice) = self.kl.filter(|kl| kl.place == KlPlace::Convex) else {
            let expected = "given, but the recipe has no [kl] with place convex";
            return Err(Argument::Combination { argument: "previous", expected }.into());
        };
        let counts = match counts {
            Some(counts) => counts,
            None => batch.counts(device)?,
        };
        let weight = self.aggregation.weight_in(batch, counts);
        let lambda = kl_convex_lambda(step);
        let mut total = 0.0;
        for (reference, share) in [(base, lambda), (previous, 1.0 - lambda)] {
            let coef = (f64::from(choice.coef) * share) as f32;
            total += add_kl(device, batch, [logp, reference], (choice.kl(), coef), weight, out)?;
        }
        Ok(total)
    }

    /// Token rewards `[N]` less the recipe's KL penalty of the policy that sampled, where `kl.place` is `reward`.
    ///
    /// Errors: a recipe whose KL term is in the loss, or that has none; see [`kl_in_reward`].
    ///
    /// ```
    /// use lockstep::{Batch, Device, Recipe};
    /// let toml = "[advantage]\nestimator = \"reinforce_plus_plus\"\n[kl]\nestimator = \"k1\"\ncoef = 0.5\nplace = \"reward\"\n";
    /// let (device, recipe) = (Device::cpu(), Recipe::from_toml(toml)?);
    /// let batch = Batch::new(&[0, 2], &[0, 1], None)?;
    /// let rewards = recipe.penalised_rewards(&device, &batch, &[0.0, 1.0], &[-1.0, -1.0], &[-1.5, -0.5])?;
    /// assert_eq!(rewards, [-0.25, 1.25]);
    /// assert_eq!(recipe.token_advantages(&device, &batch, &rewards)?.returns, [1.0, 1.25]);
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn penalised_rewards(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        token_rewards: &[f32],
        logp_old: &[f32],
        logp_ref: &[f32],
    ) -> Result<Vec<f32>, Error> {
        self.check()?;
        let Some(choice) = self.kl.filter(|kl| kl.place == KlPlace::Reward) else {
            let expected = "given, but the recipe has no [kl] with place reward";
            return Err(Argument::Combination { argument: "logp_ref", expected }.into());
        };
        kl_in_reward(device, batch, token_rewards, logp_old, logp_ref, &choice.kl(), choice.coef)
    }
}

impl KlChoice {
    /// The estimator with its guards.
    fn kl(&self) -> Kl {
        let (estimator, guarded) = match self.estimator {
            KlEstimator::K1 => (Estimator::K1, false),
            KlEstimator::Abs => (Estimator::Abs, false),
            KlEstimator::K2 => (Estimator::K2, false),
            KlEstimator::K3 => (Estimator::K3, false),
            KlEstimator::LowVarKl => (Estimator::K3, true),
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
