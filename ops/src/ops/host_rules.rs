//! Rules of groups that run on the host: policy filtration and robust baselines.

use crate::{Batch, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::filtration::{Filtration, filtrate};
use lockstep_core::advantage::robust_baseline::{Robust, baseline};

/// PF-PPO: the weight of each sequence, `[S]`, by the rewards of its group; formula: [`lockstep_core::advantage::filtration`]. Times the group's
/// size, it is a weight of a policy loss.
///
/// Errors: lengths that disagree; an infinite reward, a power that overflows (index).
///
/// ```
/// use lockstep_ops::{Batch, core::advantage::filtration::Filtration, ops::filtration};
/// let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 3, 4], None)?;
/// let weights = filtration(&batch, &[0.5, 1.0, -1.0, 0.0], Filtration::BestWorst)?;
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

/// The baseline of each group, `[G]`, to be given to [`group_advantage`](super::group_advantage): VCPO's alternatives to its minimum-variance
/// baseline; formula: [`lockstep_core::advantage::robust_baseline`]. NaN where a group has no weight.
///
/// Errors: lengths that disagree; an infinite reward, a weight that is negative or not finite (index); a share outside 0..0.5.
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

/// Holds advantages or rewards within `low..=high`, in place, after whatever normalised them (ROLL's `advantage_clip`, MARS's
/// `asym_clip`).
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
