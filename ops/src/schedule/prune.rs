//! Selection within a group: ARRoL-style pruning and RoRecomp-style batches (both our reading).

use crate::Error;
use lockstep_schedule::arrol::Arrol;
use lockstep_schedule::rorecomp;

/// The rollouts kept by [`arrol_two_ended`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pruned {
    /// Whether each rollout is kept.
    pub kept: Vec<bool>,
    /// Mean success probability of the kept rollouts.
    pub mean: f64,
}

/// Keeps the rollouts whose expected fraction of correct ones is nearest to the target, given the probability
/// of `success` of each; formula: [`lockstep_schedule::arrol`].
///
/// Errors: parameters out of their domain; a probability outside 0..=1 (index).
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

/// The rollouts kept by [`arrol_sampled`], and their weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// Whether each rollout is kept.
    pub kept: Vec<bool>,
    /// Weight of each rollout: 1/π if it is kept, where π is its inclusion probability, and 0 otherwise.
    pub weight: Vec<f64>,
}

/// Keeps rollouts at random, with inverse-probability weights; formula: [`lockstep_schedule::arrol`].
/// `group` is the number of the group within the step.
///
/// Errors: parameters out of their domain; a probability outside 0..=1 (index).
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

/// Selects the rollouts of a group that go into the priority batch; formula:
/// [`lockstep_schedule::rorecomp`].
///
/// Errors: lengths that disagree; an alpha outside 0..=1.
///
/// ```
/// use lockstep_ops::schedule::rorecomp_split;
/// let priority = rorecomp_split(&[10, 40, 5, 80], &[true, true, false, false], 0.5)?;
/// assert_eq!(priority, [true, false, false, true]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn rorecomp_split(length: &[u32], correct: &[bool], alpha: f64) -> Result<Vec<bool>, Error> {
    let (mut order, mut priority) = (vec![0; length.len()], vec![false; length.len()]);
    rorecomp::split(length, correct, alpha, &mut order, &mut priority)?;
    Ok(priority)
}
