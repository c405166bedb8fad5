//! The minibatches of a step: the groups that each update learns from.

use anyhow::Result;
use lockstep::schedules::remix::Mix;
use lockstep::{Duty, RolloutsBuf};

use super::group::Group;
use super::state::State;
use super::trainer::Trainer;
use crate::random::{Phase, Stream};

/// The groups of each minibatch.
#[derive(Default)]
pub(super) struct Plan {
    /// Indices into this step's groups, followed by `earlier`.
    pub(super) parts: Vec<Vec<usize>>,
    /// Groups of earlier steps.
    pub(super) earlier: Vec<Group>,
}

/// Writes what a minibatch's own update changed back to its tokens' places in the whole batch.
pub(super) fn write_back(rollouts: &mut RolloutsBuf, batch: &RolloutsBuf, places: &[usize]) {
    for (whole, part) in [
        (&mut rollouts.logp, &batch.logp),
        (&mut rollouts.entropy, &batch.entropy),
        (&mut rollouts.values, &batch.values),
        (&mut rollouts.divergence, &batch.divergence),
    ] {
        if let (Some(whole), Some(part)) = (whole, part) {
            places.iter().zip(part).for_each(|(place, x)| whole[*place] = *x);
        }
    }
}

impl Trainer {
    /// ReMix's settings: which step's groups a minibatch uses, and when the reference is reset.
    pub(super) fn mix(&self) -> Mix {
        let own = Mix::default();
        Mix { reincarnation: own.reincarnation.filter(|_| self.algorithm.asks(Duty::ResetReference)), ..own }
    }

    /// Assigns groups to minibatches: this step's groups are shuffled and split into parts that differ by at
    /// most one group; if the recipe asks for it, a minibatch uses part of an earlier step's groups instead.
    pub(super) fn minibatches(&self, state: &State, step: u64, groups: usize) -> Result<Plan> {
        let parts = self.config().rl.minibatches;
        let mut order: Vec<usize> = (0..groups).collect();
        Stream::new(self.config().seed, Phase::Shuffle, step, 0).shuffle(&mut order);
        let mut plan = Plan::default();
        for part in 0..parts {
            let share = |n: usize| part * n / parts..(part + 1) * n / parts;
            let lag = match self.algorithm.asks(Duty::LatestPolicy) {
                true => self.mix().lag(self.config().seed, step as u32, part as u32)?,
                false => 0,
            };
            let earlier = state.memory.batch(lag);
            let earlier = &earlier[share(earlier.len())];
            plan.parts.push(match earlier.is_empty() {
                true => order[share(groups)].to_vec(),
                false => (0..earlier.len()).map(|i| groups + plan.earlier.len() + i).collect(),
            });
            plan.earlier.extend_from_slice(earlier);
        }
        Ok(plan)
    }
}
