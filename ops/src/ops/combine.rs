//! Combinations of several rewards per sequence.

use super::advantage::{Advantages, GroupParams, with_residual};
use super::locate;
use super::reward::not_infinite;
use super::whiten::{WhitenParams, whiten};
use crate::{Advantage, Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::Combine;
use lockstep_core::ragged::{In, Out};
use lockstep_core::require;

/// Computes the weighted sum Σ w_k x_k `[S]` of `components` `[K][S]` with `weights` `[K]`; formula:
/// [`lockstep_core::advantage::combine`]. NaN means "no score".
///
/// Errors: no weights; lengths that disagree; an infinite component or a weight that is not finite (index); a
/// sum that overflows (index).
pub fn combine(
    device: &Device,
    batch: &Batch<'_>,
    components: &[f32],
    weights: &[f32],
) -> Result<Vec<f32>, Error> {
    let sequences = batch.sequences();
    if weights.is_empty() {
        return Err(Argument::Empty { argument: "weights", expected: "one for each reward" }.into());
    }
    require::length(
        "components",
        weights.len() * sequences,
        "one per weight and sequence",
        components.len(),
    )?;
    locate::each_finite("weights", weights)?;
    locate::each("components", components, "a finite number, or NaN for none", |_, x| !x.is_infinite())?;
    let mut combined = vec![0.0; sequences];
    device.run(&Combine {
        cu_groups: batch.cu_groups(),
        components: In::new(components),
        weights: In::new(weights),
        combined: Out::new(&mut combined),
    })?;
    not_infinite("combined", combined, "the weighted sum is too large for f32")
}

/// Computes GDPO advantages `[S]` (2601.05242): each of the K rewards in `rewards` `[K][S]` is normalised
/// within its group by `group`, then they are combined with `weights` `[K]` and whitened over the batch by
/// `batch_step` ([`WhitenParams::VERL`] is token-weighted, [`WhitenParams::TRL`] is over sequences).
///
/// A NaN reward is excluded from its group's statistics and adds nothing; a sequence without any score is
/// excluded from the batch step too and has advantage 0. Errors: those of [`combine`], [`whiten`] and
/// [`group_advantage`](super::group_advantage), whose index runs over all K arrays.
///
/// ```
/// use lockstep_ops::ops::{advantage::GroupParams, gdpo, whiten::WhitenParams};
/// use lockstep_ops::{Batch, Device};
/// let batch = Batch::new(&[0, 1, 2, 3, 4], &[0, 4], None)?;
/// let rewards = [1.0, 0.0, 1.0, 0.0, 0.3, 0.3, 0.1, 0.1]; // correctness, then format
/// let each = GroupParams::grpo(true, 1, 1e-4);
/// let a = gdpo(&Device::cpu(), &batch, &rewards, &[1.0, 0.5], &each, &WhitenParams::TRL)?;
/// assert!(a[0] > a[2] && a[2] > a[1] && a[1] > a[3]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn gdpo(
    device: &Device,
    batch: &Batch<'_>,
    rewards: &[f32],
    weights: &[f32],
    group: &GroupParams<'_>,
    batch_step: &WhitenParams,
) -> Result<Vec<f32>, Error> {
    let (kinds, sequences) = (weights.len(), batch.sequences());
    require::length("rewards", kinds * sequences, "one per weight and sequence", rewards.len())?;
    if group.weights.is_some() || group.given.is_some() || group.scale.needs_moments() {
        let expected = "GDPO normalises within each group: no weights, given baselines or batch statistics";
        return Err(Argument::Combination { argument: "group", expected }.into());
    }
    // Every reward gets its own groups: K copies of the batch with one token per sequence (lengths play no
    // part).
    let cu_seqlens: Vec<u32> = (0..=(kinds * sequences) as u32).collect();
    let mut cu_groups = vec![0];
    for k in 0..kinds {
        let ends = (0..batch.groups()).map(|g| (k * sequences + batch.cu_groups().span(g).end) as u32);
        cu_groups.extend(ends);
    }
    let copies = Batch::with_empty_rows(&cu_seqlens, &cu_groups, None)?;
    let (mut own, mut residual) = (Advantages::default(), vec![0.0; rewards.len()]);
    with_residual(device, &copies, (rewards, None), group, &mut own, Some(&mut residual))?;
    // Rewards that oppose each other nearly cancel, so what rounding took from each is added too.
    let mut components = [own.advantage, residual].concat();
    for (component, reward) in components.iter_mut().zip(rewards.iter().chain(rewards)) {
        if reward.is_nan() {
            *component = f32::NAN;
        }
    }
    let combined = combine(device, batch, &components, &[weights, weights].concat())?;
    whiten(device, batch, Advantage::PerSequence(&combined), batch_step)
}
