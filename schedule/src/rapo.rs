//! RAPO's replay of successes: a prompt whose rollouts all fail gets its last success back. For the host, not
//! an op.
//!
//! **Formula** (Fathom 2509.24107; docs/maths/rewards.md): a buffer keeps the most recent rollout with R >
//! 0.5 of each prompt. If all G rollouts of a prompt fail and the buffer has one, it replaces a uniformly
//! drawn rollout; the statistics of the group are then recomputed.
//!
//! The importance ratio uses the stored log-probabilities of the policy that sampled the rollout (our
//! reading).
//!
//! **Special cases**: in an empty group nothing is replaced. A NaN reward is not a success.

use crate::random::{Purpose, Stream};

/// A rollout whose reward exceeds this is a success.
pub const SUCCESS: f32 = 0.5;

/// Returns the rollout of a group that the buffer keeps: its last success, if there is one.
///
/// ```
/// use lockstep_schedule::rapo::stores;
/// assert_eq!(stores(&[1.0, 0.0, 0.75, 0.5]), Some(2));
/// assert_eq!(stores(&[0.5, f32::NAN]), None);
/// ```
pub fn stores(rewards: &[f32]) -> Option<u32> {
    rewards.iter().rposition(|reward| *reward > SUCCESS).map(|i| i as u32)
}

/// Returns the rollout of group `group` that the stored success replaces; `None` if one succeeded or nothing
/// is stored.
///
/// ```
/// use lockstep_schedule::rapo::replaces;
/// let failed = [0.0, 0.1, 0.5, 0.0];
/// let which = replaces(&failed, true, 1234, 0, 7);
/// assert!(which.is_some_and(|i| i < 4) && which == replaces(&failed, true, 1234, 0, 7));
/// assert_eq!(replaces(&failed, false, 1234, 0, 7), None);
/// assert_eq!(replaces(&[0.0, 1.0], true, 1234, 0, 7), None);
/// ```
pub fn replaces(rewards: &[f32], stored: bool, seed: u64, step: u32, group: u32) -> Option<u32> {
    if !stored || rewards.is_empty() || stores(rewards).is_some() {
        return None;
    }
    let mut stream = Stream::new(seed, Purpose::RAPO, step, group);
    Some(stream.below(rewards.len() as u64) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rollout_is_replaced_alike() {
        let mut seen = [0u32; 4];
        for group in 0..4000 {
            if let Some(i) = replaces(&[0.0; 4], true, 5, 1, group) {
                seen[i as usize] += 1;
            }
        }
        // Each count is binomial with mean 4000·1/4 and deviation 27; five deviations.
        assert!(seen.iter().all(|n| n.abs_diff(1000) < 137), "{seen:?}");
        assert_eq!(replaces(&[], true, 5, 1, 0), None);
        assert_eq!(replaces(&[f32::NAN], true, 5, 1, 0), Some(0));
    }
}
