//! Runs `advantage.robust`: VCPO's alternatives to its weighted mean.

use super::advantage::Rewards;
use super::naming::Naming;
use super::reward::needed;
use crate::ops::advantage::lone;
use crate::recipe::{Recipe, RobustChoice, SingletonChoice};
use crate::{Batch, Error, ops};
use lockstep_schedule::robust_baseline::Robust;

/// Share of the weight that VCPO's winsorised mean clips at each end.
const WINSOR_SHARE: f64 = 0.05;

impl Recipe {
    /// The baselines of `advantage.robust`, `[G]`; empty without it. 0 where no counted member has a weight,
    /// as for the weighted mean.
    pub(super) fn robust_baselines(&self, batch: &Batch<'_>, input: &Rewards<'_>) -> Result<Vec<f64>, Error> {
        let rule = match self.advantage.robust {
            None => return Ok(Vec::new()),
            Some(RobustChoice::Median) => Robust::Median,
            Some(RobustChoice::Winsorised) => {
                Robust::Winsorised(self.advantage.winsor_share.unwrap_or(WINSOR_SHARE))
            }
        };
        let weights = needed(input.columns.baseline_weights, "baseline_weights")?;
        let mut counted = input.rewards.to_vec();
        if let Some(valid) = input.valid {
            batch.check_sequences("valid", valid.len())?;
            counted.iter_mut().zip(valid).filter(|(_, v)| **v == 0).for_each(|(r, _)| *r = f32::NAN);
        }
        let mut baselines = ops::robust_baselines(batch, &counted, weights, rule)
            .naming(&[("weights", "baseline_weights")])?;
        for (group, baseline) in baselines.iter_mut().enumerate() {
            let without_weight = baseline.is_nan();
            *baseline = if without_weight { 0.0 } else { *baseline };
            let span = batch.cu_groups().span(group);
            let members = (span.start..span.end).filter(|i| !counted[*i].is_nan()).count();
            match self.advantage.singleton {
                SingletonChoice::Error if members == 1 => return Err(lone(group)),
                SingletonChoice::RawReward if members == 1 => *baseline = 0.0,
                // The member's own reward, so that its advantage is 0.
                SingletonChoice::Zero | SingletonChoice::LeaveOut if members == 1 && !without_weight => {
                    *baseline = only_reward(&counted[span.start..span.end])
                }
                _ => {}
            }
        }
        Ok(baselines)
    }
}

/// Makes A = (R − b) / s from a launch that read b as binary32: what b lost by that is a large part of a
/// small difference. An advantage at the limit stays.
pub(super) fn by_wide_baselines(
    batch: &Batch<'_>,
    (rewards, baselines): (&[f32], &[f64]),
    limit: f64,
    advantage: &mut [f32],
) {
    for (group, wide) in baselines.iter().enumerate() {
        let span = batch.cu_groups().span(group);
        let narrow = f64::from(*wide as f32);
        let members = span.start..span.end;
        for (own, reward) in advantage[members.clone()].iter_mut().zip(&rewards[members]) {
            let (from, reward) = (f64::from(*own), f64::from(*reward));
            if from.abs() < limit && reward != narrow && !reward.is_nan() {
                *own = (from * ((reward - wide) / (reward - narrow))).clamp(-limit, limit) as f32;
            }
        }
    }
}

/// The one reward of a group that has a single counted member.
fn only_reward(rewards: &[f32]) -> f64 {
    rewards.iter().copied().find(|reward| !reward.is_nan()).unwrap_or(0.0).into()
}
