//! The RL maths of the trainer. All of it is calls of crate `lockstep`; nothing is computed here.

use std::path::Path;

use anyhow::{Context, Result, bail};
use lockstep::ops::correction::{Correction, mean_abs_log_ratio};
use lockstep::ops::tree::{Outcomes, Tempo};
use lockstep::recipe::Estimator;
use lockstep::{
    Advantage, Advantages, Device, Metrics, Outputs, PolicyInput, PolicyOutput, RatioStats, Recipe, ops,
};

use crate::rollouts::Rollouts;

/// A recipe and the device that it runs on.
pub struct Algorithm {
    device: Device,
    recipe: Recipe,
}

/// Everything that a policy loss comes to.
pub struct Loss {
    /// dL/dlogp, `[N]`.
    pub coef: Vec<f32>,
    /// Loss per token, `[N]`.
    pub token_loss: Vec<f32>,
    /// The loss.
    pub loss: f64,
    /// Statistics of ratios and gates.
    pub metrics: Metrics,
}

/// The TOML of a recipe, every choice written out, given the name of one or of a file that holds one.
pub fn recipe_toml(name_or_file: &str) -> Result<String> {
    let path = Path::new(name_or_file);
    let is_file = path.extension().is_some() || path.components().count() > 1 || path.is_file();
    let recipe = if is_file {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read recipe {name_or_file}"))?;
        Recipe::from_toml(&text).with_context(|| name_or_file.to_owned())?
    } else {
        Recipe::named(name_or_file)?
    };
    Ok(recipe.to_toml()?)
}

impl Algorithm {
    /// The algorithm of a recipe in TOML, on a device by name: `cpu`, `cuda:1`, ….
    pub fn new(recipe: &str, device: &str) -> Result<Self> {
        let recipe = Recipe::from_toml(recipe)?;
        if recipe.kl.is_some() && recipe.kl_term().is_none() {
            bail!(
                "kl.place reward needs rewards of tokens and convex a previous policy, which are not here: use place loss"
            );
        }
        Ok(Self { device: Device::open(device)?, recipe })
    }

    /// The device, for a log.
    pub fn device(&self) -> String {
        self.device.describe()
    }

    /// Whether the recipe takes groups of this size, found out by asking, before a run has cost anything.
    pub fn check_groups_of(&self, size: usize) -> Result<()> {
        let offsets: Vec<u32> = (0..=size as u32).collect();
        let flat = vec![-1.0; size];
        let rollouts = Rollouts {
            cu_seqlens: offsets,
            cu_groups: vec![0, size as u32],
            rewards: vec![0.0; size],
            logp: flat.clone(),
            logp_old: flat.clone(),
            logp_ref: Some(flat.clone()),
            logp_rollout: Some(flat),
            ..Rollouts::default()
        };
        let asked = || self.policy_loss(&rollouts, &self.advantages(&rollouts)?.advantage);
        asked().map(drop).with_context(|| format!("the recipe refuses groups of {size}"))
    }

    /// Advantages of every sequence from the rewards of its group; what rollout correction rejected whole has none.
    pub fn advantages(&self, rollouts: &Rollouts) -> Result<Advantages> {
        let correction = self.correction(rollouts)?;
        let kept = correction.as_ref().map(|correction| &correction.kept[..]);
        Ok(self.recipe.advantages_of(&self.device, &rollouts.batch()?, &rollouts.rewards, kept)?)
    }

    /// The recipe's rollout correction, if it has one.
    pub fn correction(&self, rollouts: &Rollouts) -> Result<Option<Correction>> {
        if self.recipe.correction.is_none() {
            return Ok(None);
        }
        let rollout = rollouts.logp_rollout.as_ref();
        let rollout = rollout.context("the recipe has a [correction]: the rollouts need logp_rollout")?;
        Ok(Some(self.recipe.correct(&self.device, &rollouts.batch()?, &rollouts.logp_old, rollout)?))
    }

    /// Advantages of tokens, if that is what the recipe computes: `tempo`, which needs token ids.
    pub fn token_advantages(&self, rollouts: &Rollouts) -> Result<Option<Tempo>> {
        if !self.takes_tokens() {
            return Ok(None);
        }
        let tokens =
            rollouts.tokens.as_deref().context("the recipe needs token ids: tensor 'tokens' is missing")?;
        let outcomes = Outcomes::new(&rollouts.rewards);
        Ok(Some(self.recipe.tree_advantages(&self.device, &rollouts.batch()?, tokens.into(), &outcomes)?))
    }

    fn takes_tokens(&self) -> bool {
        self.recipe.advantage.estimator == Estimator::Tempo
    }

    /// dL/dlogp of every token, and nothing else.
    pub fn coefficients(&self, rollouts: &Rollouts, advantage: &[f32]) -> Result<Vec<f32>> {
        Ok(self.run(rollouts, advantage, Outputs::COEF)?.coef)
    }

    /// dL/dlogp, the loss of every token, the loss, and the metrics.
    pub fn policy_loss(&self, rollouts: &Rollouts, advantage: &[f32]) -> Result<Loss> {
        let out = self.run(rollouts, advantage, Outputs::ALL)?;
        let (loss, metrics) =
            out.loss.zip(out.metrics).context("the loss was asked for, but not computed")?;
        Ok(Loss { coef: out.coef, token_loss: out.token_loss, loss, metrics })
    }

    fn run(&self, rollouts: &Rollouts, advantage: &[f32], outputs: Outputs) -> Result<PolicyOutput> {
        let advantage = match self.takes_tokens() {
            true => Advantage::PerToken(advantage),
            false => Advantage::PerSequence(advantage),
        };
        let mut input = PolicyInput::new(&rollouts.logp, &rollouts.logp_old, advantage);
        input.outputs = outputs;
        // A recipe without a KL term refuses a reference.
        input.logp_ref = self.recipe.kl_term().and(rollouts.logp_ref.as_deref());
        let (batch, correction) = (rollouts.batch()?, self.correction(rollouts)?);
        let Some(correction) = &correction else {
            return Ok(self.recipe.policy_loss(&self.device, &batch, &input)?);
        };
        input.weights = Some(&correction.weights);
        Ok(self.recipe.policy_loss(&self.device, &correction.batch(&batch)?, &input)?)
    }

    /// How far the policy that sampled is from the same policy as the trainer computes it.
    pub fn mismatch(&self, rollouts: &Rollouts) -> Result<Option<RatioStats>> {
        let Some(rollout) = &rollouts.logp_rollout else { return Ok(None) };
        Ok(Some(ops::mismatch(&self.device, &rollouts.batch()?, rollout, &rollouts.logp_old)?))
    }

    /// Mean |log-probability of the rollout − in the trainer|: of the old policy, and in the update.
    pub fn gaps(&self, rollouts: &Rollouts) -> Result<[f64; 2]> {
        let rollout = rollouts.logp_rollout.as_ref().context("the rollouts have no logp_rollout")?;
        let batch = rollouts.batch()?;
        let gap = |logp: &[f32]| mean_abs_log_ratio(&batch, logp, rollout);
        Ok([gap(&rollouts.logp_old)?, gap(&rollouts.logp)?])
    }

    /// How far the policy is from the reference: statistics of reference against policy, whose `kl_k3` estimates
    /// KL(policy ‖ reference).
    pub fn drift(&self, rollouts: &Rollouts) -> Result<Option<RatioStats>> {
        let Some(reference) = &rollouts.logp_ref else { return Ok(None) };
        Ok(Some(ops::mismatch(&self.device, &rollouts.batch()?, &rollouts.logp_old, reference)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_is_never_ignored() {
        let recipe = Recipe::named("verl_tis_token").unwrap().to_toml().unwrap();
        let algorithm = Algorithm::new(&recipe, "cpu").unwrap();
        let mut rollouts = Rollouts {
            cu_seqlens: vec![0, 1, 2],
            cu_groups: vec![0, 2],
            rewards: vec![1.0, 0.0],
            logp: vec![-1.0, -1.0],
            logp_old: vec![-1.0, -1.0],
            ..Rollouts::default()
        };
        let error = algorithm.advantages(&rollouts).unwrap_err().to_string();
        assert!(error.contains("need logp_rollout"), "{error}");
        rollouts.logp_rollout = Some(vec![-1.0, -3.0]);
        let advantage = algorithm.advantages(&rollouts).unwrap().advantage;
        let coef = algorithm.coefficients(&rollouts, &advantage).unwrap();
        assert_eq!(coef[1], -2.0 * coef[0], "truncated at 2");
        assert!(algorithm.check_groups_of(4).is_ok());
    }
}
