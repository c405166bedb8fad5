//! A team of GPU lanes on any [`Wave`], with the same bits as `cpu-ref/src/plain.rs`. Longer than 400 lines
//! because it is one impl of one trait.
//!
//! In a warp of 32, each lane holds four columns of a reduction, in a wave of 64 two: lane l has columns l,
//! l + WIDTH, …. All loads of a chunk are issued before the first is used, so that a chunk waits for memory
//! once. Past the end of a row its last element is read again instead of branching: no shuffle is under a
//! condition on which lanes disagree. Offsets in a row are 32 bits wide, as those of a batch are.
//!
//! A row may also belong to a block of waves (`block.rs`), in ops whose table line says so. The calls that
//! such an op does not make are refused by the compiler.

use crate::wave::Wave;
use core::marker::PhantomData;
use lockstep_core::num::{self, Arith, Storage};
use lockstep_core::ragged::{Cells, In, Mask, Sink, Span, Stream, flag};
use lockstep_core::team::fold::{COLUMNS, LANES, PER_LANE};
use lockstep_core::team::order::{LEAST, ordered, signed_order, unordered};
use lockstep_core::team::{Direction, Element, Key, Picked, Recurrence, Semigroup, Swept, Team};

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
pub(crate) use each_column;

/// Runs `$body` for 0 to 3, unrolled as above.
macro_rules! each_of_four {
    ($c:ident => $body:block) => {
        each_of_four!(@ $c $body 0 1 2 3)
    };
    (@ $c:ident $body:block $($n:literal)*) => {{
        $({
            const $c: usize = $n;
            $body
        })*
    }};
}
pub(crate) use each_of_four;

/// A team on a wave, with arithmetic `A`.
#[derive(Clone, Copy, Debug)]
pub struct GpuTeam<W, A>(pub(crate) W, PhantomData<A>);

impl<W: Wave, A: Arith> GpuTeam<W, A> {
    /// Whether loads are issued trips before their use: AMD's are waited for where they are written.
    pub(crate) const AHEAD: bool = W::WIDTH == LANES;

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

    /// Reads this lane's elements of a whole chunk, from `i` on, and their bytes of the mask. Nothing is
    /// tested here: a test of a byte would wait for it.
    #[inline(always)]
    pub(crate) fn read<S: Storage, const J: usize>(
        i: usize,
        mask: Mask<'_>,
        ins: [Stream<'_, S>; J],
    ) -> Read<J> {
        let mut read = Read::NONE;
        for j in 0..J {
            match ins[j] {
                Stream::Array(array) => {
                    each_column!(Q => { read.x[Q][j] = array.at(i + Q * W::WIDTH).widen(); });
                }
                Stream::Constant(value) => {
                    each_column!(Q => { read.x[Q][j] = value; });
                }
            }
        }
        // Last, because it may be tested where it is read.
        if let Some(bytes) = mask.bytes() {
            each_column!(Q => { read.byte[Q] = bytes.at(i + Q * W::WIDTH).into(); });
        }
        read
    }

    /// Moves column 1 of a lane to the place of column 0, and so on around.
    #[inline(always)]
    fn rotate<T: Copy>(columns: &mut [T; PER_LANE]) {
        let [a, b, c, d] = *columns;
        *columns = if W::WIDTH == LANES { [b, c, d, a] } else { [b, a, c, d] };
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
    fn fold<const K: usize>(&self, [a, b, c, d]: [[f64; K]; PER_LANE]) -> [f64; K] {
        let mut sums = [0.0; K];
        for k in 0..K {
            sums[k] = if W::WIDTH == LANES {
                (a[k] + b[k]) + (c[k] + d[k])
            } else {
                // Lane l < 32 holds columns l and l + 64, lane l + 32 holds l + 32 and l + 96.
                let low = a[k] + self.xor64(a[k], 32);
                let high = b[k] + self.xor64(b[k], 32);
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

    /// The sums of a sweep, those that are `counts` among them.
    #[inline(always)]
    fn sums<const K: usize, const E: usize>(&self, own: &mut Own<K, E>, counts: u32) -> [f64; K] {
        for k in 0..K {
            if counts >> k & 1 == 1 {
                own.columns[0][k] = f64::from(own.counts[k]);
            }
        }
        self.fold(own.columns)
    }

    /// The largest of each order.
    #[inline(always)]
    fn orders<const E: usize>(&self, orders: &mut [i32; E]) {
        for order in orders {
            *order = self.combine(order.cast_unsigned(), larger).cast_signed();
        }
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
    pub(crate) fn combine(&self, mut word: u32, f: impl Fn(u32, u32) -> u32) -> u32 {
        let mut step = W::WIDTH as u32 / 2;
        while step > 0 {
            word = f(word, self.0.xor(word, step));
            step /= 2;
        }
        self.0.first(word)
    }

    #[inline(always)]
    fn combine_max(&self, x: f32) -> f32 {
        f32::from_bits(self.combine(x.to_bits(), maximum))
    }
}

/// The maximum of the numbers of two words.
#[inline(always)]
fn maximum(a: u32, b: u32) -> u32 {
    num::max(f32::from_bits(a), f32::from_bits(b)).to_bits()
}

/// The larger of two signed words.
#[inline(always)]
pub(crate) fn larger(a: u32, b: u32) -> u32 {
    if a.cast_signed() > b.cast_signed() { a } else { b }
}

/// What a lane has read of a chunk.
#[derive(Clone, Copy)]
pub(crate) struct Read<const J: usize> {
    pub(crate) x: [[f32; J]; PER_LANE],
    pub(crate) byte: [u32; PER_LANE],
}

impl<const J: usize> Read<J> {
    pub(crate) const NONE: Self = Read { x: [[0.0; J]; PER_LANE], byte: [1; PER_LANE] };
}

/// What a lane of a sweep has gathered: its columns of K sums, its shares of those that are counts, the
/// orders of E maxima, the worst alarm.
pub(crate) struct Own<const K: usize, const E: usize> {
    pub(crate) columns: [[f64; K]; PER_LANE],
    counts: [u32; K],
    maxima: [i32; E],
    alarm: u32,
}

impl<const K: usize, const E: usize> Own<K, E> {
    /// Takes an element of column Q: gathers its results if it is `live`, and returns them with its terms,
    /// unless it is to `ADD` these to its column.
    #[inline(always)]
    pub(crate) fn take<
        const Q: usize,
        const ADD: bool,
        A: Arith,
        const J: usize,
        const M: usize,
        F: Element<J, M, K, E>,
    >(
        &mut self,
        f: &F,
        x: [f32; J],
        live: bool,
    ) -> ([f32; M], [f32; K]) {
        let input = |j: usize| x[j];
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
        // Two loops without branches: LLVM does not unroll a longer one (see `each_column`).
        let counted = |k: usize| F::COUNTS >> k & 1 == 1;
        let mut terms = [0.0; K];
        for k in 0..K {
            // A column is never -0, so adding +0 leaves it unchanged.
            if ADD {
                self.columns[Q][k] += if live & !counted(k) { f64::from(lane.sum[k]) } else { 0.0 };
            } else {
                terms[k] = if live { lane.sum[k] } else { 0.0 };
            }
        }
        for k in 0..K {
            self.counts[k] += u32::from(live & counted(k) & (lane.sum[k] != 0.0));
        }
        for e in 0..E {
            let order = signed_order(lane.max[e]);
            self.maxima[e] = if live & (order > self.maxima[e]) { order } else { self.maxima[e] };
        }
        self.alarm = flag::worse(self.alarm, if live { flag::worse(worst, lane.alarm) } else { 0 });
        let mut out = lane.out;
        for m in 0..M {
            out[m] = if live { out[m] } else { 0.0 };
        }
        (out, terms)
    }
}

impl<W: Wave, A: Arith> Team for GpuTeam<W, A> {
    type Arith = A;
    type Slots = f32;

    #[inline(always)]
    fn sweep<
        S: Storage,
        const J: usize,
        const M: usize,
        const K: usize,
        const E: usize,
        F: Element<J, M, K, E>,
    >(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_, S>; J],
        outs: [Sink<'_, S>; M],
        f: &F,
    ) -> Swept<K, E> {
        let mut own = Own {
            columns: [[0.0; K]; PER_LANE],
            counts: [0; K],
            maxima: [signed_order(f32::NEG_INFINITY); E],
            alarm: 0,
        };
        // Whole chunks need no bounds.
        let (lane, length, chunk) = (self.0.lane(), span.len() as u32, COLUMNS as u32);
        let mut left = length;
        if W::BLOCK {
            left = self.rounds(&mut own, span, mask, ins, outs, f);
        }
        macro_rules! take_chunk {
            ($read:expr, $i:expr) => {{
                let (read, i) = ($read, $i);
                each_column!(Q => {
                    let (out, _) = own.take::<Q, true, A, J, M, F>(f, read.x[Q], read.byte[Q] != 0);
                    for m in 0..M {
                        if let Some(sink) = outs[m] {
                            sink.put(i + Q * W::WIDTH, S::narrow(out[m]));
                        }
                    }
                });
            }};
        }
        // One long array: several chunks are read before the first is computed.
        let at_once = if K <= 1 { 4 } else { 2 };
        if Self::AHEAD && J == 1 && F::STAGES == 0 && !W::BLOCK {
            while left >= at_once * chunk {
                let i = span.end - left as usize + lane;
                let mut reads = [Read::NONE; 4];
                each_of_four!(C => {
                    if C < at_once as usize {
                        reads[C] = Self::read(i + C * COLUMNS, mask, ins);
                    }
                });
                self.0.settle();
                each_of_four!(C => {
                    if C < at_once as usize {
                        take_chunk!(reads[C], i + C * COLUMNS);
                    }
                });
                left -= at_once * chunk;
            }
        }
        // A chunk is read while the one before is computed, where that does not cost more warps than it gains
        // (docs/decisions/0032-first-gpu.md).
        let ahead = Self::AHEAD && (K <= 3 || M <= 1 || F::STAGES > 1);
        let mut read = Read::NONE;
        if ahead && left >= chunk && !W::BLOCK {
            read = Self::read(span.end - left as usize + lane, mask, ins);
        }
        let short = |offset: u32| span.start + offset as usize;
        while left >= chunk && !W::BLOCK {
            let offset = length - left + lane as u32;
            let i = if F::SHORT_OFFSETS { short(offset) } else { span.end - left as usize + lane };
            let coming = if ahead && F::SHORT_OFFSETS {
                Self::read(short(if left >= 2 * chunk { offset + chunk } else { offset }), mask, ins)
            } else if ahead {
                Self::read(if left >= 2 * chunk { i + COLUMNS } else { i }, mask, ins)
            } else {
                read = Self::read(i, mask, ins);
                read
            };
            // `ptxas` moves loads to their uses, but not past this.
            self.0.settle();
            take_chunk!(read, i);
            read = coming;
            left -= chunk;
        }
        // One column after the other: the end of a row adds a quarter of a chunk's code.
        let mut turned = 0;
        while left > 0 {
            let inside = (lane as u32) < left;
            let i = span.end - if inside { left as usize - lane } else { 1 };
            let mut x = [0.0; J];
            for j in 0..J {
                x[j] = ins[j].at(i);
            }
            let (out, _) = own.take::<0, true, A, J, M, F>(f, x, inside & mask.at(i));
            for m in 0..M {
                if let Some(sink) = outs[m]
                    && inside
                {
                    sink.put(i, S::narrow(out[m]));
                }
            }
            Self::rotate(&mut own.columns);
            turned += 1;
            left = left.saturating_sub(W::WIDTH as u32);
        }
        while turned % (COLUMNS / W::WIDTH) > 0 {
            Self::rotate(&mut own.columns);
            turned += 1;
        }
        let mut swept = Swept { sums: [0.0; K], maxima: [f32::NEG_INFINITY; E], alarm: 0 };
        swept.alarm = self.combine(own.alarm, flag::worse);
        let mut orders = own.maxima;
        if W::BLOCK {
            swept.sums = self.sums(&mut own, F::COUNTS);
            self.orders(&mut orders);
            self.join(&mut swept, &mut orders, F::COUNTS);
        }
        if !S::CANONICAL && swept.alarm > flag::LIMIT {
            // Only an element with an alarm writes a NaN (see `Lane::out`).
            for m in 0..M {
                if let Some(out) = outs[m] {
                    let mut offset = self.thread();
                    while offset < length as usize {
                        let i = span.start + offset;
                        out.put(i, S::narrow(num::canonical(out.get(i).widen())));
                        offset += self.threads();
                    }
                }
            }
        }
        if !W::BLOCK {
            swept.sums = self.sums(&mut own, F::COUNTS);
            self.orders(&mut orders);
        }
        for e in 0..E {
            swept.maxima[e] = num::canonical(unordered(orders[e]));
        }
        swept
    }

    #[inline(always)]
    fn sum<const K: usize>(&self, span: Span, f: impl Fn(usize) -> [f64; K]) -> [f64; K] {
        let length = span.len();
        let mut columns = [[0.0f64; K]; PER_LANE];
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
                    columns[Q][k] += terms[Q][k];
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

    /// One pass. A lane keeps its largest number and the trip in which that first came up; then the first
    /// trip of all lanes is searched.
    #[inline(always)]
    fn top<S: Storage>(&self, span: Span, values: In<'_, S>) -> (f32, u32) {
        const TRIP: u32 = 4 * COLUMNS as u32;
        // AMD has no maximum that keeps NaN in one instruction.
        if !Self::AHEAD {
            return lockstep_core::logits::top(self, span, values);
        }
        let (lane, length) = (self.0.lane(), span.len() as u32);
        let (mut largest, mut at, mut start) = (f32::NEG_INFINITY, 0, self.0.wave() * TRIP);
        let mut keep = |found: f32, start: u32| {
            at = if found > largest { start } else { at };
            largest = self.0.larger(largest, found);
        };
        // Whole trips; in a block, those of this wave.
        let whole = length / TRIP * TRIP;
        while if W::BLOCK { start < whole } else { length - start >= TRIP } {
            let i = span.start + start as usize + lane;
            let mut read = [[0.0; PER_LANE]; 4];
            each_of_four!(C => {
                each_column!(Q => { read[C][Q] = values.at(i + C * COLUMNS + Q * W::WIDTH).widen(); });
            });
            self.0.settle();
            let mut found = f32::NEG_INFINITY;
            each_of_four!(C => {
                each_column!(Q => { found = self.0.larger(found, read[C][Q]); });
            });
            keep(found, start);
            start += self.0.waves() * TRIP;
        }
        let rest = if W::BLOCK { whole } else { start };
        if W::BLOCK {
            start = if self.0.wave() == 0 { rest } else { length };
        }
        while start < length {
            let offset = start + lane as u32;
            if offset < length {
                keep(values.at(span.start + offset as usize).widen(), rest);
            }
            start += W::WIDTH as u32;
        }
        let least = |a, b| if a < b { a } else { b };
        let found = self.combine_max(largest).to_bits();
        let found = self.across(found, f32::NEG_INFINITY.to_bits(), maximum);
        let found = num::canonical(f32::from_bits(found));
        let trip = self.combine(if largest == found { at } else { u32::MAX }, least);
        let trip = self.across(trip, u32::MAX, least);
        let mut first = u32::MAX;
        // In a row with NaN no lane has the largest: there is no trip.
        let mut offset = trip.wrapping_add(lane as u32);
        while trip < length && offset < length && offset - trip < TRIP {
            let here = values.at(span.start + offset as usize).widen() == found;
            first = if here & (offset < first) { offset } else { first };
            offset += W::WIDTH as u32;
        }
        let first = self.combine(first, least);
        (found, if first < length { first } else { 0 })
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

    /// Four bytes at a time.
    #[inline(always)]
    fn count(&self, span: Span, mask: Mask<'_>) -> u64 {
        let Some(bytes) = mask.bytes() else { return span.len() as u64 };
        let lane = self.0.lane();
        let (before, words, after) = bytes.words(span);
        let edge = |part: Span| u32::from(lane < part.len() && bytes.at(part.start + lane) != 0);
        let mut count = if self.0.wave() == 0 { edge(before) + edge(after) } else { 0 };
        let (length, mut start) = (words.len() as u32, self.0.wave() * COLUMNS as u32);
        while start < length {
            let mut word = [0; PER_LANE];
            each_column!(Q => {
                let offset = start + (lane + Q * W::WIDTH) as u32;
                if offset < length {
                    word[Q] = words.at(offset as usize);
                }
            });
            each_column!(Q => {
                // The top bit of each byte that is not 0.
                let bits = (((word[Q] & 0x7f7f_7f7f) + 0x7f7f_7f7f) | word[Q]) & 0x8080_8080;
                count += bits.count_ones();
            });
            start += self.0.waves() * COLUMNS as u32;
        }
        // Fewer than 2³² elements, because offsets are u32.
        let sum = |a, b| a + b;
        u64::from(self.across(self.combine(count, sum), 0, sum))
    }

    #[inline(always)]
    fn for_each(&self, span: Span, f: impl Fn(usize)) {
        let mut i = span.start + self.thread();
        while i < span.end {
            f(i);
            i += self.threads();
        }
    }

    #[inline(always)]
    fn scan<S: Semigroup>(
        &self,
        op: S,
        span: Span,
        mask: Mask<'_>,
        direction: Direction,
        get: impl Fn(usize) -> S::Value,
        put: impl Fn(usize, S::Value),
    ) {
        self.scan_row(op, span, mask, direction, get, put);
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
        self.recur_row(span, mask, ins, outs, behind, f)
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
        const { assert!(!W::BLOCK, "a row of one wave") };
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
        const { assert!(!W::BLOCK, "a row of one wave") };
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
        const { assert!(!W::BLOCK, "a row of one wave") };
        let j = self.0.lane();
        if j < span.len() {
            out.put(span.start + j, slots);
        }
    }

    #[inline(always)]
    fn place(&self, span: Span, count: usize, at: impl Fn(usize) -> usize, put: impl Fn(usize, usize)) {
        const { assert!(!W::BLOCK, "a row of one wave") };
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
        self.0.meet();
    }

    #[inline(always)]
    fn leads(&self) -> bool {
        self.thread() == 0
    }
}
