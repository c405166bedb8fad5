//! A wave whose lanes are coroutines of one thread, alone or in a block.
//!
//! Between two exchanges each lane runs alone. Their order changes from exchange to exchange, so that a lane
//! that reads what another writes without a [`settle`](Wave::settle) in between finds it written or not.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use lockstep_kernels::wave::{SHARED, Wave};
use std::cell::{Cell, RefCell};

/// Where a lane waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// For the lanes of its wave.
    Wave,
    /// For the waves of its block.
    Block,
}

/// Bytes of a lane's stack.
const STACK: usize = 1 << 19;

thread_local! {
    /// Stacks of lanes that have ended.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// The words that lanes exchange: two sets, used alternately. A lane that is one exchange ahead must not
/// overwrite what others still read; no lane can be two ahead.
type Words = [Vec<Cell<u32>>; 2];

/// A lane's view of its wave, which is one of a `BLOCK` or alone.
#[derive(Clone, Copy)]
pub struct HostWave<'a, const WIDTH: usize, const BLOCK: bool = false> {
    yielder: &'a Yielder<(), Place>,
    /// Of the wave.
    words: &'a Words,
    /// Of the block.
    shared: &'a [Cell<u32>],
    waves: usize,
    wave: usize,
    lane: usize,
    turn: &'a Cell<usize>,
}

impl<'a, const WIDTH: usize, const BLOCK: bool> HostWave<'a, WIDTH, BLOCK> {
    /// The words of all lanes.
    fn words(self, word: u32) -> &'a [Cell<u32>] {
        let words = &self.words[self.turn.get()];
        self.turn.set(1 - self.turn.get());
        words[self.lane].set(word);
        self.yielder.suspend(Place::Wave);
        words
    }

    fn exchange(self, word: u32, from: usize) -> u32 {
        self.words(word)[from].get()
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
        let bit = |lane: usize, word: &Cell<u32>| word.get() << lane;
        self.words(condition.into())[..32].iter().enumerate().map(|(lane, word)| bit(lane, word)).sum()
    }
    fn settle(self) {
        self.yielder.suspend(Place::Wave);
    }

    const BLOCK: bool = BLOCK;

    fn waves(self) -> u32 {
        self.waves as u32
    }
    fn wave(self) -> u32 {
        self.wave as u32
    }
    fn meet(self) {
        self.yielder.suspend(Place::Block);
    }
    fn put(self, at: u32, word: u32) {
        self.shared[at as usize].set(word);
    }
    fn get(self, at: u32) -> u32 {
        self.shared[at as usize].get()
    }
}

/// Runs `lane` once for each lane of a wave, all at the same time. Panics if one of them does, or if lanes
/// wait for others that have ended.
pub fn with_lanes<const WIDTH: usize>(lane: impl Fn(HostWave<'_, WIDTH>)) {
    run(1, lane);
}

/// Runs `lane` once for each lane of a block of `waves`, all at the same time. Panics as [`with_lanes`] does.
pub fn with_block<const WIDTH: usize>(waves: u32, lane: impl Fn(HostWave<'_, WIDTH, true>)) {
    run(waves as usize, lane);
}

#[allow(unsafe_code)]
fn run<const WIDTH: usize, const BLOCK: bool>(waves: usize, lane: impl Fn(HostWave<'_, WIDTH, BLOCK>)) {
    let of_wave = || [0, 1].map(|_| vec![Cell::new(0); WIDTH]);
    let words: Vec<Words> = (0..waves).map(|_| of_wave()).collect();
    // What nobody has stored is not 0.
    let shared = vec![Cell::new(0x7fc5_5555); if BLOCK { SHARED as usize } else { 0 }];
    let threads = waves * WIDTH;
    let mut lanes: Vec<Coroutine<(), Place, ()>> = Vec::with_capacity(threads);
    for thread in 0..threads {
        let (words, shared, body) = (&words[thread / WIDTH], &shared[..], &lane);
        let lane = move |yielder: &Yielder<(), Place>, ()| {
            let (wave, lane) = (thread / WIDTH, thread % WIDTH);
            body(HostWave { yielder, words, shared, waves, wave, lane, turn: &Cell::new(0) });
        };
        let stack = STACKS.with_borrow_mut(Vec::pop);
        let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK).expect("memory for a lane's stack"));
        // SAFETY: what a lane borrows is declared before `lanes`, and dropped after them.
        lanes.push(unsafe { Coroutine::with_stack_unchecked(stack, lane) });
    }
    // Where lanes wait; those that wait nowhere run, or have ended.
    let mut waits = vec![None; threads];
    for round in 0usize.. {
        let from = round.wrapping_mul(0x9e37_79b9) % threads;
        for i in 0..threads {
            let i = if round % 2 == 0 { i } else { threads - 1 - i };
            let thread = (from + i) % threads;
            if waits[thread].is_none() && !lanes[thread].done() {
                match lanes[thread].resume(()) {
                    CoroutineResult::Yield(place) => waits[thread] = Some(place),
                    CoroutineResult::Return(()) => {}
                }
            }
        }
        let mut released = false;
        let mut release = |waits: &mut [Option<Place>], place| {
            if waits.iter().all(|wait| *wait == Some(place)) {
                waits.fill(None);
                released = true;
            }
        };
        waits.chunks_mut(WIDTH).for_each(|wave| release(wave, Place::Wave));
        release(&mut waits, Place::Block);
        if !released {
            let waiting = waits.iter().position(Option::is_some);
            assert!(waiting.is_none(), "lane {waiting:?} waits for lanes that have ended or wait elsewhere");
            break;
        }
    }
    STACKS.with_borrow_mut(|stacks| stacks.extend(lanes.into_iter().map(Coroutine::into_stack)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_exchange_words() {
        let seen = vec![Cell::new(0); 64];
        with_lanes::<64>(|wave| {
            let lane = wave.lane() as u32;
            let mut sum = lane;
            for step in [32, 16, 8, 4, 2, 1] {
                sum += wave.xor(sum, step);
            }
            let next = wave.read(lane, (lane + 1) % 64);
            let first = wave.first(lane + 7);
            seen[wave.lane()].set(sum * 10_000 + next * 100 + first);
        });
        for lane in 0..64 {
            let want = 63 * 32 * 10_000 + (lane + 1) % 64 * 100 + 7;
            assert_eq!(seen[lane as usize].get(), want, "lane {lane}");
        }
    }

    #[test]
    fn waves_of_a_block_share_words() {
        let seen = vec![Cell::new(0); 96];
        with_block::<32>(3, |wave| {
            let thread = wave.wave() * 32 + wave.lane() as u32;
            wave.put(thread, thread * 7);
            wave.meet();
            let sum = wave.get(95 - thread) + wave.waves() + wave.first(wave.wave());
            seen[thread as usize].set(sum);
        });
        for thread in 0..96 {
            let want = (95 - thread) * 7 + 3 + thread / 32;
            assert_eq!(seen[thread as usize].get(), want, "thread {thread}");
        }
    }

    #[test]
    fn a_lane_that_panics_ends_the_wave() {
        let result = std::panic::catch_unwind(|| {
            with_lanes::<32>(|wave| {
                assert!(wave.lane() != 5, "on purpose");
                wave.xor(0, 1);
            });
        });
        assert!(result.is_err());
    }

    #[test]
    #[should_panic(expected = "waits for lanes that have ended")]
    fn an_exchange_that_a_lane_leaves_out_is_found() {
        with_lanes::<32>(|wave| {
            if wave.lane() != 5 {
                wave.settle();
            }
        });
    }

    /// Without a settle, what lane 0 reads of lane 1 is written in some exchanges and not in others.
    #[test]
    fn the_order_of_lanes_changes() {
        let (word, seen) = (Cell::new(0), Cell::new([0u32; 2]));
        with_lanes::<32>(|wave| {
            for round in 1..100 {
                wave.settle();
                if wave.lane() == 1 {
                    word.set(round);
                }
                if wave.lane() == 0 {
                    let mut counts = seen.get();
                    counts[usize::from(word.get() == round)] += 1;
                    seen.set(counts);
                }
            }
        });
        assert!(seen.get().iter().all(|count| *count > 10), "{:?}", seen.get());
    }
}
