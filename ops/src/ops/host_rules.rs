//! Rules that run on the host: policy filtration, robust baselines, weights of responses, returns by the sign
//! of the outcome, limits.

use super::locate;
use crate::{Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::filtration::{Filtration, filtrate};
use lockstep_core::advantage::robust_baseline::{Robust, baseline};
use lockstep_core::advantage::signed_return::SignedReturn;
use lockstep_core::reward::sample_weights::SampleWeights;

/// PF-PPO: the weight of each sequence, `[S]`, by the rewards of its group; formula:
/// [`lockstep_core::advantage::filtration`]. Times the group's size, it is a weight of a policy loss.
///
/// Errors: lengths that disagree; an infinite reward, a power that overflows (index).
///
/// ```
/// use lockstep_ops::{Batch, core::advantage::filtration::Filtration, ops::filtration};
/// let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 3, 4], None)?;
/// let weights = filtration(&batch, &[0.5, 1.0, -1.0, 0.0], Filtration::BestWorst {})?;
/// assert_eq!(weights, [0.0, 0.5, 0.5, 1.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
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

/// The baseline of each group, `[G]`, to be given to [`group_advantage`](super::group_advantage): VCPO's
/// alternatives to its minimum-variance baseline; formula: [`lockstep_core::advantage::robust_baseline`]. NaN
/// where a group has no weight.
///
/// Errors: lengths that disagree; an infinite reward, a weight that is negative or not finite (index); a
/// share outside 0..0.5.
///
/// ```
/// use lockstep_ops::{Batch, core::advantage::robust_baseline::Robust, ops::robust_baselines};
/// let batch = Batch::new(&[0, 1, 2, 3], &[0, 3], None)?;
/// assert_eq!(robust_baselines(&batch, &[1.0, 0.0, 1.0], &[4.0, 4.0, 2.25], Robust::Median)?, [1.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn robust_baselines(
    batch: &Batch<'_>,
    rewards: &[f32],
    weights: &[f32],
    rule: Robust,
) -> Result<Vec<f32>, Error> {
    batch.check_sequences("rewards", rewards.len())?;
    batch.check_sequences("weights", weights.len())?;
    let mut order = vec![0; rewards.len()];
    let of_group = |group: usize| {
        let span = batch.cu_groups().span(group);
        let members = span.start..span.end;
        let order = &mut order[members.clone()];
        let value = baseline(rule, &rewards[members.clone()], &weights[members], order)
            .map_err(|error| moved(error, span.start))?;
        Ok(value as f32)
    };
    (0..batch.groups()).map(of_group).collect()
}

/// How much each response counts in the policy loss, `[S]`, by its live tokens and the `difficulty` `[S]` of
/// its prompt (ROLL); formula: [`lockstep_core::reward::sample_weights`]. Their mean is 1.
///
/// Errors: lengths that disagree; a difficulty that is not finite (index); parameters outside their domain;
/// no difficulty where one is wanted.
///
/// ```
/// use lockstep_ops::{Batch, Device, core::reward::sample_weights::SampleWeights, ops::sample_weights};
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
        let (argument, expected) = ("difficulty", "needed where weights follow it");
        return Err(Argument::Combination { argument, expected }.into());
    }
    let mut weights = vec![0.0; batch.sequences()];
    rule.weigh(&batch.lengths(device)?, difficulty.unwrap_or_default(), &mut weights)?;
    Ok(weights)
}

/// Advantages and returns per token, `[N]` each, of the `rewards` `[S]` that come with the last live tokens:
/// PSR, NSR and W-REINFORCE with a discount; formula: [`lockstep_core::advantage::signed_return`].
///
/// Errors: lengths that disagree; an infinite reward (index); parameters outside their domain; a result too
/// large for `f32` (index).
///
/// ```
/// use lockstep_ops::{Batch, core::advantage::signed_return::SignedReturn, ops::signed_return};
/// let batch = Batch::new(&[0, 2, 3], &[0, 2], None)?;
/// let rule = SignedReturn { gamma: 0.5, correct: 1.0, wrong: -1.0, offset: 0.0, stop_at_mask: false };
/// let (advantage, returns) = signed_return(&batch, &[1.0, 0.0], &rule)?;
/// assert_eq!((&advantage[..], &returns[..]), (&[0.5, 1.0, -1.0][..], &[0.5, 1.0, 0.0][..]));
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
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
        rule.row(*reward, live, &mut advantage[tokens.clone()], &mut returns[tokens]);
    }
    locate::finite("advantage", &advantage, "the rewards are too large for f32")?;
    Ok((advantage, returns))
}

/// An error of a group as one of the batch.
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

/// Holds advantages or rewards within `low..=high`, in place, after whatever normalised them (ROLL's
/// `advantage_clip`, MARS's `asym_clip`).
///
/// Errors: bounds that are NaN or out of order.
///
/// ```
/// let mut advantage = [-2.0, 0.25];
/// lockstep_ops::ops::limit(&mut advantage, [-0.5, 0.5])?;
/// assert_eq!(advantage, [-0.5, 0.25]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn limit(values: &mut [f32], [low, high]: [f32; 2]) -> Result<(), Error> {
    if low.is_nan() || high.is_nan() || low > high {
        let (argument, expected) = ("limit", "a lower bound that is at most the upper one");
        return Err(Argument::Value { argument, index: None, expected, got: low.into() }.into());
    }
    values.iter_mut().for_each(|a| *a = a.clamp(low, high));
    Ok(())
}
