//! Analytic pass@k advantages.

use super::reward::check_scores;
use crate::{Batch, Device, Error};
use lockstep_core::advantage::PassAtK;
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::require;

/// The advantages, and the estimate of pass@k that they are based on.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PassAtKOutput {
    /// Advantage per sequence, `[S]`; 0 for excluded sequences.
    pub advantage: Vec<f32>,
    /// Unbiased estimate of pass@k per group, `[G]`.
    pub pass_at_k: Vec<f32>,
    /// Counted members per group, `[G]`.
    pub counted: Vec<u32>,
}

/// Computes advantages `[S]` for the objective pass@k: that at least one of `k` attempts is correct. A reward
/// in `rewards` `[S]` is correct if it is above `threshold`; `eps` is added to the deviation that advantages
/// are divided by; formula: [`lockstep_core::advantage::pass_at_k`]. Sequences with a NaN reward or a 0 in
/// `valid` `[S]` are excluded.
///
/// Errors: lengths that disagree; a `k` of 0, or an `eps` below 0; a group with sequences, of which
/// fewer than `k` are counted (group).
///
/// ```
/// use lockstep_ops::{Batch, Device, ops::pass_at_k};
/// let batch = Batch::new(&[0, 1, 2, 3, 4, 5, 6, 7, 8], &[0, 8], None)?;
/// let rewards = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
/// let out = pass_at_k(&Device::cpu(), &batch, &rewards, None, 4, 0.5, 0.0)?;
/// assert!((out.pass_at_k[0] - 0.785714).abs() < 1e-6 && (out.advantage[0] - 0.522233).abs() < 1e-6);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "pass@k")]
pub fn pass_at_k(
    device: &Device,
    batch: &Batch<'_>,
    rewards: &[f32],
    valid: Option<&[u8]>,
    k: u32,
    threshold: f32,
    eps: f64,
) -> Result<PassAtKOutput, Error> {
    check_scores(batch, "rewards", rewards, valid)?;
    let mut out = PassAtKOutput {
        advantage: vec![0.0; batch.sequences()],
        pass_at_k: vec![0.0; batch.groups()],
        counted: vec![0; batch.groups()],
    };
    let mut too_few = vec![0; batch.groups()];
    device.run(&PassAtK {
        cu_groups: batch.cu_groups(),
        rewards: In::new(rewards),
        valid: Mask::new(valid),
        k,
        threshold,
        eps,
        advantage: Out::new(&mut out.advantage),
        pass_at_k: Out::new(&mut out.pass_at_k),
        counted: Out::new(&mut out.counted),
        too_few: Out::new(&mut too_few),
    })?;
    if let Some(group) = too_few.iter().position(|few| *few != 0) {
        let (argument, expected) = ("cu_groups", "a group with at least k counted sequences");
        return Err(require::value(argument, Some(group), expected, out.counted[group]).into());
    }
    Ok(out)
}
