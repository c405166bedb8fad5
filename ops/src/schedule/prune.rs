//! What is kept of a group: ARRoL-style pruning, RoRecomp-style batches (both our reading).

use crate::Error;
use lockstep_core::schedule::arrol::Arrol;
use lockstep_core::schedule::rorecomp;

/// Who is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pruned {
    /// Per rollout.
    pub kept: Vec<bool>,
    /// Mean probability of success of those kept.
    pub mean: f64,
}

/// The rollouts whose expected correct fraction is nearest to the target; formula:
/// [`lockstep_core::schedule::arrol`].
///
/// Errors: parameters; a probability outside 0..=1 (index).
///
/// ```
/// use lockstep_ops::schedule::{arrol::Arrol, arrol_two_ended};
/// let rule = Arrol { keep: 2, ..Arrol::default() };
/// assert_eq!(arrol_two_ended(&rule, &[0.9, 0.3, 0.1, 0.8])?.kept, [true, false, true, false]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn arrol_two_ended(rule: &Arrol, success: &[f64]) -> Result<Pruned, Error> {
    let (mut order, mut kept) = (vec![0; success.len()], vec![false; success.len()]);
    let mean = rule.two_ended(success, &mut order, &mut kept)?;
    Ok(Pruned { kept, mean })
}

/// Who is kept by chance, and what their results count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// Per rollout.
    pub kept: Vec<bool>,
    /// 1/π of those kept, 0 of the others.
    pub weight: Vec<f64>,
}

/// The stochastic variant with inverse-probability weights; formula: [`lockstep_core::schedule::arrol`].
/// `group` names the group in the step.
///
/// Errors: parameters; a probability outside 0..=1 (index).
///
/// ```
/// use lockstep_ops::schedule::{arrol::Arrol, arrol_sampled};
/// let rule = Arrol { keep: 3, ..Arrol::default() };
/// let out = arrol_sampled(&rule, &[0.5, 0.4, 0.1, 0.9, 0.6, 0.0], 42, 0, 0)?;
/// assert_eq!(out.kept.iter().filter(|kept| **kept).count(), 3);
/// assert!(out.weight.iter().zip(&out.kept).all(|(w, kept)| if *kept { *w >= 1.0 } else { *w == 0.0 }));
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn arrol_sampled(
    rule: &Arrol,
    success: &[f64],
    seed: u64,
    step: u32,
    group: u32,
) -> Result<Sampled, Error> {
    let (mut weight, mut kept) = (vec![0.0; success.len()], vec![false; success.len()]);
    rule.inclusion(success, &mut weight)?;
    Arrol::draw(&weight, seed, step, group, &mut kept)?;
    for (weight, kept) in weight.iter_mut().zip(&kept) {
        *weight = if *kept { 1.0 / *weight } else { 0.0 };
    }
    Ok(Sampled { kept, weight })
}

/// Which rollouts of a group go into the priority batch; formula: [`lockstep_core::schedule::rorecomp`].
///
/// Errors: lengths; an alpha outside 0..=1.
///
/// ```
/// let priority = lockstep_ops::schedule::rorecomp_split(&[10, 40, 5, 80], &[true, true, false, false], 0.5)?;
/// assert_eq!(priority, [true, false, false, true]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn rorecomp_split(length: &[u32], correct: &[bool], alpha: f64) -> Result<Vec<bool>, Error> {
    let (mut order, mut priority) = (vec![0; length.len()], vec![false; length.len()]);
    rorecomp::split(length, correct, alpha, &mut order, &mut priority)?;
    Ok(priority)
}
