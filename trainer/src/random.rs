//! Counter-based randomness: every draw is a function of (seed, phase, step, row) and of nothing that ran
//! before. This lets a killed run resume midway and end with the same bits.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The purpose of a random stream. No two phases share a stream.
#[derive(Clone, Copy, Debug)]
pub enum Phase {
    /// Initial weights.
    Init = 1,
    /// Problems of the supervised warm start.
    WarmProblems = 2,
    /// Problems of the RL phase.
    RlProblems = 3,
    /// Tokens of the RL rollouts.
    Rollout = 4,
    /// Tokens sampled when a policy is evaluated.
    Measure = 5,
    /// The order of the groups in the minibatches.
    Shuffle = 6,
    /// Tokens sampled to decide whether the warm start ends.
    WarmCheck = 7,
    /// A recipe's own random choices.
    Recipe = 8,
    /// Tokens sampled for pass@k at the end of a run.
    PassAtK = 9,
    /// Which rewards are flipped.
    Flip = 10,
    /// The prompts of the pool.
    Pool = 11,
    /// Tokens of rollouts that join a group after its first ones.
    Joining = 12,
    /// Tokens of a tree of rollouts.
    Tree = 13,
    /// Tokens of rollouts that are salvaged.
    Salvage = 14,
}

/// One stream of random numbers.
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream of `row` (below 2^28) at `step` (below 2^28) of `phase`.
    pub fn new(seed: u64, phase: Phase, step: u64, row: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream((phase as u64) << 56 | (step & 0xfff_ffff) << 28 | (row & 0xfff_ffff));
        Self(rng)
    }

    /// The same stream after `draws` calls of [`unit`](Self::unit).
    pub fn after(mut self, draws: usize) -> Self {
        (0..draws).for_each(|_| _ = self.unit());
        self
    }

    /// A number in `[0, 1)`, on a grid of 2^-24.
    pub fn unit(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 / 16_777_216.0
    }

    /// A number in `0..n`, with a bias below n / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Shuffles `items` in place (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |phase, step, row| {
            let mut s = Stream::new(7, phase, step, row);
            (s.below(u64::MAX), s.unit())
        };
        assert_eq!(draw(Phase::Rollout, 3, 4), draw(Phase::Rollout, 3, 4));
        assert_ne!(draw(Phase::Rollout, 3, 4), draw(Phase::Rollout, 4, 3));
        assert_ne!(draw(Phase::Rollout, 3, 4), draw(Phase::Measure, 3, 4));
    }
}
