//! A team of GPU lanes on any [`Wave`], with the same bits as `cpu-ref/src/plain.rs`. Longer than 400 lines
//! because it is one impl of one trait.
//!
//! In a warp of 32, each lane holds four columns of a reduction, in a wave of 64 two: lane l has columns l,
//! l + WIDTH, …. Loads of four (two) elements are issued before the first is used, to keep enough bytes in
//! flight. Past the end of a row its last element is read again instead of branching: no shuffle is under a
//! condition on which lanes disagree.

use crate::wave::Wave;
use core::marker::PhantomData;
use lockstep_core::num::{self, Arith};
use lockstep_core::ragged::{Cells, In, Mask, Sink, Span, Stream, flag};
use lockstep_core::team::fold::{COLUMNS, LANES, PER_LANE};
use lockstep_core::team::order::{LEAST, ordered, unordered};
use lockstep_core::team::recur::STILL;
use lockstep_core::team::scan::map_f64;
use lockstep_core::team::{
    AffineF64, Direction, Element, Key, Picked, Recurrence, Semigroup, Step, Swept, Team,
};

/// Runs `$body` for each column of a lane. Unrolled by hand, because an array that is indexed by a loop that
/// LLVM did not unroll lives in local memory (measured: 624 bytes of stack a thread).
macro_rules! each_column {
    ($q:ident => $body:block) => {{
        const $q: usize = 0;
        $body
    }
    {
        const $q: usize = 1;
        $body
    }
    if W::WIDTH == LANES {
        {
            const $q: usize = 2;
            $body
        }
        {
            const $q: usize = 3;
            $body
        }
    }};
}

/// A team on a wave, with arithmetic `A`.
#[derive(Clone, Copy, Debug)]
pub struct GpuTeam<W, A>(W, PhantomData<A>);

impl<W: Wave, A: Arith> GpuTeam<W, A> {
    /// Creates the team of this thread's wave.
    #[inline(always)]
    pub fn new(wave: W) -> Self {
        GpuTeam(wave, PhantomData)
    }

    /// Offset of element `q` of this lane in the chunk that starts at `start`.
    #[inline(always)]
    fn offset(&self, start: usize, q: usize) -> usize {
        start + q * W::WIDTH + self.0.lane()
    }

    #[inline(always)]
    fn xor64(&self, x: f64, mask: u32) -> f64 {
        let bits = x.to_bits();
        let (low, high) = (self.0.xor(bits as u32, mask), self.0.xor((bits >> 32) as u32, mask));
        f64::from_bits(u64::from(high) << 32 | u64::from(low))
    }

    /// The fixed fold of [`lockstep_core::team::fold`], for K reductions side by side. Addition commutes, so
    /// every lane ends with the bits of lane 0.
    #[inline(always)]
    fn fold<const K: usize>(&self, columns: [[f64; PER_LANE]; K]) -> [f64; K] {
        let mut sums = [0.0; K];
        for k in 0..K {
            let columns = columns[k];
            sums[k] = if W::WIDTH == LANES {
                (columns[0] + columns[1]) + (columns[2] + columns[3])
            } else {
                // Lane l < 32 holds columns l and l + 64, lane l + 32 holds l + 32 and l + 96.
                let low = columns[0] + self.xor64(columns[0], 32);
                let high = columns[1] + self.xor64(columns[1], 32);
                low + high
            };
        }
        sums = self.butterfly::<16, K>(sums);
        sums = self.butterfly::<8, K>(sums);
        sums = self.butterfly::<4, K>(sums);
        sums = self.butterfly::<2, K>(sums);
        sums = self.butterfly::<1, K>(sums);
        for sum in &mut sums {
            let bits = num::canonical64(*sum).to_bits();
            let (low, high) = (self.0.first(bits as u32), self.0.first((bits >> 32) as u32));
            *sum = f64::from_bits(u64::from(high) << 32 | u64::from(low));
        }
        sums
    }

    #[inline(always)]
    fn butterfly<const MASK: u32, const K: usize>(&self, mut sums: [f64; K]) -> [f64; K] {
        for sum in &mut sums {
            *sum += self.xor64(*sum, MASK);
        }
        sums
    }

    /// Combines one word of every lane by an operation that is commutative and associative.
    #[inline(always)]
    fn combine(&self, mut word: u32, f: impl Fn(u32, u32) -> u32) -> u32 {
        let mut step = W::WIDTH as u32 / 2;
        while step > 0 {
            word = f(word, self.0.xor(word, step));
            step /= 2;
        }
        self.0.first(word)
    }

    #[inline(always)]
    fn combine_max(&self, x: f32) -> f32 {
        let larger = |a: u32, b: u32| num::max(f32::from_bits(a), f32::from_bits(b)).to_bits();
        f32::from_bits(self.combine(x.to_bits(), larger))
    }
}

impl<W: Wave, A: Arith> Team for GpuTeam<W, A> {
    type Arith = A;
    type Slots = f32;

    #[inline(always)]
    fn sweep<const J: usize, const M: usize, const K: usize, const E: usize, F: Element<J, M, K, E>>(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
        outs: [Sink<'_>; M],
        f: &F,
    ) -> Swept<K, E> {
        let length = span.len();
        let mut columns = [[0.0f64; PER_LANE]; K];
        let mut maxima = [f32::NEG_INFINITY; E];
        let mut alarm = 0;
        let mut start = 0;
        while start < length {
            let mut x = [[0.0f32; J]; PER_LANE];
            let mut inside = [false; PER_LANE];
            let mut live = [false; PER_LANE];
            each_column!(Q => {
                let offset = self.offset(start, Q);
                inside[Q] = offset < length;
                let i = span.start + if inside[Q] { offset } else { length - 1 };
                live[Q] = inside[Q] & mask.at(i);
                for j in 0..J {
                    x[Q][j] = ins[j].at(i);
                }
            });
            each_column!(Q => {
                let input = |j: usize| x[Q][j];
                let mut staged = [0.0; 2];
                let mut worst = 0;
                if F::STAGES > 0 {
                    (staged[0], worst) = f.stage::<A>(0, staged, input);
                }
                if F::STAGES > 1 {
                    let (value, alarm) = f.stage::<A>(1, staged, input);
                    (staged[1], worst) = (value, flag::worse(worst, alarm));
                }
                let lane = f.element::<A>(staged, input);
                let i = span.start + self.offset(start, Q);
                for m in 0..M {
                    if let Some(out) = outs[m] {
                        let value = if live[Q] { num::canonical(lane.out[m]) } else { 0.0 };
                        if inside[Q] {
                            out.put(i, value);
                        }
                    }
                }
                for k in 0..K {
                    // A column is never -0, so adding +0 leaves it unchanged.
                    columns[k][Q] += if live[Q] { f64::from(lane.sum[k]) } else { 0.0 };
                }
                for e in 0..E {
                    let value = if live[Q] { lane.max[e] } else { f32::NEG_INFINITY };
                    maxima[e] = num::max(maxima[e], value);
                }
                alarm = flag::worse(alarm, if live[Q] { flag::worse(worst, lane.alarm) } else { 0 });
            });
            start += COLUMNS;
        }
        let mut swept = Swept { sums: [0.0; K], maxima: [f32::NEG_INFINITY; E], alarm: 0 };
        swept.sums = self.fold(columns);
        for e in 0..E {
            swept.maxima[e] = self.combine_max(maxima[e]);
        }
        swept.alarm = self.combine(alarm, flag::worse);
        swept
    }

    #[inline(always)]
    fn sum<const K: usize>(&self, span: Span, f: impl Fn(usize) -> [f64; K]) -> [f64; K] {
        let length = span.len();
        let mut columns = [[0.0f64; PER_LANE]; K];
        let mut start = 0;
        while start < length {
            let mut terms = [[0.0f64; K]; PER_LANE];
            each_column!(Q => {
                let offset = self.offset(start, Q);
                if offset < length {
                    terms[Q] = f(span.start + offset);
                }
            });
            each_column!(Q => {
                for k in 0..K {
                    columns[k][Q] += terms[Q][k];
                }
            });
            start += COLUMNS;
        }
        self.fold(columns)
    }

    #[inline(always)]
    fn max(&self, span: Span, f: impl Fn(usize) -> f32) -> f32 {
        let mut maximum = f32::NEG_INFINITY;
        let mut i = span.start + self.0.lane();
        while i < span.end {
            maximum = num::max(maximum, f(i));
            i += W::WIDTH;
        }
        self.combine_max(maximum)
    }

    /// First one element per lane, because most comparisons of a merge end there; then enough to keep memory
    /// busy between two tests whether one was found.
    #[inline(always)]
    fn first(&self, span: Span, f: impl Fn(usize) -> bool) -> usize {
        let length = span.len();
        let mut start = 0;
        while start < length {
            let mut least = u32::MAX;
            // Beyond the end, the last element again.
            let mut look = |offset: usize| {
                let offset = if offset < length { offset } else { length - 1 };
                let at = if f(span.start + offset) { offset as u32 } else { u32::MAX };
                least = if at < least { at } else { least };
            };
            let looked = if start == 0 { W::WIDTH } else { 2 * COLUMNS };
            if start == 0 {
                look(self.0.lane());
            } else {
                each_column!(Q => { look(self.offset(start, Q)); });
                each_column!(Q => { look(self.offset(start + COLUMNS, Q)); });
            }
            let found = self.combine(least, |a, b| if a < b { a } else { b });
            if found != u32::MAX {
                return span.start + found as usize;
            }
            start += looked;
        }
        span.end
    }

    #[inline(always)]
    fn count(&self, span: Span, mask: Mask<'_>) -> u64 {
        let Some(bytes) = mask.bytes() else { return span.len() as u64 };
        let (length, mut count, mut start) = (span.len(), 0, 0);
        while start < length {
            each_column!(Q => {
                let offset = self.offset(start, Q);
                let i = span.start + if offset < length { offset } else { length - 1 };
                count += u32::from((offset < length) & (bytes.at(i) != 0));
            });
            start += COLUMNS;
        }
        // Fewer than 2³² elements, because offsets are u32.
        u64::from(self.combine(count, |a, b| a + b))
    }

    #[inline(always)]
    fn for_each(&self, span: Span, f: impl Fn(usize)) {
        let mut i = span.start + self.0.lane();
        while i < span.end {
            f(i);
            i += W::WIDTH;
        }
    }

    #[inline(always)]
    fn scan<S: Semigroup>(
        &self,
        op: S,
        span: Span,
        direction: Direction,
        get: impl Fn(usize) -> S::Value,
        put: impl Fn(usize, S::Value),
    ) {
        // Blocks have 32 elements on every target; the upper half of a wave of 64 repeats the lower half's
        // computation.
        let l = self.0.lane() % LANES;
        let half = (self.0.lane() - l) as u32;
        let own = self.0.lane() < LANES;
        let element = |j: usize| match direction {
            Direction::Prefix => span.start + j,
            Direction::Suffix => span.end - 1 - j,
        };
        let length = span.len();
        let mut carry = op.identity();
        let mut start = 0;
        while start < length {
            let inside = start + l < length;
            let mut x = op.identity();
            if inside {
                x = get(element(start + l));
            }
            let mut step = 1;
            while step < LANES {
                let from = half + if l >= step { l - step } else { l } as u32;
                let before = op.map_words(x, |word| self.0.read(word, from));
                let joined = op.join(before, x);
                x = if l >= step { joined } else { x };
                step *= 2;
            }
            x = op.join(carry, x);
            carry = op.map_words(x, |word| self.0.read(word, LANES as u32 - 1));
            if inside & own {
                put(element(start + l), x);
            }
            start += LANES;
        }
    }

    #[inline(always)]
    fn recur<const J: usize, const K: usize, const M: usize, F: Recurrence<J, K, M>>(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
        outs: [Sink<'_>; M],
        behind: f32,
        f: F,
    ) -> u32 {
        // As in `scan`, the upper half of a wave of 64 repeats the lower half's computation.
        let l = self.0.lane() % LANES;
        let half = (self.0.lane() - l) as u32;
        let lower = half + if l > 0 { l - 1 } else { 0 } as u32;
        let last = LANES as u32 - 1;
        let own_half = self.0.lane() < LANES;
        let length = span.len();
        let (mut carry, mut carried, mut alarm) = (0.0, behind, 0);
        let mut start = 0;
        while start < length {
            let inside = start + l < length;
            let i = span.end - 1 - if inside { start + l } else { start };
            let live = inside & mask.at(i);
            let mut input = [0.0; J];
            for j in 0..J {
                input[j] = ins[j].at(i);
            }
            let (own, value, flagged) = f.ready::<A>(input);
            alarm = flag::worse(alarm, if live { flagged } else { 0 });

            // One more than the lane of the last live element up to this lane; 0 if there is none in this
            // block.
            let mut latest = if live { l as u32 + 1 } else { 0 };
            let mut step = 1;
            while step < LANES {
                let from = half + if l >= step { l - step } else { l } as u32;
                let before = self.0.read(latest, from);
                latest = if before > latest { before } else { latest };
                step *= 2;
            }
            let before = self.0.read(latest, lower);
            let before = if l > 0 { before } else { 0 };
            let latest = self.0.read(latest, last);
            let bits = value.to_bits();
            let found = f32::from_bits(self.0.read(bits, half + if before > 0 { before - 1 } else { 0 }));
            let next = if before > 0 { found } else { carried };
            let value = if live { value } else { next };
            let found = f32::from_bits(self.0.read(bits, if latest > 0 { latest - 1 } else { 0 }));
            carried = if latest > 0 { found } else { carried };

            let map = f.map(own, value, next);
            let mut map = if live { map } else { STILL };
            let mut step = 1;
            while step < LANES {
                let from = half + if l >= step { l - step } else { l } as u32;
                let before = AffineF64.map_words(map, |word| self.0.read(word, from));
                map = AffineF64.join(if l >= step { before } else { STILL }, map);
                step *= 2;
            }
            let y = map.offset + map.rate * carry;
            let before = map_f64(y, |word| self.0.read(word, lower));
            let y_next = if l > 0 { before } else { carry };
            carry = map_f64(y, |word| self.0.read(word, last));
            let values = f.out(Step { live, own, value, next, y, y_next });
            for m in 0..M {
                if let Some(out) = outs[m] {
                    alarm = flag::worse(alarm, if inside { flag::finite(values[m]) } else { 0 });
                    if inside & own_half {
                        out.put(i, num::canonical(values[m]));
                    }
                }
            }
            start += LANES;
        }
        self.combine(alarm, flag::worse)
    }

    /// Every pick is a pass over the row, whose elements come from cache: the keys of a lane would be an
    /// array in registers whose size only the launch knows.
    #[inline(always)]
    fn largest<F: Key>(
        &self,
        span: Span,
        values: In<'_, f32>,
        bias: Option<In<'_, f32>>,
        count: usize,
        key: &F,
        put: impl Fn(usize, usize),
    ) -> Picked<f32> {
        // Orders as unsigned integers; 0 is below the order of every number.
        let unsigned = |order: i32| order.cast_unsigned() ^ LEAST.cast_unsigned();
        let length = span.len();
        let (mut last, mut last_at, mut alarm) = (u32::MAX, 0, 0);
        let (mut sum, mut first, mut keys, mut bits) = (0.0, 0.0, 0.0, 0);
        let mut j = 0;
        while j < count {
            let (mut best, mut at) = (0, u32::MAX);
            let mut e = self.0.lane();
            while e < length {
                let value = values.at(span.start + e);
                let bias = match bias {
                    Some(bias) => bias.at(e),
                    None => 0.0,
                };
                alarm = flag::worse(alarm, flag::worse(flag::finite(value), flag::finite(bias)));
                let order = unsigned(ordered(key.key::<A>(value, bias, e)));
                let behind = (j == 0) | (order < last) | ((order == last) & (e as u32 > last_at));
                let better = behind & (order > best);
                best = if better { order } else { best };
                at = if better { e as u32 } else { at };
                e += W::WIDTH;
            }
            last = self.combine(best, flag::worse);
            let own = if best == last { at } else { u32::MAX };
            last_at = self.combine(own, |a, b| if a < b { a } else { b });
            let picked = unordered((last ^ LEAST.cast_unsigned()).cast_signed());
            first = if j == 0 { picked } else { first };
            keys = if self.0.lane() == j { picked } else { keys };
            sum = if j == 0 { picked } else { sum + picked };
            bits |= if last_at < 32 { 1 << (last_at & 31) } else { 0 };
            if self.0.lane() == j % W::WIDTH {
                put(j, last_at as usize);
            }
            j += 1;
        }
        Picked { keys, sum, first, bits, alarm: self.combine(alarm, flag::worse) }
    }

    #[inline(always)]
    fn slots(&self, count: usize, value: impl Fn(usize) -> f32) -> f32 {
        if self.0.lane() < count { value(self.0.lane()) } else { 0.0 }
    }

    #[inline(always)]
    fn shares<const SUM: bool, F: Key + Copy>(
        &self,
        count: usize,
        slots: f32,
        key: F,
        factor: impl Fn(f64) -> f64,
    ) -> f32 {
        let numerator = num::canonical(key.key::<A>(slots, 0.0, self.0.lane()));
        let mut total = 0.0;
        if SUM {
            [total] = self.sum(Span::new(0, count), move |_| [f64::from(numerator)]);
        }
        num::canonical((f64::from(numerator) * factor(total)) as f32)
    }

    #[inline(always)]
    fn put_slots(&self, span: Span, out: Cells<'_, f32>, slots: f32) {
        let j = self.0.lane();
        if j < span.len() {
            out.put(span.start + j, slots);
        }
    }

    #[inline(always)]
    fn place(&self, span: Span, count: usize, at: impl Fn(usize) -> usize, put: impl Fn(usize, usize)) {
        let mut j = 0;
        while j < count {
            let offset = at(j);
            if self.0.lane() == offset % W::WIDTH {
                put(j, span.start + offset);
            }
            j += 1;
        }
    }

    #[inline(always)]
    fn settle(&self) {
        self.0.settle();
    }

    #[inline(always)]
    fn leads(&self) -> bool {
        self.0.lane() == 0
    }
}
