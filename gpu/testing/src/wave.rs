//! A wave whose lanes are host threads. Slow, with exactly a wave's semantics.

use lockstep_kernels::wave::Wave;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// The place where the lanes of a wave exchange words.
#[derive(Debug)]
pub struct Exchange {
    /// Two sets, used alternately: a lane that is one exchange ahead must not overwrite what others still
    /// read. No lane can be two ahead.
    words: [Vec<AtomicU32>; 2],
    arrived: AtomicUsize,
    generation: AtomicUsize,
    broken: AtomicBool,
}

impl Exchange {
    fn new(lanes: usize) -> Exchange {
        let words = || (0..lanes).map(|_| AtomicU32::new(0)).collect();
        Exchange {
            words: [words(), words()],
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// Returns when all lanes have arrived.
    fn meet(&self) {
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.words[0].len() {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.fetch_add(1, Ordering::Release);
            return;
        }
        while self.generation.load(Ordering::Acquire) == generation {
            assert!(!self.broken.load(Ordering::Relaxed), "another lane panicked");
            std::thread::yield_now();
        }
    }
}

/// A lane's view of its wave.
#[derive(Clone, Copy, Debug)]
pub struct HostWave<'a, const WIDTH: usize> {
    exchange: &'a Exchange,
    lane: usize,
    turn: &'a Cell<usize>,
}

impl<'a, const WIDTH: usize> HostWave<'a, WIDTH> {
    /// The words of all lanes.
    fn words(self, word: u32) -> &'a [AtomicU32] {
        let words = &self.exchange.words[self.turn.get()];
        self.turn.set(1 - self.turn.get());
        words[self.lane].store(word, Ordering::Relaxed);
        self.exchange.meet();
        words
    }

    fn exchange(self, word: u32, from: usize) -> u32 {
        self.words(word)[from].load(Ordering::Relaxed)
    }
}

impl<const WIDTH: usize> Wave for HostWave<'_, WIDTH> {
    const WIDTH: usize = WIDTH;

    fn lane(self) -> usize {
        self.lane
    }
    fn xor(self, word: u32, mask: u32) -> u32 {
        self.exchange(word, self.lane ^ mask as usize)
    }
    fn read(self, word: u32, from: u32) -> u32 {
        self.exchange(word, from as usize)
    }
    fn first(self, word: u32) -> u32 {
        self.exchange(word, 0)
    }
    fn votes(self, condition: bool) -> u32 {
        let bit = |lane: usize, word: &AtomicU32| word.load(Ordering::Relaxed) << lane;
        self.words(condition.into())[..32].iter().enumerate().map(|(lane, word)| bit(lane, word)).sum()
    }
    fn settle(self) {
        self.exchange.meet();
    }
}

/// Runs `lane` once for each lane, all at the same time. Panics if one of them does.
pub fn with_lanes<const WIDTH: usize>(lane: impl Fn(HostWave<'_, WIDTH>) + Sync) {
    struct Break<'a>(&'a AtomicBool);
    impl Drop for Break<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.store(true, Ordering::Relaxed);
            }
        }
    }
    let exchange = Exchange::new(WIDTH);
    std::thread::scope(|scope| {
        for number in 0..WIDTH {
            let (exchange, lane) = (&exchange, &lane);
            scope.spawn(move || {
                let _break = Break(&exchange.broken);
                lane(HostWave { exchange, lane: number, turn: &Cell::new(0) });
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_exchange_words() {
        let seen: Vec<AtomicU32> = (0..64).map(|_| AtomicU32::new(0)).collect();
        with_lanes::<64>(|wave| {
            let lane = wave.lane() as u32;
            let mut sum = lane;
            for step in [32, 16, 8, 4, 2, 1] {
                sum += wave.xor(sum, step);
            }
            let next = wave.read(lane, (lane + 1) % 64);
            let first = wave.first(lane + 7);
            seen[wave.lane()].store(sum * 10_000 + next * 100 + first, Ordering::Relaxed);
        });
        for lane in 0..64 {
            let want = 63 * 32 * 10_000 + (lane + 1) % 64 * 100 + 7;
            assert_eq!(seen[lane as usize].load(Ordering::Relaxed), want, "lane {lane}");
        }
    }

    #[test]
    fn a_lane_that_panics_does_not_leave_the_others_waiting() {
        let result = std::panic::catch_unwind(|| {
            with_lanes::<32>(|wave| {
                assert!(wave.lane() != 5, "on purpose");
                wave.xor(0, 1);
            });
        });
        assert!(result.is_err());
    }
}
