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
    pub(super) fn robust_baselines(&self, batch: &Batch<'_>, input: &Rewards<'_>) -> Result<Vec<f32>, Error> {
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
        baselines.iter_mut().filter(|b| b.is_nan()).for_each(|b| *b = 0.0);
        for (group, baseline) in baselines.iter_mut().enumerate() {
            let span = batch.cu_groups().span(group);
            let members = (span.start..span.end).filter(|i| !counted[*i].is_nan()).count();
            match self.advantage.singleton {
                SingletonChoice::Error if members == 1 => return Err(lone(group)),
                SingletonChoice::RawReward if members == 1 => *baseline = 0.0,
                // The member's own reward, so that its advantage is 0.
                SingletonChoice::Zero | SingletonChoice::LeaveOut if members == 1 => {
                    *baseline = only_reward(&counted[span.start..span.end])
                }
                _ => {}
            }
        }
        Ok(baselines)
    }
}

/// The one reward of a group that has a single counted member.
fn only_reward(rewards: &[f32]) -> f32 {
    rewards.iter().copied().find(|reward| !reward.is_nan()).unwrap_or(0.0)
}
