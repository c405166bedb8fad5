//! Rules that run on the host: policy filtration, robust baselines, response weights, returns by the sign of
//! the outcome, and limits.

use super::locate;
use crate::{Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::require;
use lockstep_schedule::filtration::{Filtration, filtrate};
use lockstep_schedule::robust_baseline::{Robust, baseline};
use lockstep_schedule::sample_weights::SampleWeights;
use lockstep_schedule::signed_return::SignedReturn;

/// Computes PF-PPO's weight of each sequence, `[S]`, from the `rewards` `[S]` of its group; formula:
/// [`lockstep_schedule::filtration`]. Multiply it by the group's size to use it as a weight of the policy
/// loss.
///
/// Errors: lengths that disagree; an infinite reward or a power that overflows (index).
///
/// ```
/// use lockstep_ops::{Batch, schedules::filtration::Filtration, ops::filtration};
/// let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 3, 4], None)?;
/// let weights = filtration(&batch, &[0.5, 1.0, -1.0, 0.0], Filtration::BestWorst {})?;
/// assert_eq!(weights, [0.0, 0.5, 0.5, 1.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "PF-PPO")]
pub fn filtration(batch: &Batch<'_>, rewards: &[f32], rule: Filtration) -> Result<Vec<f64>, Error> {
    batch.check_sequences("rewards", rewards.len())?;
    let mut weights = vec![0.0; rewards.len()];
    for group in 0..batch.groups() {
        let span = batch.cu_groups().span(group);
        let members = span.start..span.end;
        filtrate(rule, &rewards[members.clone()], &mut weights[members])
            .map_err(|error| moved(error, span.start))?;
    }
    Ok(weights)
}

/// Computes a robust baseline of each group, `[G]`, for the `given` of
/// [`group_advantage`](super::group_advantage): VCPO's alternatives to its minimum-variance baseline;
/// formula: [`lockstep_schedule::robust_baseline`]. NaN where a group's total weight is 0. `rewards`
/// and `weights` are `[S]`.
///
/// Errors: lengths that disagree; an infinite reward, or a weight that is negative or not finite (index); a
/// share outside 0..0.5.
///
/// ```
/// use lockstep_ops::{Batch, schedules::robust_baseline::Robust, ops::robust_baselines};
/// let batch = Batch::new(&[0, 1, 2, 3], &[0, 3], None)?;
/// assert_eq!(robust_baselines(&batch, &[1.0, 0.0, 1.0], &[4.0, 4.0, 2.25], Robust::Median)?, [1.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn robust_baselines(
    batch: &Batch<'_>,
    rewards: &[f32],
    weights: &[f32],
    rule: Robust,
) -> Result<Vec<f64>, Error> {
    batch.check_sequences("rewards", rewards.len())?;
    batch.check_sequences("weights", weights.len())?;
    let mut order = vec![0; rewards.len()];
    let of_group = |group: usize| {
        let span = batch.cu_groups().span(group);
        let members = span.start..span.end;
        let order = &mut order[members.clone()];
        baseline(rule, &rewards[members.clone()], &weights[members], order)
            .map_err(|error| moved(error, span.start).into())
    };
    (0..batch.groups()).map(of_group).collect()
}

/// Computes the weight of each response in the policy loss, `[S]`, from its number of live tokens and the
/// `difficulty` `[S]` of its prompt (ROLL); formula: [`lockstep_schedule::sample_weights`]. The mean
/// weight is 1.
///
/// Errors: lengths that disagree; a difficulty that is not finite (index); parameters out of their domain; a
/// missing `difficulty` that the rule needs.
///
/// ```
/// use lockstep_ops::{Batch, Device, schedules::sample_weights::SampleWeights, ops::sample_weights};
/// let batch = Batch::new(&[0, 1, 4], &[0, 2], None)?;
/// let by_length = SampleWeights { length: Some([1.5, 0.5]), difficulty: None };
/// let weights = sample_weights(&Device::cpu(), &batch, None, &by_length)?;
/// assert!((weights[0] - 1.5).abs() < 1e-6 && (weights[1] - 0.5).abs() < 1e-6);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn sample_weights(
    device: &Device,
    batch: &Batch<'_>,
    difficulty: Option<&[f32]>,
    rule: &SampleWeights,
) -> Result<Vec<f64>, Error> {
    if rule.difficulty.is_some() && difficulty.is_none() {
        let (argument, expected) = ("difficulty", "needed, because the weights depend on it");
        return Err(Argument::Combination { argument, expected }.into());
    }
    let mut weights = vec![0.0; batch.sequences()];
    rule.weigh(&batch.lengths(device)?, difficulty.unwrap_or_default(), &mut weights)?;
    Ok(weights)
}

/// Computes advantages and returns per token, `[N]` each, from the outcome `rewards` `[S]`, which are
/// received at the last live token: PSR, NSR and W-REINFORCE with a discount; formula:
/// [`lockstep_schedule::signed_return`].
///
/// Errors: lengths that disagree; an infinite reward (index); parameters out of their domain; a result too
/// large for `f32` (index).
///
/// ```
/// use lockstep_ops::{Batch, schedules::signed_return::SignedReturn, ops::signed_return};
/// let batch = Batch::new(&[0, 2, 3], &[0, 2], None)?;
/// let rule = SignedReturn { gamma: 0.5, correct: 1.0, wrong: -1.0, offset: 0.0, stop_at_mask: false };
/// let (advantage, returns) = signed_return(&batch, &[1.0, 0.0], &rule)?;
/// assert_eq!((&advantage[..], &returns[..]), (&[0.5, 1.0, -1.0][..], &[0.5, 1.0, 0.0][..]));
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias("PSR", "NSR", "W-REINFORCE"))]
pub fn signed_return(
    batch: &Batch<'_>,
    rewards: &[f32],
    rule: &SignedReturn,
) -> Result<(Vec<f32>, Vec<f32>), Error> {
    rule.check()?;
    batch.check_sequences("rewards", rewards.len())?;
    locate::each("rewards", rewards, "a finite number, or NaN for none", |_, r| !r.is_infinite())?;
    let (mut advantage, mut returns) = (vec![0.0; batch.tokens()], vec![0.0; batch.tokens()]);
    for (sequence, reward) in rewards.iter().enumerate() {
        let span = batch.cu_seqlens().span(sequence);
        let tokens = span.start..span.end;
        let live = |t: usize| batch.loss_mask().at(span.start + t);
        rule.row(*reward, live, &mut advantage[tokens.clone()], &mut returns[tokens])?;
    }
    locate::finite("advantage", &advantage, "the rewards are too large for f32")?;
    Ok((advantage, returns))
}

/// Converts an index within a group, in an error, to an index within the batch.
fn moved(error: Argument, first: usize) -> Argument {
    match error {
        Argument::Value { argument, index: Some(index), expected, got } => {
            Argument::Value { argument, index: Some(first + index), expected, got }
        }
        Argument::NotFinite { result, index, hint } => {
            Argument::NotFinite { result, index: first + index, hint }
        }
        error => error,
    }
}

/// Clamps advantages or rewards to `low..=high` in place, after any normalisation (ROLL's `advantage_clip`,
/// MARS's `asym_clip`).
///
/// Errors: bounds that are NaN or out of order.
///
/// ```
/// let mut advantage = [-2.0, 0.25];
/// lockstep_ops::ops::limit(&mut advantage, [-0.5, 0.5])?;
/// assert_eq!(advantage, [-0.5, 0.25]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "advantage clip")]
pub fn limit(values: &mut [f32], [low, high]: [f32; 2]) -> Result<(), Error> {
    require::scalar("lower limit", !low.is_nan(), "a number", low)?;
    require::scalar("upper limit", high >= low, "at least the lower limit", high)?;
    values.iter_mut().for_each(|a| *a = a.clamp(low, high));
    Ok(())
}
