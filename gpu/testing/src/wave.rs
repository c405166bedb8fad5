//! A wave whose lanes are host threads, alone or in a block. Slow, with exactly a wave's semantics.

use lockstep_kernels::wave::{SHARED, Wave};
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

/// What the waves of a block share.
#[derive(Debug)]
struct Block {
    /// Where all lanes meet.
    all: Exchange,
    words: Vec<AtomicU32>,
}

/// A lane's view of its wave, which is one of a `BLOCK` or alone.
#[derive(Clone, Copy, Debug)]
pub struct HostWave<'a, const WIDTH: usize, const BLOCK: bool = false> {
    exchange: &'a Exchange,
    block: &'a Block,
    lane: usize,
    wave: usize,
    turn: &'a Cell<usize>,
}

impl<'a, const WIDTH: usize, const BLOCK: bool> HostWave<'a, WIDTH, BLOCK> {
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

impl<const WIDTH: usize, const BLOCK: bool> Wave for HostWave<'_, WIDTH, BLOCK> {
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

    const BLOCK: bool = BLOCK;

    fn waves(self) -> u32 {
        (self.block.all.words[0].len() / WIDTH) as u32
    }
    fn wave(self) -> u32 {
        self.wave as u32
    }
    fn meet(self) {
        self.block.all.meet();
    }
    fn put(self, at: u32, word: u32) {
        self.block.words[at as usize].store(word, Ordering::Relaxed);
    }
    fn get(self, at: u32) -> u32 {
        self.block.words[at as usize].load(Ordering::Relaxed)
    }
}

/// Runs `lane` once for each lane of a wave, all at the same time. Panics if one of them does.
pub fn with_lanes<const WIDTH: usize>(lane: impl Fn(HostWave<'_, WIDTH>) + Sync) {
    run(1, lane);
}

/// Runs `lane` once for each lane of a block of `waves`, all at the same time. Panics if one of them does.
pub fn with_block<const WIDTH: usize>(waves: u32, lane: impl Fn(HostWave<'_, WIDTH, true>) + Sync) {
    run(waves as usize, lane);
}

fn run<const WIDTH: usize, const BLOCK: bool>(
    waves: usize,
    lane: impl Fn(HostWave<'_, WIDTH, BLOCK>) + Sync,
) {
    struct Break<'a>(&'a [Exchange], &'a Exchange);
    impl Drop for Break<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.iter().chain([self.1]).for_each(|all| all.broken.store(true, Ordering::Relaxed));
            }
        }
    }
    let exchanges: Vec<Exchange> = (0..waves).map(|_| Exchange::new(WIDTH)).collect();
    let words = if BLOCK { SHARED } else { 0 };
    // What nobody has stored is not 0.
    let words = (0..words).map(|_| AtomicU32::new(0x7fc5_5555)).collect();
    let block = Block { all: Exchange::new(waves * WIDTH), words };
    std::thread::scope(|scope| {
        for thread in 0..waves * WIDTH {
            let (exchanges, block, body) = (&exchanges, &block, &lane);
            scope.spawn(move || {
                let _break = Break(exchanges, &block.all);
                let (wave, lane) = (thread / WIDTH, thread % WIDTH);
                body(HostWave { exchange: &exchanges[wave], block, lane, wave, turn: &Cell::new(0) });
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
    fn waves_of_a_block_share_words() {
        let seen: Vec<AtomicU32> = (0..96).map(|_| AtomicU32::new(0)).collect();
        with_block::<32>(3, |wave| {
            let thread = wave.wave() * 32 + wave.lane() as u32;
            wave.put(thread, thread * 7);
            wave.meet();
            let sum = wave.get(95 - thread) + wave.waves() + wave.first(wave.wave());
            seen[thread as usize].store(sum, Ordering::Relaxed);
        });
        for thread in 0..96 {
            let want = (95 - thread) * 7 + 3 + thread / 32;
            assert_eq!(seen[thread as usize].load(Ordering::Relaxed), want, "thread {thread}");
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
