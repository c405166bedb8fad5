//! Scans and linear recurrences of a wave or a block of waves: 32 elements at a time, as on every target, and
//! where a row has them, four such blocks side by side. Longer than 400 lines because both take their blocks
//! the same way.

use crate::team::{GpuTeam, Read, each_of_four};
use crate::wave::Wave;
use core::hint::select_unpredictable;
use lockstep_core::num::{self, Arith};
use lockstep_core::op::MAX_WARPS;
use lockstep_core::ragged::{Mask, Sink, Span, Stream, flag};
use lockstep_core::team::fold::LANES;
use lockstep_core::team::recur::STILL;
use lockstep_core::team::scan::{Affine, map_f64};
use lockstep_core::team::{AffineF64, Direction, Recurrence, Semigroup, Step};

/// Blocks of 32 elements that a wave takes at once.
const FOUR: usize = 4;

/// Rounds of the joins in a block.
const STEPS: usize = LANES.ilog2() as usize;

/// Runs `$body` for each of them, unrolled by hand: LLVM leaves long bodies as they are.
macro_rules! each_step {
    ($k:ident => $body:block) => {{
        const { assert!(STEPS == 5) };
        each_of_four!(C => { let $k: usize = C; $body });
        { let $k: usize = 4; $body }
    }};
}

/// Where [`GpuTeam::chain`] has the values of a round, behind what [`GpuTeam::nearest`] uses.
const CHAIN: u32 = 2 * MAX_WARPS;

/// Words that a chain uses.
const CHAINED: u32 = 4 * FOUR as u32 * MAX_WARPS;

/// Blocks that are taken one by one before a chunk is tried again.
const BETWEEN: u32 = 16;

/// Elements of four blocks.
const CHUNK: u32 = (FOUR * LANES) as u32;

/// What a recurrence carries from one block of 32 to the next.
#[derive(Clone, Copy)]
struct Carried {
    y: f64,
    value: f32,
    alarm: u32,
}

impl<W: Wave, A: Arith> GpuTeam<W, A> {
    /// This lane's number in a block of 32. The upper half of a wave of 64 repeats the lower half's
    /// computation.
    #[inline(always)]
    fn place(&self) -> usize {
        self.0.lane() % LANES
    }

    /// The lane that has element `place` of this lane's block.
    #[inline(always)]
    fn lane_of(&self, place: usize) -> u32 {
        (self.0.lane() - self.place() + place) as u32
    }

    /// [`Team::scan`](lockstep_core::team::Team::scan).
    #[inline(always)]
    pub(crate) fn scan_row<S: Semigroup>(
        &self,
        op: S,
        span: Span,
        mask: Mask<'_>,
        direction: Direction,
        get: impl Fn(usize) -> S::Value,
        put: impl Fn(usize, S::Value),
    ) {
        let (mut carry, mut odd) = (op.identity(), false);
        let mut rest = span.len() as u32;
        if W::BLOCK {
            self.0.meet();
        }
        while Self::AHEAD && rest >= CHUNK {
            carry = self.scan_blocks::<FOUR, S>(op, span, mask, direction, (rest, odd), carry, &get, &put);
            odd = !odd;
            rest -= self.taken(rest);
        }
        while rest > 0 {
            carry = self.scan_blocks::<1, S>(op, span, mask, direction, (rest, odd), carry, &get, &put);
            odd = !odd;
            rest = rest.saturating_sub(self.0.waves() * LANES as u32);
        }
    }

    /// Scans B blocks for each wave, of a row of which `rest` elements are left.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // A part of `scan_row`.
    fn scan_blocks<const B: usize, S: Semigroup>(
        &self,
        op: S,
        span: Span,
        mask: Mask<'_>,
        direction: Direction,
        (rest, odd): (u32, bool),
        carry: S::Value,
        get: &impl Fn(usize) -> S::Value,
        put: &impl Fn(usize, S::Value),
    ) -> S::Value {
        let (l, length) = (self.place() as u32, span.len() as u32);
        // Elements that are left for this wave.
        let left = rest.saturating_sub(self.0.wave() * (B * LANES) as u32);
        let inside = if B > 1 { left >= CHUNK } else { l < left };
        // Outside, any element.
        let offset = match direction {
            Direction::Prefix => (length - left).wrapping_add(l),
            Direction::Suffix => (left - 1).wrapping_sub(l),
        };
        let first = span.start.wrapping_add(offset as usize);
        let at = |block: usize| match direction {
            Direction::Prefix => first.wrapping_add(block * LANES),
            Direction::Suffix => first.wrapping_sub(block * LANES),
        };
        let mut x = [op.identity(); FOUR];
        let mut byte = [self.0.set(); FOUR];
        if inside {
            if let Some(bytes) = mask.bytes() {
                each_of_four!(C => {
                    if C < B {
                        byte[C] = bytes.at(at(C)).into();
                    }
                });
            }
            // Without waiting for the mask.
            each_of_four!(C => {
                if C < B {
                    x[C] = get(at(C));
                }
            });
        }
        self.0.settle();
        each_of_four!(C => {
            if C < B {
                x[C] = if byte[C] != 0 { x[C] } else { op.identity() };
            }
        });
        each_step!(k => {
            let from = self.earlier(k);
            each_of_four!(C => {
                if C < B {
                    let before = op.map_words(x[C], |word| self.0.read(word, from));
                    let joined = op.join(before, x[C]);
                    x[C] = if self.reaches(k) { joined } else { x[C] };
                }
            });
        });
        let mut carry = carry;
        if W::BLOCK {
            let blocks = if B > 1 { self.taken(rest) / LANES as u32 } else { self.0.waves() };
            let at = if odd { CHAINED } else { 0 };
            let (starts, end) = self.chain::<B, _, _>(at, blocks, op, x, carry, |c, x| op.join(c, x));
            carry = end;
            each_of_four!(C => { x[C] = op.join(starts[C], x[C]); });
        } else {
            each_of_four!(C => {
                if C < B {
                    x[C] = op.join(carry, x[C]);
                    carry = op.map_words(x[C], |word| self.0.read(word, LANES as u32 - 1));
                }
            });
        }
        if inside & (self.0.lane() < LANES) {
            each_of_four!(C => {
                if C < B {
                    put(at(C), x[C]);
                }
            });
        }
        carry
    }

    /// [`Team::recur`](lockstep_core::team::Team::recur).
    #[inline(always)]
    pub(crate) fn recur_row<const J: usize, const K: usize, const M: usize, F: Recurrence<J, K, M>>(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
        outs: [Sink<'_>; M],
        behind: f32,
        f: F,
    ) -> u32 {
        let mut carried = Carried { y: 0.0, value: behind, alarm: 0 };
        let (mut rest, waves) = (span.len() as u32, self.0.waves());
        if W::BLOCK {
            self.0.meet();
        }
        let chunks = Self::AHEAD && f.rate().is_some();
        let rates = if chunks && rest >= CHUNK { self.rates(f.rate()) } else { [0.0; STEPS + 1] };
        while rest > 0 {
            while chunks && rest >= CHUNK {
                let read = self.read_chunk(span, rest, mask, ins);
                self.0.settle();
                let (i, taken, live) = (self.chunk(span, rest), self.taken(rest), self.live(&read));
                if !(live || W::BLOCK)
                    || !self.recur_chunk(i, taken, live, read.x, outs, &mut carried, f, rates)
                {
                    break;
                }
                rest -= taken;
            }
            // Blocks one by one: where the row ends or elements are masked, and then for a while.
            if rest == 0 {
                break;
            }
            let mut left = if chunks { BETWEEN } else { u32::MAX };
            let stride = waves * LANES as u32;
            let one = |rest: u32| self.read_block(span, rest, mask, ins);
            let (mut first, mut second) = (one(rest), one(rest));
            if Self::AHEAD && rest > stride {
                second = one(rest - stride);
            }
            while rest > 0 && left > 0 {
                let mut third = second;
                if !Self::AHEAD {
                    first = one(rest);
                } else if rest > 2 * stride {
                    third = one(rest - 2 * stride);
                }
                self.0.settle();
                self.recur_block(self.block(span, rest), first, outs, &mut carried, f);
                (first, second) = (second, third);
                rest = rest.saturating_sub(stride);
                left -= 1;
            }
        }
        self.across(self.combine(carried.alarm, flag::worse), 0, flag::worse)
    }

    /// The rate of this lane's map in a block of live elements before each round of joins, and in the end.
    #[inline(always)]
    fn rates(&self, rate: Option<f64>) -> [f64; STEPS + 1] {
        let mut rates = [rate.unwrap_or(0.0); STEPS + 1];
        if rate.is_some() {
            each_step!(k => {
                let before = map_f64(rates[k], |word| self.0.read(word, self.earlier(k)));
                rates[k + 1] = rates[k] * if self.reaches(k) { before } else { STILL.rate };
            });
        }
        rates
    }

    /// Whether round k joins a lane to this one.
    #[inline(always)]
    fn reaches(&self, k: usize) -> bool {
        self.place() as u32 >= 1 << k
    }

    /// The lane that round k joins to this one, or this one.
    #[inline(always)]
    fn earlier(&self, k: usize) -> u32 {
        self.0.lane() as u32 - if self.reaches(k) { 1 << k } else { 0 }
    }

    /// How many of `rest` elements, a chunk or more, the waves take at once.
    #[inline(always)]
    fn taken(&self, rest: u32) -> u32 {
        if W::BLOCK { (rest / CHUNK).min(self.0.waves()) * CHUNK } else { CHUNK }
    }

    /// This lane's element of the last block of its wave's chunk, of a row of which `rest` elements are left.
    /// A wave without a chunk has the row's first.
    #[inline(always)]
    fn chunk(&self, span: Span, rest: u32) -> usize {
        let before = self.0.wave() * CHUNK;
        let left = if !W::BLOCK || before < self.taken(rest) { rest - before } else { CHUNK };
        span.start + (left - 1) as usize - self.place()
    }

    /// Reads this lane's elements of its wave's chunk, backwards, and their bytes of the mask.
    #[inline(always)]
    fn read_chunk<const J: usize>(
        &self,
        span: Span,
        rest: u32,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
    ) -> Read<J> {
        let i = self.chunk(span, rest);
        let mut read = Read { byte: [self.0.set(); FOUR], ..Read::NONE };
        for j in 0..J {
            each_of_four!(C => { read.x[C][j] = ins[j].at(i - C * LANES); });
        }
        // Last, because it may be tested where it is read.
        if let Some(bytes) = mask.bytes() {
            each_of_four!(C => { read.byte[C] = bytes.at(i - C * LANES).into(); });
        }
        read
    }

    /// Whether all elements that the wave has read are live.
    #[inline(always)]
    fn live<const J: usize>(&self, read: &Read<J>) -> bool {
        let [a, b, c, d] = read.byte.map(|byte| byte != 0);
        self.0.votes(a & b & c & d) == u32::MAX
    }

    /// Takes the waves' chunks of a recurrence with one rate, `taken` elements, backwards from this lane's
    /// element `i`. Does nothing and returns false if an element is not `live`.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // A part of `recur_row`.
    fn recur_chunk<const J: usize, const K: usize, const M: usize, F: Recurrence<J, K, M>>(
        &self,
        i: usize,
        taken: u32,
        live: bool,
        input: [[f32; J]; FOUR],
        outs: [Sink<'_>; M],
        carried: &mut Carried,
        f: F,
        rates: [f64; STEPS + 1],
    ) -> bool {
        let l = self.place();
        let has = !W::BLOCK || self.0.wave() * CHUNK < taken;
        let (mut own, mut values, mut worst) = ([[0.0; K]; FOUR], [0.0; FOUR], 0);
        each_of_four!(C => {
            let flagged;
            (own[C], values[C], flagged) = f.ready::<A>(input[C]);
            worst = flag::worse(worst, flagged);
        });
        let mut behind = carried.value;
        let last = self.0.read(values[FOUR - 1].to_bits(), LANES as u32 - 1);
        if W::BLOCK {
            let (before, after, all) = self.follow(live, taken / CHUNK, last, carried.value);
            if !all {
                // Before the waves exchange values again.
                self.0.meet();
                return false;
            }
            (behind, carried.value) = (before, after);
        } else {
            carried.value = f32::from_bits(last);
        }
        carried.alarm = flag::worse(carried.alarm, if has { worst } else { 0 });

        let (mut arounds, mut nexts, mut maps) = ([0.0; FOUR], [0.0; FOUR], [STILL; FOUR]);
        let around = self.lane_of((l + LANES - 1) % LANES);
        each_of_four!(C => {
            // The value of the lane before, around: lane 0 has what the next block follows.
            arounds[C] = f32::from_bits(self.0.read(values[C].to_bits(), around));
            let before = if C == 0 { behind } else { arounds[(C + FOUR - 1) % FOUR] };
            nexts[C] = if l > 0 { arounds[C] } else { before };
            maps[C] = f.map(own[C], values[C], nexts[C]);
        });
        each_step!(k => {
            let from = self.earlier(k);
            each_of_four!(C => {
                let before = map_f64(maps[C].offset, |word| self.0.read(word, from));
                let joined = rates[k] * before;
                maps[C].offset += if self.reaches(k) { joined } else { STILL.offset };
            });
        });
        each_of_four!(C => { maps[C].rate = rates[STEPS]; });

        let mut starts = [carried.y; FOUR];
        if W::BLOCK {
            (starts, carried.y) =
                self.chain::<FOUR, _, _>(CHAIN, taken / LANES as u32, AffineF64, maps, carried.y, apply);
        }
        let mut out = [[0.0; M]; FOUR];
        // All that lanes exchange comes before the first store, which may be conditional.
        each_of_four!(C => {
            let y;
            (y, starts[C]) = self.running::<F, J, K, M>(maps[C], starts[C], carried);
            let (value, next) = (values[C], nexts[C]);
            out[C] = f.out(Step { live: true, own: own[C], value, next, y, y_next: starts[C] });
        });
        for m in 0..M {
            if let Some(sink) = outs[m]
                && has
            {
                let mut worst = 0;
                each_of_four!(C => { worst = flag::worse(worst, flag::finite(out[C][m])); });
                carried.alarm = flag::worse(carried.alarm, worst);
                if worst > flag::LIMIT {
                    each_of_four!(C => { out[C][m] = num::canonical(out[C][m]); });
                }
                each_of_four!(C => { sink.put(i - C * LANES, out[C][m]); });
            }
        }
        true
    }

    /// This lane's element of its wave's block, backwards, of a row of which `rest` elements are left, and
    /// whether there is one; if not, another.
    #[inline(always)]
    fn block(&self, span: Span, rest: u32) -> (usize, bool) {
        let l = self.place() as u32;
        let left = rest.saturating_sub(self.0.wave() * LANES as u32);
        // A wave of a block may have none left.
        let last = (if W::BLOCK { left.max(1) } else { left }) - 1;
        (span.start + (last - if l < left { l } else { 0 }) as usize, l < left)
    }

    /// Reads this lane's element of its wave's block, and its byte of the mask.
    #[inline(always)]
    fn read_block<const J: usize>(
        &self,
        span: Span,
        rest: u32,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
    ) -> ([f32; J], u32) {
        let (i, _) = self.block(span, rest);
        let mut input = [0.0; J];
        for j in 0..J {
            input[j] = ins[j].at(i);
        }
        (input, mask.bytes().map_or(1, |bytes| bytes.at(i).into()))
    }

    /// Takes a block of 32 elements for each wave.
    #[inline(always)]
    fn recur_block<const J: usize, const K: usize, const M: usize, F: Recurrence<J, K, M>>(
        &self,
        (i, inside): (usize, bool),
        (input, byte): ([f32; J], u32),
        outs: [Sink<'_>; M],
        carried: &mut Carried,
        f: F,
    ) {
        let l = self.place();
        let live = inside & (byte != 0);
        let (own, value, flagged) = f.ready::<A>(input);
        carried.alarm = flag::worse(carried.alarm, if live { flagged } else { 0 });

        // One more than the lane of the last live element before this lane, and of the whole block; 0 if
        // there is none.
        let votes = self.0.votes(live);
        let before = u32::BITS - (votes & ((1 << l) - 1)).leading_zeros();
        let latest = u32::BITS - votes.leading_zeros();
        let bits = value.to_bits();
        let mut behind = carried.value;
        let found = self.0.read(bits, latest.saturating_sub(1));
        if W::BLOCK {
            (behind, carried.value) = self.nearest((latest > 0).then_some(found), behind);
        } else {
            carried.value = if latest > 0 { f32::from_bits(found) } else { behind };
        }
        let found = f32::from_bits(self.0.read(bits, self.lane_of(before.saturating_sub(1) as usize)));
        let next = if before > 0 { found } else { behind };
        let value = if live { value } else { next };

        // Selected: LLVM would make a branch of a condition.
        let mut map = f.map(own, value, next);
        map.rate = select_unpredictable(live, map.rate, STILL.rate);
        map.offset = select_unpredictable(live, map.offset, STILL.offset);
        each_step!(k => { map = self.joined(map, k); });
        let mut start = carried.y;
        if W::BLOCK {
            let starts;
            (starts, carried.y) =
                self.chain::<1, _, _>(CHAIN, self.0.waves(), AffineF64, [map; FOUR], start, apply);
            start = starts[0];
        }
        let (y, y_next) = self.running::<F, J, K, M>(map, start, carried);
        let values = f.out(Step { live, own, value, next, y, y_next });
        for m in 0..M {
            if let Some(out) = outs[m] {
                carried.alarm = flag::worse(carried.alarm, if inside { flag::finite(values[m]) } else { 0 });
                if inside & (self.0.lane() < LANES) {
                    out.put(i, num::canonical(values[m]));
                }
            }
        }
    }

    /// The running value of this lane and of the one before, where the block's `start` follows, unless waves
    /// share the row and know it already.
    #[inline(always)]
    fn running<F: Recurrence<J, K, M>, const J: usize, const K: usize, const M: usize>(
        &self,
        map: Affine,
        start: f64,
        carried: &mut Carried,
    ) -> (f64, f64) {
        let start = if W::BLOCK { start } else { carried.y };
        let y = apply(start, map);
        let mut y_next = start;
        if F::Y_NEXT {
            let before = map_f64(y, |word| self.0.read(word, self.earlier(0)));
            y_next = if self.place() > 0 { before } else { start };
        }
        if !W::BLOCK {
            carried.y = map_f64(y, |word| self.0.read(word, LANES as u32 - 1));
        }
        (y, y_next)
    }

    /// A round of joins.
    #[inline(always)]
    fn joined(&self, map: Affine, k: usize) -> Affine {
        let before = AffineF64.map_words(map, |word| self.0.read(word, self.earlier(k)));
        AffineF64.join(if self.reaches(k) { before } else { STILL }, map)
    }
}

/// The value of a map.
#[inline(always)]
fn apply(y: f64, map: Affine) -> f64 {
    map.offset + map.rate * y
}
