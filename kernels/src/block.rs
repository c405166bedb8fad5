//! What the waves of a block do together, where they share a row: chunks side by side, with the bits of one
//! wave.
//!
//! The order of a reduction is fixed: column c adds the elements c, c + 128, … one after the other. So each
//! wave computes the terms of a chunk and stores them in the block's memory, then the threads add them to the
//! columns, chunk after chunk, a column to a thread. Counts, maxima and alarms do not depend on order: each
//! wave keeps its own, and they are combined at the end.

use crate::team::{GpuTeam, Own, Read, each_column, each_of_four, larger};
use crate::wave::{SHARED, Wave};
use lockstep_core::num::{Arith, Storage};
use lockstep_core::op::MAX_WARPS;
use lockstep_core::ragged::{Mask, Sink, Span, Stream, flag};
use lockstep_core::team::fold::{COLUMNS, LANES};
use lockstep_core::team::scan::Semigroup;
use lockstep_core::team::{Element, Swept};

/// Where a sweep with K sums, some of them counts, and E maxima keeps what in the block's memory, in words.
/// First the results: alarm, maxima and counts of each wave, and the sums of the row.
struct Layout<const K: usize, const E: usize>;

impl<const K: usize, const E: usize> Layout<K, E> {
    /// Behind a word of each wave for the alarm, each maximum and each count.
    const SUMS: u32 = (1 + E as u32 + K as u32) * MAX_WARPS;
    /// The columns, in binary64; then the terms, a slot to a wave.
    const COLUMNS: u32 = Self::SUMS + 2 * K as u32;

    /// Columns of all sums that are not counts.
    const fn cells(counts: u32) -> u32 {
        Self::place(counts, K) * COLUMNS as u32
    }

    /// The number of sum k among those that are not counts.
    const fn place(counts: u32, k: usize) -> u32 {
        k as u32 - (counts & ((1 << k) - 1)).count_ones()
    }

    const fn terms(counts: u32) -> u32 {
        Self::COLUMNS + 2 * Self::cells(counts)
    }

    /// Waves that have room for their terms.
    const fn slots(counts: u32) -> u32 {
        let cells = Self::cells(counts);
        let room = (SHARED - Self::terms(counts)).checked_div(cells);
        let slots = if let Some(room) = room { room } else { MAX_WARPS };
        assert!(slots > 0, "the terms of a chunk do not fit");
        slots
    }
}

impl<W: Wave, A: Arith> GpuTeam<W, A> {
    /// This thread's number among those that own the row.
    #[inline(always)]
    pub(crate) fn thread(&self) -> usize {
        self.0.wave() as usize * W::WIDTH + self.0.lane()
    }

    /// Number of threads that own the row.
    #[inline(always)]
    pub(crate) fn threads(&self) -> usize {
        self.0.waves() as usize * W::WIDTH
    }

    /// Combines one word of each wave by an operation that is commutative and associative.
    #[inline(always)]
    pub(crate) fn across(&self, word: u32, neutral: u32, f: impl Fn(u32, u32) -> u32) -> u32 {
        if !W::BLOCK {
            return word;
        }
        self.0.meet();
        if self.0.lane() == 0 {
            self.0.put(self.0.wave(), word);
        }
        self.0.meet();
        let lane = self.0.lane() as u32;
        let mut all = neutral;
        if lane < self.0.waves() {
            all = self.0.get(lane);
        }
        self.combine(all, f)
    }

    /// Takes the whole chunks of a row, and returns how many elements are left: for wave 0, which then has
    /// the columns; none for the others.
    #[inline(always)]
    pub(crate) fn rounds<
        S: Storage,
        const J: usize,
        const M: usize,
        const K: usize,
        const E: usize,
        F: Element<J, M, K, E>,
    >(
        &self,
        own: &mut Own<K, E>,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_, S>; J],
        outs: [Sink<'_, S>; M],
        f: &F,
    ) -> u32 {
        let (lane, wave, chunk) = (self.0.lane(), self.0.wave(), COLUMNS as u32);
        let cells = const { Layout::<K, E>::cells(F::COUNTS) };
        let (columns, terms) = (Layout::<K, E>::COLUMNS, const { Layout::<K, E>::terms(F::COUNTS) });
        let most = const { Layout::<K, E>::slots(F::COUNTS) };
        let slots = if self.0.waves() < most { self.0.waves() } else { most };
        let (thread, threads) = (self.thread() as u32, self.threads() as u32);
        // The waves may still read the results of the sweep before.
        self.0.meet();
        let mut cell = thread;
        while cell < cells {
            self.0.put64(columns + 2 * cell, 0);
            cell += threads;
        }
        let whole = span.len() as u32 / chunk;
        // This wave's next chunk, and those that are left from there on.
        let mut left = if wave < slots && wave < whole { whole - wave } else { 0 };
        let place = |left: u32| span.start + (whole - left) as usize * COLUMNS + lane;
        let mut read = Read::NONE;
        if left > 0 {
            read = Self::read(place(left), mask, ins);
        }
        let mut waiting = whole;
        while waiting > 0 {
            if left > 0 {
                let i = place(left);
                left = left.saturating_sub(slots);
                let coming = if left > 0 { Self::read(place(left), mask, ins) } else { read };
                self.0.settle();
                each_column!(Q => {
                    let (out, term) = own.take::<Q, false, A, J, M, F>(f, read.x[Q], read.byte[Q] != 0);
                    for m in 0..M {
                        if let Some(sink) = outs[m] {
                            sink.put(i + Q * W::WIDTH, S::narrow(out[m]));
                        }
                    }
                    for k in 0..K {
                        if F::COUNTS >> k & 1 == 0 {
                            let place = Layout::<K, E>::place(F::COUNTS, k) * chunk;
                            let at = terms + wave * cells + place + (Q * W::WIDTH + lane) as u32;
                            self.0.put(at, term[k].to_bits());
                        }
                    }
                });
                read = coming;
            }
            let filled = if waiting < slots { waiting } else { slots };
            if cells > 0 {
                self.0.meet();
                self.add(columns, terms, cells, filled);
                self.0.meet();
            }
            waiting -= filled;
        }
        if wave > 0 {
            return 0;
        }
        if whole > 0 {
            each_column!(Q => {
                for k in 0..K {
                    if F::COUNTS >> k & 1 == 0 {
                        let place = Layout::<K, E>::place(F::COUNTS, k) * chunk;
                        let cell = place + (Q * W::WIDTH + lane) as u32;
                        own.columns[Q][k] = f64::from_bits(self.0.get64(columns + 2 * cell));
                    }
                }
            });
        }
        span.len() as u32 % chunk
    }

    /// Adds the terms of `filled` slots to the columns, in order.
    #[inline(always)]
    fn add(&self, columns: u32, terms: u32, cells: u32, filled: u32) {
        let (mut cell, threads) = (self.thread() as u32, self.threads() as u32);
        while cell < cells {
            let mut sum = f64::from_bits(self.0.get64(columns + 2 * cell));
            let term = |at: u32| f64::from(f32::from_bits(self.0.get(at)));
            let (mut at, mut left) = (terms + cell, filled);
            // Four loads at once.
            while left >= 4 {
                let four = [term(at), term(at + cells), term(at + 2 * cells), term(at + 3 * cells)];
                sum = (((sum + four[0]) + four[1]) + four[2]) + four[3];
                at += 4 * cells;
                left -= 4;
            }
            while left > 0 {
                sum += term(at);
                at += cells;
                left -= 1;
            }
            self.0.put64(columns + 2 * cell, sum.to_bits());
            cell += threads;
        }
    }

    /// Goes through the last lanes' values of `blocks` blocks of 32, in order: what they make of `carry`
    /// before each of the B that this wave has in `own`, and in the end. They are in the block's memory from
    /// `at` on; the waves meet once before they read it.
    #[inline(always)]
    pub(crate) fn chain<const B: usize, S: Semigroup, C: Copy>(
        &self,
        at: u32,
        blocks: u32,
        op: S,
        own: [S::Value; 4],
        carry: C,
        f: impl Fn(C, S::Value) -> C,
    ) -> ([C; 4], C) {
        let first = self.0.wave() * B as u32;
        let first = if first < blocks { first } else { blocks };
        if self.0.lane() == LANES - 1 && first < blocks {
            each_of_four!(C => {
                if C < B {
                    let (mut place, mut pair, mut odd) = (at + 4 * (first + C as u32), 0, false);
                    op.map_words(own[C], |word| {
                        pair = if odd { pair | u64::from(word) << 32 } else { word.into() };
                        self.0.put64(place, pair);
                        place += if odd { 2 } else { 0 };
                        odd = !odd;
                        word
                    });
                }
            });
        }
        self.0.meet();
        let value = |block: u32| {
            let (mut place, mut pair, mut odd) = (at + 4 * block, 0, false);
            op.map_words(op.identity(), |_| {
                pair = if odd { pair >> 32 } else { self.0.get64(place) };
                place += if odd { 2 } else { 0 };
                odd = !odd;
                pair as u32
            })
        };
        let through = |mut carry: C, mut block: u32, end: u32| {
            // Four loads at once.
            while end - block >= 4 {
                let four = [value(block), value(block + 1), value(block + 2), value(block + 3)];
                carry = f(f(f(f(carry, four[0]), four[1]), four[2]), four[3]);
                block += 4;
            }
            while block < end {
                carry = f(carry, value(block));
                block += 1;
            }
            carry
        };
        let mut starts = [through(carry, 0, first); 4];
        let mut after = starts[0];
        if first < blocks {
            each_of_four!(C => {
                if C < B {
                    starts[C] = after;
                    after = f(after, value(first + C as u32));
                }
            });
            after = through(after, first + B as u32, blocks);
        }
        (starts, after)
    }

    /// The last number that a wave before this one, and any wave, has found; `carried` if none has.
    #[inline(always)]
    pub(crate) fn nearest(&self, found: Option<u32>, carried: f32) -> (f32, f32) {
        let (lane, wave) = (self.0.lane() as u32, self.0.wave());
        if lane == 0 {
            self.0.put64(2 * wave, u64::from(found.is_some()) << 32 | u64::from(found.unwrap_or(0)));
        }
        self.0.meet();
        let mut words = 0;
        if lane < self.0.waves() {
            words = self.0.get64(2 * lane);
        }
        let votes = self.0.votes(words >> 32 != 0);
        let of = |votes: u32| {
            let latest = u32::BITS - votes.leading_zeros();
            let number = self.0.read(words as u32, latest.saturating_sub(1));
            if latest > 0 { f32::from_bits(number) } else { carried }
        };
        (of(votes & ((1 << wave) - 1)), of(votes))
    }

    /// The word of the wave before this one (`carried` before the first) and of the last of the first `waves`
    /// waves, as numbers, and whether all these waves say `all`.
    #[inline(always)]
    pub(crate) fn follow(&self, all: bool, waves: u32, word: u32, carried: f32) -> (f32, f32, bool) {
        let (lane, wave) = (self.0.lane() as u32, self.0.wave());
        if lane == 0 {
            self.0.put64(2 * wave, u64::from(all) << 32 | u64::from(word));
        }
        self.0.meet();
        let mut words = 1 << 32;
        if lane < waves {
            words = self.0.get64(2 * lane);
        }
        let of = |wave: u32| f32::from_bits(self.0.read(words as u32, wave));
        let before = of(wave.saturating_sub(1));
        let all = self.0.votes(words >> 32 != 0) == u32::MAX;
        (if wave > 0 { before } else { carried }, of(waves - 1), all)
    }

    /// Gives every wave the results of the row: the worst alarm, the largest orders and the counts of all
    /// waves, and the other sums of wave 0.
    #[inline(always)]
    pub(crate) fn join<const K: usize, const E: usize>(
        &self,
        swept: &mut Swept<K, E>,
        orders: &mut [i32; E],
        counts: u32,
    ) {
        let (lane, wave, sums) = (self.0.lane() as u32, self.0.wave(), const { Layout::<K, E>::SUMS });
        if lane == 0 {
            self.0.put(wave, swept.alarm);
            for e in 0..E {
                self.0.put((1 + e as u32) * MAX_WARPS + wave, orders[e].cast_unsigned());
            }
            for k in 0..K {
                if counts >> k & 1 == 1 {
                    self.0.put((1 + (E + k) as u32) * MAX_WARPS + wave, swept.sums[k] as u32);
                } else if wave == 0 {
                    self.0.put64(sums + 2 * k as u32, swept.sums[k].to_bits());
                }
            }
        }
        self.0.meet();
        // A lane takes a word of every wave, and lanes without one take the alarm.
        let bits = 1 | ((1 << E) - 1) << 1 | counts << (1 + E);
        let takes = lane <= (E + K) as u32 && bits >> lane & 1 == 1;
        let (own, waves) = (if takes { lane } else { 0 }, self.0.waves());
        let signed = own > 0 && own <= E as u32;
        let mut word = self.0.get(own * MAX_WARPS);
        let mut left = waves - 1;
        while left > 0 {
            let other = self.0.get(own * MAX_WARPS + waves - left);
            let largest = if signed { larger(word, other) } else { flag::worse(word, other) };
            word = if own > E as u32 { word.wrapping_add(other) } else { largest };
            left -= 1;
        }
        swept.alarm = self.0.read(word, 0);
        for e in 0..E {
            orders[e] = self.0.read(word, 1 + e as u32).cast_signed();
        }
        for k in 0..K {
            swept.sums[k] = if counts >> k & 1 == 1 {
                f64::from(self.0.read(word, (1 + E + k) as u32))
            } else {
                f64::from_bits(self.0.get64(sums + 2 * k as u32))
            };
        }
    }
}

const _: () = assert!(MAX_WARPS as usize <= LANES, "a lane reads the word of a wave");
