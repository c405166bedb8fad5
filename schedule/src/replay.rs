//! Rollout replay (DOTS): part of each batch comes from a buffer of recent groups.
//!
//! **Formula** (2506.05316, official code; docs/maths/schedules.md): of a batch of B groups, ⌊σ B + 1/2⌋ are
//! fresh. The rest are drawn uniformly, without replacement, from a first-in-first-out buffer of C groups
//! that received every fresh group with 0 < mean reward < 1.
//!
//! The ratio of a replayed group uses the log-probabilities stored with it; its GRPO statistics remain those
//! of its own group.
//!
//! **Special cases**: if the buffer has fewer groups than needed, all of them are used and fresh groups fill
//! the batch.
//!
//! **Variants**: the reference code appends the fresh batch twice on replay epochs and fixes the group size
//! at 8; we consider both bugs.

use super::fifo::Fifo;
use crate::numbers;
use crate::random::{Purpose, Stream, sample};
use lockstep_core::Error;
use lockstep_core::require;

/// The composition of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Number of groups to sample.
    pub fresh: u32,
    /// Number of groups to replay.
    pub replayed: u32,
}

/// Computes the composition of a batch of `batch` groups, with `fresh` = σ and `stored` groups in the buffer.
/// Errors: σ outside 0..=1.
pub fn shares(batch: u32, fresh: f64, stored: u32) -> Result<Shares, Error> {
    require::unit("fresh", fresh)?;
    let wanted = batch - numbers::nearest(fresh * f64::from(batch)).min(batch);
    let replayed = wanted.min(stored);
    Ok(Shares { fresh: batch - replayed, replayed })
}

/// Whether the buffer accepts a group: neither all right nor all wrong. A NaN mean is rejected.
pub fn admits(mean_reward: f64) -> bool {
    mean_reward > 0.0 && mean_reward < 1.0
}

/// Checks that `count` groups can be drawn. Errors: the buffer has fewer.
pub fn check(buffer: &Fifo, count: usize) -> Result<(), Error> {
    let (expected, because) = (buffer.len() as usize, "at most one per stored group");
    if count <= expected {
        return Ok(());
    }
    Err(Error::Length { argument: "slots", expected, because, got: count })
}

/// Draws the slots of `buffer` to replay, in drawing order. Errors: more slots than the buffer has entries.
pub fn draw(buffer: &Fifo, seed: u64, step: u32, slots: &mut [u32]) -> Result<(), Error> {
    let mut stream = Stream::new(seed, Purpose::REPLAY, step, 0);
    check(buffer, slots.len())?;
    sample::distinct(&mut stream, buffer.len(), slots)?;
    for slot in slots {
        *slot = buffer.at(*slot).unwrap_or(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_up_the_batch() {
        assert_eq!(shares(256, 0.5, 1000), Ok(Shares { fresh: 128, replayed: 128 }));
        assert_eq!(shares(256, 0.5, 100), Ok(Shares { fresh: 156, replayed: 100 }));
        assert_eq!(shares(256, 0.5, 0), Ok(Shares { fresh: 256, replayed: 0 }));
        assert_eq!(shares(3, 0.0, 9), Ok(Shares { fresh: 0, replayed: 3 }));
        assert_eq!(shares(3, 1.0, 9), Ok(Shares { fresh: 3, replayed: 0 }));
        assert!(matches!(shares(3, f64::NAN, 9), Err(Error::Value { argument: "fresh", .. })));
    }

    #[test]
    fn degenerate_groups_are_not_stored() {
        assert_eq!([0.0, 0.125, 1.0, f64::NAN].map(admits), [false, true, false, false]);
    }

    #[test]
    fn drawn_slots_are_stored_ones_and_distinct() {
        let mut buffer = Fifo::new(8).unwrap();
        for _ in 0..13 {
            buffer.push();
        }
        for _ in 0..5 {
            buffer.pop();
        }
        let mut slots = [0; 3];
        draw(&buffer, 1, 2, &mut slots).unwrap();
        slots.sort_unstable();
        let mut stored = [0, 1, 2].map(|i| buffer.at(i).unwrap());
        stored.sort_unstable();
        assert_eq!(slots, stored);
        assert!(matches!(draw(&buffer, 1, 2, &mut [0; 4]), Err(Error::Length { argument: "slots", .. })));
    }
}
