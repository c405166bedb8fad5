//! A stale-synchronous queue between rollout and trainer, in the manner of Pangu Embedded (our reading).
//!
//! **Formula** (2505.22375, abstract: "stale synchronous parallelism with prioritized data queues"; the bound
//! is that of Ho et al. 2013, the rest is ours; docs/maths/schedules.md). With batches of B groups and a
//! bound of s versions:
//!
//! ```text
//! room     = (s + 1)·B − groups begun and not yet learnt from                rollout waits at 0
//! take     the B oldest complete groups, but only if every group left can still be learnt from in time:
//!          version + 1 + ⌊j/B⌋ − o_j ≤ s for the j-th oldest group left (j from 0), begun at version o_j
//! ```
//!
//! Each side waits for the other as little as the bound allows, and nothing is discarded. A rollout finishes
//! with the weights it began with, so every response has one version. s = 0 is synchronous.
//!
//! The oldest groups go first (the priority), which is the best choice: if any B complete groups can be
//! taken, so can the oldest B. A queue whose groups began within `room` never blocks: when all are complete,
//! the oldest B can be taken.
//!
//! **Shapes**: `begun`, `complete` `[n]`, one per group begun and not yet trained on, oldest first; `chosen`
//! `[B]`, ascending.
//!
//! **Special cases**: fewer than B complete groups: wait.

use lockstep_core::Error;
use lockstep_core::require;

/// A queue of groups of rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleQueue {
    /// Groups B of a training batch.
    pub batch: u32,
    /// Largest age s of a group when it is trained on, in versions.
    pub staleness: u32,
}

impl StaleQueue {
    /// Number of groups that may begin while `waiting` have begun and are not yet trained on.
    pub fn room(&self, waiting: u64) -> u64 {
        ((u64::from(self.staleness) + 1) * u64::from(self.batch)).saturating_sub(waiting)
    }

    /// Chooses the groups to train on at `version`; false: wait, and `chosen` has no meaning. `begun` are the
    /// versions at which the groups began, never decreasing.
    ///
    /// Errors: lengths that disagree; a batch of 0; a `chosen` whose length is not that of a batch; versions
    /// that decrease, or that are above `version` (index).
    ///
    /// ```
    /// use lockstep_schedule::stale_queue::StaleQueue;
    /// let queue = StaleQueue { batch: 1, staleness: 1 };
    /// let mut chosen = [0];
    /// // A group of version 3 is due at version 4: the younger one cannot go first.
    /// assert!(!queue.take(4, &[3, 4], &[false, true], &mut chosen)?);
    /// assert!(queue.take(4, &[3, 4], &[true, true], &mut chosen)? && chosen == [0]);
    /// # Ok::<(), lockstep_core::Error>(())
    /// ```
    pub fn take(
        &self,
        version: u64,
        begun: &[u64],
        complete: &[bool],
        chosen: &mut [u32],
    ) -> Result<bool, Error> {
        let batch = self.batch as usize;
        require::scalar("batch", batch > 0, "at least 1", 0.0)?;
        require::length("complete", begun.len(), "one per group", complete.len())?;
        require::length("chosen", batch, "one per group of a batch", chosen.len())?;
        let wrong = |i: &usize| begun[*i] > version || *i > 0 && begun[*i] < begun[*i - 1];
        if let Some(i) = (0..begun.len()).find(wrong) {
            let expected = "at most the current version, and at least the entry before it";
            return Err(require::value("begun", Some(i), expected, begun[i] as f64));
        }
        let (mut taken, mut left) = (0, 0);
        for (i, (begun, complete)) in begun.iter().zip(complete).enumerate() {
            if *complete && taken < batch {
                chosen[taken] = i as u32;
                taken += 1;
                continue;
            }
            // The age at which it is learnt from at the earliest, if the oldest always go first.
            if (version - begun).saturating_add(1 + (left / batch) as u64) > self.staleness.into() {
                return Ok(false);
            }
            left += 1;
        }
        Ok(taken == batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    /// Whether groups that are all complete can be learnt from in time, the oldest first: step by step.
    fn in_time(mut left: &[u64], mut version: u64, batch: usize, staleness: u64) -> bool {
        while !left.is_empty() {
            version += 1;
            let (now, later) = left.split_at(batch.min(left.len()));
            if now.iter().any(|begun| version - begun > staleness) {
                return false;
            }
            left = later;
        }
        true
    }

    /// Against every choice of complete groups.
    #[test]
    fn it_takes_a_batch_exactly_when_one_can_be_taken() {
        let mut stream = Stream::new(11, Purpose(2000), 0, 0);
        let mut seen = [0; 2];
        for _ in 0..3000 {
            let queue = StaleQueue { batch: 1 + stream.below(3) as u32, staleness: stream.below(4) as u32 };
            let (n, batch) = (1 + stream.below(7) as usize, queue.batch as usize);
            let mut begun: [u64; 7] = core::array::from_fn(|_| 10 - stream.below(4));
            let complete: [bool; 7] = core::array::from_fn(|_| stream.below(3) > 0);
            begun[..n].sort_unstable();
            let (begun, complete) = (&begun[..n], &complete[..n]);
            let mut chosen = [0; 3];
            let found = queue.take(10, begun, complete, &mut chosen[..batch]).unwrap();
            let possible = |set: u32| {
                let mut left = [0; 7];
                let mut count = 0;
                for i in (0..n).filter(|i| set >> i & 1 == 0) {
                    left[count] = begun[i];
                    count += 1;
                }
                (0..n).all(|i| set >> i & 1 == 0 || complete[i])
                    && in_time(&left[..count], 10, batch, queue.staleness.into())
            };
            let sets = (0_u32..1 << n).filter(|set| set.count_ones() == queue.batch);
            assert_eq!(found, sets.clone().any(possible), "{queue:?} {begun:?} {complete:?}");
            if found {
                assert!(possible(chosen[..batch].iter().fold(0, |set, i| set | 1 << i)));
            }
            seen[usize::from(found)] += 1;
        }
        assert!(seen[0] > 500 && seen[1] > 200, "{seen:?}");
    }

    /// A queue that is filled as far as there is room, with groups that end at random: nothing is ever older
    /// than the bound, and a queue whose groups are all complete never waits.
    #[test]
    fn the_bound_holds_and_nothing_blocks() {
        for (seed, batch, staleness) in [(1, 2, 0), (2, 3, 1), (3, 1, 3), (4, 4, 2)] {
            let queue = StaleQueue { batch, staleness };
            let mut stream = Stream::new(seed, Purpose(2000), 0, 0);
            let (mut begun, mut complete, mut n) = ([0_u64; 16], [false; 16], 0);
            let (mut version, mut oldest, mut waited) = (0, 0, 0);
            while version < 500 {
                for _ in 0..queue.room(n as u64) {
                    (begun[n], complete[n]) = (version, false);
                    n += 1;
                }
                assert_eq!(queue.room(n as u64), 0);
                let mut chosen = [0; 4];
                let chosen = &mut chosen[..batch as usize];
                if queue.take(version, &begun[..n], &complete[..n], chosen).unwrap() {
                    oldest = oldest.max(version - begun[chosen[0] as usize]);
                    let mut kept = 0;
                    for i in (0..n).filter(|i| !chosen.contains(&(*i as u32))) {
                        (begun[kept], complete[kept]) = (begun[i], complete[i]);
                        kept += 1;
                    }
                    (n, version) = (kept, version + 1);
                } else {
                    assert!(!complete[..n].iter().all(|done| *done), "blocked");
                    complete[stream.below(n as u64) as usize] = true;
                    waited += 1;
                }
            }
            assert_eq!(oldest, u64::from(staleness), "the bound is used and holds");
            assert!(waited > 0);
        }
    }

    #[test]
    fn a_bound_of_none_is_synchronous() {
        let queue = StaleQueue { batch: 2, staleness: 0 };
        let mut chosen = [9; 2];
        assert_eq!((queue.room(0), queue.room(2), queue.room(5)), (2, 0, 0));
        assert_eq!(queue.take(7, &[7, 7], &[true, false], &mut chosen), Ok(false));
        assert_eq!((queue.take(7, &[7, 7], &[true, true], &mut chosen), chosen), (Ok(true), [0, 1]));
        assert_eq!(
            queue.take(7, &[7, 7, 7], &[true; 3], &mut chosen),
            Ok(false),
            "the third would be too old"
        );
    }

    #[test]
    fn what_is_refused() {
        let queue = StaleQueue { batch: 1, staleness: 1 };
        for (begun, at) in [([1, 0], 1), ([4, 5], 0), ([2, 4], 1)] {
            let found = queue.take(3, &begun, &[true; 2], &mut [0]);
            assert!(matches!(found, Err(Error::Value { argument: "begun", index: Some(i), .. }) if i == at));
        }
        let none = StaleQueue { batch: 0, staleness: 1 };
        assert!(matches!(none.take(0, &[], &[], &mut []), Err(Error::Value { argument: "batch", .. })));
        assert!(matches!(
            queue.take(0, &[0], &[], &mut [0]),
            Err(Error::Length { argument: "complete", .. })
        ));
        assert!(matches!(queue.take(0, &[], &[], &mut []), Err(Error::Length { argument: "chosen", .. })));
        assert_eq!(StaleQueue { batch: u32::MAX, staleness: u32::MAX }.room(u64::MAX), 0);
        assert_eq!(queue.take(u64::MAX, &[0, u64::MAX], &[false, true], &mut [0]), Ok(false));
    }
}
