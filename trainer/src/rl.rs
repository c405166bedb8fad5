//! The trainer's RL maths: only calls into crate `lockstep`; nothing is computed here.

use std::path::Path;

use anyhow::{Context, Result};
use lockstep::core::correction::WeightLevel;
use lockstep::core::logits::kl::Direction;
use lockstep::core::ratio::LrRule;
use lockstep::ops::correction::{CorrectionParams, mean_abs_log_ratio, rollout_correction};
use lockstep::ops::logits::{TwoRows, logits_kl};
use lockstep::ops::optimal_token_baseline::Score;
use lockstep::ops::staleness::Staleness;
use lockstep::ops::vcpo::{SequenceScore, VcpoWeights, vcpo_weights};
use lockstep::recipe::Duty;
use lockstep::{
    Batch, Call, Column, Columns, Credit, Device, Loss, Outputs, RatioStats, Recipe, RolloutsBuf, ops,
};

use crate::files::read_text;

/// A recipe and the device it runs on.
pub struct Algorithm {
    device: Device,
    recipe: Recipe,
    duties: Vec<Duty>,
}

/// The cap on a sequence's importance weight in the effective sample size and in VCPO's baseline, as in
/// `vcpo_full`.
const LARGEST_WEIGHT: f32 = 8.0;

/// Loads a recipe by name or from a file.
pub fn recipe(name_or_file: &str) -> Result<Recipe> {
    let path = Path::new(name_or_file);
    let is_file = path.extension().is_some() || path.components().count() > 1 || path.is_file();
    // A file beside a recipe of the same name is `./NAME`.
    if !is_file || lockstep::recipe::names().contains(&name_or_file) {
        return Ok(Recipe::named(name_or_file)?);
    }
    let text = read_text(path).with_context(|| format!("cannot read recipe {name_or_file}"))?;
    Recipe::from_toml(&text).with_context(|| name_or_file.to_owned())
}

/// A recipe to train with, in which `choices` (TOML) replace its own. Where it asks for a critic and leaves
/// its loss open (`gae`, `vapo`, `vtrace`), that is the value loss of `ppo_critic`.
pub fn to_train(mut recipe: Recipe, choices: Option<&str>) -> Result<Recipe> {
    if let Some(choices) = choices {
        let place = || format!("--choices '{choices}' with --recipe {}", recipe.name);
        recipe = recipe.with_toml(choices).with_context(place)?;
    }
    if recipe.duties().contains(&Duty::TrainCritic) && recipe.value.is_none() {
        recipe.value = Recipe::named("ppo_critic")?.value;
    }
    Ok(recipe)
}

impl Algorithm {
    /// Opens a recipe given in TOML on a device given by name: `cpu`, `cuda:1`, ….
    pub fn new(recipe: &str, device: &str) -> Result<Self> {
        let recipe = Recipe::from_toml(recipe)?;
        Ok(Self { device: Device::open(device)?, duties: recipe.duties(), recipe })
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Whether the recipe requires this duty of the loop.
    pub fn asks(&self, duty: Duty) -> bool {
        self.duties.contains(&duty)
    }

    /// The columns that one call reads, or both calls for `None`. Of two interchangeable columns, the first
    /// is listed.
    pub fn reads(&self, call: Option<Call>) -> Columns {
        let mut columns = Columns::NONE;
        let needs = self.recipe.needs();
        needs
            .iter()
            .filter(|need| call.is_none_or(|call| need.call == call))
            .for_each(|need| columns.insert(need.column));
        columns
    }

    /// Computes the advantages: the first call.
    pub fn advantages(&self, rollouts: &RolloutsBuf) -> Result<Credit> {
        Ok(self.recipe.advantages(&self.device, &rollouts.view())?)
    }

    /// Computes the loss with all of its outputs: the second call.
    pub fn loss(&self, rollouts: &RolloutsBuf, credit: &Credit) -> Result<Loss> {
        Ok(self.recipe.loss(&self.device, &rollouts.view(), credit)?)
    }

    /// Computes only the gradients of the second call: dL/dlogp, and dL/dentropy if there is an entropy term.
    pub fn gradients(&self, rollouts: &RolloutsBuf, credit: &Credit, out: &mut Loss) -> Result<()> {
        Ok(self.recipe.loss_into(&self.device, &rollouts.view(), credit, Outputs::COEF, out)?)
    }

    /// The unbiased estimate of pass@k, mean over groups of `group` rewards each.
    pub fn pass_at_k(&self, rewards: &[f32], group: usize, k: u32) -> Result<f64> {
        let tokens: Vec<u32> = (0..=rewards.len() as u32).collect();
        let groups: Vec<u32> = tokens.iter().copied().step_by(group).collect();
        let batch = Batch::new(&tokens, &groups, None)?;
        let each = ops::pass_at_k(&self.device, &batch, rewards, None, k, 0.5, 0.0)?.pass_at_k;
        Ok(each.iter().map(|pass| f64::from(*pass)).sum::<f64>() / each.len() as f64)
    }

    /// How far the sampling policy is from the same policy as the trainer computes it.
    pub fn mismatch(&self, rollouts: &RolloutsBuf, trainer: Option<&[f32]>) -> Result<Option<RatioStats>> {
        self.compare(rollouts, rollouts.logp_rollout.as_deref(), trainer)
    }

    /// How far the policy is from the reference: ratio statistics of reference against policy, whose `kl_k3`
    /// estimates KL(policy ‖ reference).
    pub fn drift(&self, rollouts: &RolloutsBuf) -> Result<Option<RatioStats>> {
        self.compare(rollouts, rollouts.logp_old.as_deref(), rollouts.logp_ref.as_deref())
    }

    fn compare(
        &self,
        rollouts: &RolloutsBuf,
        one: Option<&[f32]>,
        other: Option<&[f32]>,
    ) -> Result<Option<RatioStats>> {
        let Some((one, other)) = one.zip(other) else { return Ok(None) };
        Ok(Some(ops::mismatch(&self.device, &rollouts.batch()?, one, other)?))
    }

    /// Mean |log-probability in the rollout − in the trainer|, for the old policy and in the update.
    pub fn gaps(&self, rollouts: &RolloutsBuf) -> Result<[f64; 2]> {
        let batch = rollouts.batch()?;
        let rollout = column(&rollouts.logp_rollout, Column::logp_rollout)?;
        let gap = |logp: &[f32]| mean_abs_log_ratio(&batch, logp, rollout);
        Ok([gap(column(&rollouts.logp_old, Column::logp_old)?)?, gap(column(&rollouts.logp, Column::logp)?)?])
    }

    /// KL(old ‖ new) of each token over the whole vocabulary, from the logits of both policies, `[N, vocab]`:
    /// the column `divergence`.
    pub fn divergence(&self, old: &[f32], new: &[f32], vocab: usize) -> Result<Vec<f32>> {
        let rows = TwoRows { logits: new, reference: old, vocab, loss_mask: None };
        Ok(logits_kl(&self.device, &rows, Direction::Reference, 1.0, None)?.value)
    }

    /// The staleness of tokens that policies of these versions sampled, `[N]`, at version `current`.
    pub fn staleness(&self, rollouts: &RolloutsBuf, versions: &[i32], current: i32) -> Result<Staleness> {
        Ok(ops::staleness(&self.device, &rollouts.batch()?, versions, current, i32::MAX)?)
    }

    /// VCPO's learning-rate factor, from whole-sequence importance weights.
    pub fn rate_scale(&self, rollouts: &RolloutsBuf) -> Result<f64> {
        let batch = rollouts.batch()?;
        let params = CorrectionParams::truncate(WeightLevel::Sequence, LARGEST_WEIGHT);
        let old = column(&rollouts.logp_old, Column::logp_old)?;
        let rollout = column(&rollouts.logp_rollout, Column::logp_rollout)?;
        let weights = rollout_correction(&self.device, &batch, old, rollout, &params)?.weights;
        // Every token of a sequence has the sequence's weight.
        let starts = batch.cu_seqlens();
        let first: Vec<f32> = (0..batch.sequences()).map(|s| weights[starts.span(s).start]).collect();
        let sizes = ops::sequence_sample_sizes(&self.device, &batch, &first, None)?;
        Ok(sizes.lr_scale(1.0, LrRule::Sqrt)?)
    }

    /// VCPO's weight of each response in its group's baseline, from the score norms of its tokens.
    pub fn baseline_weights(&self, rollouts: &RolloutsBuf, score_norm: &[f32]) -> Result<Vec<f32>> {
        let old = column(&rollouts.logp_old, Column::logp_old)?;
        let rollout = column(&rollouts.logp_rollout, Column::logp_rollout)?;
        let score = SequenceScore::Tokens(Score::Norm(score_norm));
        let params = VcpoWeights { most: Some(LARGEST_WEIGHT.into()), ..VcpoWeights::default() };
        Ok(vcpo_weights(&self.device, &rollouts.batch()?, [old, rollout], score, &params)?)
    }
}

/// A column that must be present.
pub fn column<T>(values: &Option<Vec<T>>, column: Column) -> Result<&[T]> {
    values.as_deref().with_context(|| format!("the rollouts have no {}", column.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_replace_those_of_the_recipe() {
        let of = |name: &str| Recipe::named(name).unwrap();
        let chosen = |name: &str, choices: &str| to_train(of(name), Some(choices));
        let dapo = chosen("grpo", "gate.clip_ratio_c = 3.0\ngate.clip_ratio_high = 0.28").unwrap();
        assert_eq!(dapo.gate, of("dapo").gate);
        assert_eq!(dapo.aggregation, of("grpo").aggregation);
        assert_eq!(
            chosen("dapo", "gate = { kind = \"sapo\", tau_pos = 1.0, tau_neg = 1.05 }").unwrap().gate,
            of("sapo").gate
        );
        assert_eq!(chosen("vcpo_full", "correction = \"none\"").unwrap().correction, None);
        assert!(format!("{:#}", chosen("grpo", "gate.speed = 1").unwrap_err()).contains("speed"));
        assert!(format!("{:#}", chosen("grpo", "gate").unwrap_err()).contains("--choices 'gate'"));
    }

    /// 2 of 8 right: pass@4 is 1 − C(6, 4) / C(8, 4) = 11/14; a group with none right has 0.
    #[test]
    fn pass_at_k_is_unbiased() {
        let algorithm = Algorithm::new(&Recipe::named("grpo").unwrap().to_toml().unwrap(), "cpu").unwrap();
        let mut rewards = [0.0; 16];
        (rewards[1], rewards[6]) = (1.0, 1.0);
        let pass = |k| algorithm.pass_at_k(&rewards, 8, k).unwrap();
        assert!((pass(4) - 0.5 * 11.0 / 14.0).abs() < 1e-7);
        assert!((pass(1) - 0.125).abs() < 1e-7);
    }

    #[test]
    fn a_correction_is_never_ignored() {
        let recipe = Recipe::named("verl_tis_token").unwrap().to_toml().unwrap();
        let algorithm = Algorithm::new(&recipe, "cpu").unwrap();
        let mut rollouts = RolloutsBuf {
            cu_seqlens: Some(vec![0, 1, 2]),
            cu_groups: Some(vec![0, 2]),
            rewards: Some(vec![1.0, 0.0]),
            logp: Some(vec![-1.0, -1.0]),
            logp_old: Some(vec![-1.0, -1.0]),
            ..RolloutsBuf::default()
        };
        let error = algorithm.advantages(&rollouts).unwrap_err().to_string();
        assert!(error.contains("logp_rollout"), "{error}");
        rollouts.logp_rollout = Some(vec![-1.0, -3.0]);
        let credit = algorithm.advantages(&rollouts).unwrap();
        let mut loss = Loss::default();
        algorithm.gradients(&rollouts, &credit, &mut loss).unwrap();
        assert_eq!(loss.coef[1], -2.0 * loss.coef[0], "truncated at 2");
    }
}
