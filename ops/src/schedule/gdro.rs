//! The two GDRO schedules: weights of difficulty bins, and rollouts per bin.

use crate::Error;
use lockstep_schedule::gdro_prompt::PromptGdro;
use lockstep_schedule::gdro_rollout::RolloutGdro;

/// Computes the factor of the advantages of each bin, `[bins]`; formula and variants:
/// [`lockstep_schedule::gdro_prompt`]. Scores come from [`PromptGdro::observe`].
///
/// Errors: parameters out of their domain; lengths that disagree; a score that is not finite, or beyond 1e150
/// for a standard score (index).
///
/// ```
/// use lockstep_ops::schedule::{gdro_prompt::PromptGdro, prompt_gdro_weights};
/// let gdro = PromptGdro::default();
/// let mut scores = [None; 3];
/// gdro.observe(&mut scores, &[4.0, 1.0, 0.0], &[2, 2, 0])?; // sums of losses, prompts
/// let weights = prompt_gdro_weights(&gdro, &scores, &[2, 2, 0])?;
/// assert!((weights[0] - 0.2f64.exp()).abs() < 1e-12 && weights[2] == 1.0);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn prompt_gdro_weights(
    gdro: &PromptGdro,
    scores: &[Option<f64>],
    count: &[u32],
) -> Result<Vec<f64>, Error> {
    let mut out = vec![0.0; scores.len()];
    gdro.weights(scores, count, &mut out)?;
    Ok(out)
}

/// Computes the distribution q over the bins that have prompts, `[bins]`; formula:
/// [`lockstep_schedule::gdro_prompt`].
///
/// Errors: parameters out of their domain; lengths that disagree; a score that is not finite, or beyond 1e150
/// for a standard score (index).
///
/// ```
/// use lockstep_ops::schedule::{gdro_prompt::PromptGdro, prompt_gdro_distribution};
/// let q = prompt_gdro_distribution(&PromptGdro::default(), &[Some(1.0), Some(1.0), None], &[5, 1, 0])?;
/// assert_eq!(q, [0.5, 0.5, 0.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn prompt_gdro_distribution(
    gdro: &PromptGdro,
    scores: &[Option<f64>],
    count: &[u32],
) -> Result<Vec<f64>, Error> {
    let mut out = vec![0.0; scores.len()];
    gdro.distribution(scores, count, &mut out)?;
    Ok(out)
}

/// Rollouts per prompt of each bin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollouts {
    /// Rollouts per prompt of each bin, `[bins]`.
    pub per_prompt: Vec<u32>,
    /// Σ count·n: the budget if it can be met exactly.
    pub total: u64,
}

/// Chooses the most likely arms whose cost is exactly `budget`, or nearest to it; formula:
/// [`lockstep_schedule::gdro_rollout`]. `scores` is `[bins, arms]`, and `count` is the number of
/// prompts per bin. It needs memory for bins · Σ count·n_max numbers.
///
/// Errors: parameters out of their domain; lengths that disagree; a score that is not finite (index); more
/// than 2²⁴ rollouts if every prompt had n_max.
///
/// ```
/// use lockstep_ops::schedule::{gdro_rollout::{Nearest, RolloutGdro, UtilitySign}, rollout_gdro_choose};
/// let gdro = RolloutGdro {
///     least: 2, most: 6, among: &[], // all from 2 to 6
///     rate: 0.1, exploration: 0.1, price_rate: 0.01, target: 4.0,
///     utility_sign: UtilitySign::Paper, nearest: Nearest::Smaller,
/// };
/// let count = [10, 5, 1];
/// let chosen = rollout_gdro_choose(&gdro, &[0.0; 15], &count, 4 * 16)?;
/// assert_eq!(chosen.total, 64);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn rollout_gdro_choose(
    gdro: &RolloutGdro<'_>,
    scores: &[f64],
    count: &[u32],
    budget: u64,
) -> Result<Rollouts, Error> {
    let need = gdro.scratch(count)?;
    let (mut values, mut arms) = (vec![0.0; need.values], vec![0; need.arms]);
    let mut per_prompt = vec![0; count.len()];
    let total = gdro.choose(scores, count, budget, &mut values, &mut arms, &mut per_prompt)?;
    Ok(Rollouts { per_prompt, total })
}
