//! The team as vectors: chunks of 4 × 32 lanes whose loops LLVM turns into SIMD under the caller's target
//! features. The file exceeds 400 lines because it is one impl of one trait.
//!
//! ```text
//! for each chunk of 128 elements: y = f(x) for all lanes; select by mask; store; add to the columns
//! ```
//!
//! Differences from the plain version: (1) a short last chunk is copied to a padded buffer with its padding
//! masked, so that there is only one loop body, the vector one; (2) results pass through stack buffers, whose
//! stores cannot alias an input, so that LLVM needs no run-time alias checks, of which it allows too few; (3)
//! columns that no element reaches are folded like the others: they hold +0, and x + 0 = x.

use crate::chunks::{number, sum_live};
use crate::lanes::{
    Add, Count, Fold, Live, TOGETHER, add_all, elements, only_output, stage, store_rest, store_whole,
};
use crate::level::{Picks, Piece};
use crate::pick::{self, Candidates};
use crate::recur::recur;
use crate::short::{self, Slots};
use core::cell::Cell;
use core::marker::PhantomData;
use lockstep_core::num::{self, Arith, Storage};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{Cells, In, Mask, Sink, Span, Stream, flag};
use lockstep_core::team::fold::{COLUMNS, LANES, butterfly, fold_columns};
use lockstep_core::team::order::{signed_order, unordered};
use lockstep_core::team::scan::scan_block;
use lockstep_core::team::{
    Direction, Element, Key, MAX_LARGEST, Number, PAIRED, PICKS, Picked, PickedRows, ROWS, Recurrence,
    Semigroup, Swept, Team, Terms, two_largest,
};

/// A team of vectors with arithmetic `A`, for the level `L`.
///
/// `L` only keeps the levels' code apart. A closure shared by two levels has two callers; LLVM then does not
/// inline it, it loses the level's target features, and every fused multiply-add becomes a call (measured: 57
/// ns a token instead of 1).
#[derive(Clone, Copy)]
pub(crate) struct Wide<A, L>(PhantomData<(A, L)>);

impl<A, L> Wide<A, L> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Wide(PhantomData)
    }
}

/// 128 elements: element c is column c.
pub(crate) type Chunk<T> = [T; COLUMNS];

/// Buffers on cache-line boundaries: a vector that straddles two lines costs double (measured: a third of the
/// time).
#[repr(C, align(64))]
pub(crate) struct Aligned<T>(pub(crate) T);

/// One row's view of an input: its elements, or a constant.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a, S = f32> {
    Row(&'a [S]),
    Constant,
}

/// The first 128 elements of `row`.
#[inline(always)]
pub(crate) fn chunk_of<T>(row: &[T]) -> &Chunk<T> {
    match row[..COLUMNS].try_into() {
        Ok(chunk) => chunk,
        Err(_) => unreachable!("a slice of 128 is an array of 128"),
    }
}

/// Copies numbers in the format S.
#[inline(always)]
fn widen<S: Storage>(to: &mut [f32], from: &[S]) {
    match S::numbers(from) {
        Some(numbers) => to.copy_from_slice(numbers),
        None => to.iter_mut().zip(from).for_each(|(to, from)| *to = from.widen()),
    }
}

/// A row with variant V.
struct Row<'a, const V: usize, A, L, K>(&'a Wide<A, L>, &'a K, usize);

impl<const V: usize, A: Arith, L: Picks, K: Kernel> Piece for Row<'_, V, A, L, K> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        self.1.row_as::<V, _>(self.0, self.2);
    }
}

/// A whole sweep.
struct Sweep<'a, S, const J: usize, const M: usize, const K: usize, const E: usize, A, L, F> {
    team: &'a Wide<A, L>,
    span: Span,
    mask: Mask<'a>,
    ins: [Stream<'a, S>; J],
    outs: [Sink<'a, S>; M],
    f: &'a F,
}

impl<S, const J: usize, const M: usize, const K: usize, const E: usize, A, L, F> Piece
    for Sweep<'_, S, J, M, K, E, A, L, F>
where
    S: Storage,
    A: Arith,
    L: Picks,
    F: Element<J, M, K, E>,
{
    type Out = Swept<K, E>;
    #[inline(always)]
    fn run(self) -> Swept<K, E> {
        self.team.sweep(self.span, self.mask, self.ins, self.outs, self.f)
    }
}

impl<A: Arith, L: Picks> Team for Wide<A, L> {
    type Arith = A;
    type Slots = Slots;

    #[inline(always)]
    fn row_as<const V: usize, K: Kernel>(&self, kernel: &K, row: usize) {
        L::apart(Row::<V, A, L, K>(self, kernel, row));
    }

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
        let length = span.len();
        let bytes = mask.bytes().map(|bytes| bytes.row(span));
        // Constants stay here for the whole row; a short last chunk is copied here over the padding.
        let Aligned(padded) = &mut Aligned([[0.0f32; COLUMNS]; J]);
        let Aligned(padded_mask) = &mut Aligned([1u8; COLUMNS]);
        let mut sources = [Source::Constant; J];
        for j in 0..J {
            match ins[j] {
                Stream::Array(array) => sources[j] = Source::Row(array.row(span)),
                Stream::Constant(value) => padded[j] = [value; COLUMNS],
            }
        }
        let mut sinks: [Option<&[Cell<S>]>; M] = [None; M];
        for m in 0..M {
            sinks[m] = outs[m].map(|out| out.row(span));
        }

        let Aligned(columns) = &mut Aligned([[0.0f64; COLUMNS]; K]);
        // Integers of the same order: their maximum is one instruction and, like the alarm, a reduction.
        let mut maxima = [signed_order(f32::NEG_INFINITY); E];
        let Aligned(max) = &mut Aligned([[0.0f32; COLUMNS]; E]);
        let Aligned(bits) = &mut Aligned([0u32; COLUMNS]);
        let Aligned(staged) = &mut Aligned([[0.0f32; COLUMNS]; 2]);
        let mut alarm = 0;
        let Aligned(out) = &mut Aligned([[0.0f32; COLUMNS]; M]);
        // Terms of several chunks that are added together, so that the columns, which do not fit in
        // registers, are read and written once for all of them.
        let Aligned(sums) = &mut Aligned([[[0.0f32; COLUMNS]; K]; TOGETHER]);
        let mut filled = 0;

        let mut start = 0;
        while start < length {
            let live = COLUMNS.min(length - start);
            let whole = live == COLUMNS;
            if !whole {
                for j in 0..J {
                    if let Source::Row(row) = sources[j] {
                        widen(&mut padded[j][..live], &row[start..start + live]);
                    }
                }
                *padded_mask = [0; COLUMNS];
                match bytes {
                    Some(bytes) => padded_mask[..live].copy_from_slice(&bytes[start..]),
                    None => padded_mask[..live].fill(1),
                }
            }
            if whole && S::CANONICAL {
                // Not numbers: all are widened first, in loops of a constant length.
                for j in 0..J {
                    if let Source::Row(row) = sources[j] {
                        widen(&mut padded[j], &row[start..start + COLUMNS]);
                    }
                }
            }
            let mut x = [&padded[0]; J];
            for j in 0..J {
                x[j] = match sources[j] {
                    Source::Row(row) if whole => S::numbers(&row[start..]).map_or(&padded[j], chunk_of),
                    _ => &padded[j],
                };
            }
            let m = match bytes {
                Some(bytes) if whole => chunk_of(&bytes[start..]),
                _ => &*padded_mask,
            };

            for source in &sources {
                if let Source::Row(row) = source {
                    prefetch(&row[start..]);
                }
            }
            for sink in sinks.iter().flatten() {
                prefetch(&sink[start..]);
            }
            if let Some(bytes) = bytes {
                prefetch(&bytes[start..]);
            }
            let live = Live::new(F::STAGES > 0 || M + K + E > 3, m, bits);
            // A short chunk computes its padding too, and masks it.
            let [first, second] = staged;
            if F::STAGES > 0 {
                alarm = alarm.max(stage::<A, J, M, K, E, F>(f, 0, None, x, live, first));
            }
            if F::STAGES > 1 {
                alarm = alarm.max(stage::<A, J, M, K, E, F>(f, 1, Some(first), x, live, second));
            }
            // A single sum is added chunk by chunk, which measured better.
            let sum = &mut sums[if K < 2 { 0 } else { filled }];
            // The only output of a whole chunk needs no buffer, if it is of numbers.
            let direct = match sinks.first() {
                Some(Some(sink)) if M == 1 && whole => S::cells(&sink[start..]).map(only_output::<M>),
                _ => None,
            };
            let out = direct.unwrap_or(&mut *out);
            alarm = alarm.max(elements::<A, J, M, K, E, F>(f, [first, second], x, live, out, sum, max));
            for e in 0..E {
                // A separate variable: an array of maxima becomes one short vector, and the loop stays
                // scalar.
                let mut maximum = maxima[e];
                for l in 0..COLUMNS {
                    maximum = maximum.max(signed_order(max[e][l]));
                }
                maxima[e] = maximum;
            }
            filled += 1;
            if K == 1 {
                add_all(&mut columns[0], [&sums[0][0]]);
                filled = 0;
            } else if K > 1 && filled == TOGETHER {
                L::apart(Add { columns, terms: [&sums[0], &sums[1]] });
                filled = 0;
            }
            if whole && (M > 1 || S::CANONICAL) {
                for j in 0..M {
                    if let Some(sink) = sinks[j] {
                        store_whole(&sink[start..], &out[j], S::narrow);
                    }
                }
            }
            start += COLUMNS;
        }
        for j in 0..M {
            if let Some(sink) = sinks[j] {
                store_rest(sink, &out[j], S::narrow);
            }
        }
        if K > 1 && filled == 1 {
            L::apart(Add { columns, terms: [&sums[0]] });
        }
        let mut swept = Swept { sums: [0.0; K], maxima: [f32::NEG_INFINITY; E], alarm };
        if !S::CANONICAL && alarm > flag::LIMIT {
            // Only an element with an alarm writes a NaN (see `Lane::out`).
            for cell in sinks.iter().flatten().copied().flatten() {
                cell.set(S::narrow(num::canonical(cell.get().widen())));
            }
        }
        if K == 1 {
            swept.sums[0] = num::canonical64(fold_columns(&columns[0]));
        } else if K > 1 {
            L::apart(Fold { columns, sums: &mut swept.sums });
        }
        for e in 0..E {
            swept.maxima[e] = num::canonical(unordered(maxima[e]));
        }
        swept
    }

    #[inline(always)]
    fn sweep_apart<
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
        L::apart(Sweep::<S, J, M, K, E, A, L, F> { team: self, span, mask, ins, outs, f })
    }

    #[inline(always)]
    fn sum<const K: usize>(&self, span: Span, f: impl Fn(usize) -> [f64; K]) -> [f64; K] {
        // A single call site of `f`, for eight elements at a time: numbers stored one by one cannot be loaded
        // as a vector soon after.
        let (mut columns, mut sums, mut start) = (None, [0.0; K], 0);
        while start < span.len() {
            let mut lanes = [[0.0f64; LANES]; K];
            for first in (0..LANES.min(span.len() - start)).step_by(8) {
                for l in first..first + 8 {
                    let there = start + l < span.len();
                    let terms = f(if there { span.start + start + l } else { span.end - 1 });
                    for k in 0..K {
                        lanes[k][l] = if there { 0.0 + terms[k] } else { 0.0 };
                    }
                }
            }
            if span.len() <= LANES {
                // The other columns are +0, and x + 0 = x.
                for k in 0..K {
                    sums[k] = num::canonical64(butterfly(lanes[k]));
                }
                return sums;
            }
            let columns = columns.get_or_insert([[0.0; COLUMNS]; K]);
            for k in 0..K {
                for l in 0..LANES {
                    columns[k][start % COLUMNS + l] += lanes[k][l];
                }
            }
            start += LANES;
        }
        if let Some(columns) = &columns {
            L::apart(Fold { columns, sums: &mut sums });
        }
        sums
    }

    #[inline(always)]
    fn sum_of<const J: usize, const K: usize, F: Terms<J, K>>(
        &self,
        span: Span,
        ins: [In<'_, f32>; J],
        f: F,
    ) -> [f64; K] {
        let rows = ins.map(|row| row.row(span));
        match span.len() {
            0..=16 => short::sums::<16, J, K, F>(rows, f),
            _ => short::sums::<LANES, J, K, F>(rows, f),
        }
    }

    #[inline(always)]
    fn slots(&self, count: usize, value: impl Fn(usize) -> f32) -> Slots {
        let mut slots = Slots([0.0; LANES]);
        for j in 0..count {
            slots.0[j] = value(j);
        }
        slots
    }

    #[inline(always)]
    fn shares<const SUM: bool, F: Key + Copy>(
        &self,
        count: usize,
        mut slots: Slots,
        key: F,
        factor: impl Fn(f64) -> f64,
    ) -> Slots {
        match count {
            0..=8 => short::shares::<16, 8, SUM, A, F>(&mut slots, count, key, factor),
            9..=16 => short::shares::<16, 16, SUM, A, F>(&mut slots, count, key, factor),
            _ => short::shares::<LANES, LANES, SUM, A, F>(&mut slots, count, key, factor),
        }
        slots
    }

    #[inline(always)]
    fn put_slots(&self, span: Span, out: Cells<'_, f32>, slots: Slots) {
        short::put(out.row(span), &slots);
    }

    #[inline(always)]
    fn fill(&self, span: Span, mask: Mask<'_>, out: Cells<'_, f32>, value: f32) {
        let cells = out.row(span);
        let mut values = [value; COLUMNS];
        let bytes = mask.bytes().map(|bytes| bytes.row(span));
        for start in (0..cells.len()).step_by(COLUMNS) {
            prefetch(&cells[start..]);
            if let Some(bytes) = bytes {
                let bytes = &bytes[start..];
                for (to, byte) in values.iter_mut().zip(bytes) {
                    *to = if *byte != 0 { value } else { 0.0 };
                }
            }
            if cells.len() - start >= COLUMNS {
                store_whole(&cells[start..], &values, |x| x);
            }
        }
        store_rest(cells, &values, |x| x);
    }

    #[inline(always)]
    fn sum_live<const J: usize, const K: usize, F: Terms<J, K>>(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
        f: F,
    ) -> [f64; K] {
        sum_live::<L, J, K, F>(span, mask, ins, f)
    }

    #[inline(always)]
    fn number<const J: usize, F: Number<J>>(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
        out: Cells<'_, u32>,
        f: F,
    ) {
        number::<A, J, F>(span, mask, ins, out, f);
    }

    #[inline(always)]
    fn max(&self, span: Span, f: impl Fn(usize) -> f32) -> f32 {
        // Compares integers: `num::max` takes ten cycles, each after the last.
        let mut maximum = signed_order(f32::NEG_INFINITY);
        for i in span.start..span.end {
            maximum = maximum.max(signed_order(f(i)));
        }
        num::canonical(unordered(maximum))
    }

    #[inline(always)]
    fn first(&self, span: Span, f: impl Fn(usize) -> bool) -> usize {
        (span.start..span.end).find(|i| f(*i)).unwrap_or(span.end)
    }

    #[inline(always)]
    fn common_prefix(&self, tokens: In<'_, u32>, a: usize, b: usize, length: usize) -> usize {
        let (a, b) = (tokens.row(Span::new(a, a + length)), tokens.row(Span::new(b, b + length)));
        // Most comparisons in a merge end at the first token.
        if length == 0 || a[0] != b[0] {
            return 0;
        }
        let mut start = 0;
        // Branch-free chunks, which LLVM vectorises.
        while length - start >= COLUMNS {
            let (a, b) = (chunk_of(&a[start..]), chunk_of(&b[start..]));
            let mut differ = 0;
            for l in 0..COLUMNS {
                differ |= a[l] ^ b[l];
            }
            if differ != 0 {
                break;
            }
            start += COLUMNS;
        }
        while start < length && a[start] == b[start] {
            start += 1;
        }
        start
    }

    #[inline(always)]
    fn count(&self, span: Span, mask: Mask<'_>) -> u64 {
        match mask.bytes() {
            Some(bytes) => L::apart(Count(bytes.row(span))),
            None => span.len() as u64,
        }
    }

    #[inline(always)]
    fn for_each(&self, span: Span, f: impl Fn(usize)) {
        for i in span.start..span.end {
            f(i);
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
        let element = |j: usize| match direction {
            Direction::Prefix => span.start + j,
            Direction::Suffix => span.end - 1 - j,
        };
        let mut carry = op.identity();
        let mut start = 0;
        while start < span.len() {
            let live = LANES.min(span.len() - start);
            let mut x = [op.identity(); LANES];
            for (l, lane) in x.iter_mut().enumerate().take(live) {
                let i = element(start + l);
                *lane = if mask.at(i) { get(i) } else { op.identity() };
            }
            carry = scan_block(op, carry, &mut x);
            for (l, value) in x.into_iter().enumerate().take(live) {
                put(element(start + l), value);
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
        recur::<A, J, K, M, F>(span, mask, ins, outs, behind, f)
    }

    #[inline(always)]
    fn largest<F: Key>(
        &self,
        span: Span,
        values: In<'_, f32>,
        bias: Option<In<'_, f32>>,
        count: usize,
        key: &F,
        put: impl Fn(usize, usize),
    ) -> Picked<Slots> {
        let row = values.row(span);
        let bias = bias.map(|bias| bias.row(Span::new(0, row.len())));
        prefetch(row);
        let (found, alarm) = match row.len() {
            0..=32 => pick::largest::<A, L, F, 32>(row, bias, count, key),
            33..=128 => pick::largest::<A, L, F, 128>(row, bias, count, key),
            129..=256 => pick::largest::<A, L, F, 256>(row, bias, count, key),
            _ => pick::largest::<A, L, F, MAX_LARGEST>(row, bias, count, key),
        };
        let first = found.keys.0[0];
        let mut picked = Picked { keys: found.keys, sum: first, first, bits: 0, alarm };
        for j in 0..count {
            let at = found.at.0[j] as usize;
            picked.sum = if j == 0 { first } else { picked.sum + found.keys.0[j] };
            picked.bits |= if at < 32 { 1 << at } else { 0 };
            put(j, at);
        }
        picked
    }

    #[inline(always)]
    fn largest_of_rows<const E: usize, F: Key>(
        &self,
        values: In<'_, f32>,
        start: usize,
        bias: Option<In<'_, f32>>,
        key: &F,
        alarms: Option<&[u32; ROWS]>,
        chosen: &[Cell<u8>],
    ) -> PickedRows {
        let rows = values.row(Span::new(start, start + ROWS * E));
        let mut picked =
            PickedRows { keys: [0.0; ROWS * PICKS], alarms: alarms.copied().unwrap_or([0; ROWS]) };
        let mut left = if !L::ROWS {
            0xffff
        } else if F::VALUE {
            match alarms {
                None => L::rows::<E, true, false>(rows, None, chosen, &mut picked, None),
                Some(_) => L::rows::<E, false, false>(rows, None, chosen, &mut picked, None),
            }
        } else if let (Some(near), None) = (F::NEAR, bias) {
            let candidates = &mut Candidates::new();
            let left = L::rows::<E, true, true>(rows, Some(near), chosen, &mut picked, Some(candidates));
            left | candidates.by_key::<A, F>(key, &mut picked)
        } else {
            let bias = bias.map(|bias| bias.row(Span::new(0, E)));
            let mut keys = [[0.0; E]; ROWS];
            picked.alarms = pick::keys_of_rows::<A, F, E>(&mut keys, rows, bias, key);
            L::rows::<E, false, false>(keys.as_flattened(), None, chosen, &mut picked, None)
        };
        while left != 0 {
            let r = left.trailing_zeros() as usize;
            self.largest_of_row::<E, F>(values, start, bias, key, chosen, r, &mut picked);
            left &= left - 1;
        }
        if let Some(alarms) = alarms {
            picked.alarms = *alarms;
        }
        picked
    }

    #[inline(always)]
    fn take_rows(&self, from: &[f32; ROWS * PICKS]) -> [f32; ROWS * PICKS] {
        L::take_rows(from)
    }

    #[inline(always)]
    fn pairs_of_rows(&self, keys: &[f32], alarms: &[u32; ROWS]) -> [f32; ROWS * PICKS] {
        let (groups, mut sums) = (keys.as_chunks::<PAIRED>().0, L::pairs_of_rows(keys));
        for r in 0..ROWS {
            if !L::ROWS || alarms[r] > flag::LIMIT {
                for i in r * PICKS..(r + 1) * PICKS {
                    sums[i] = two_largest(&groups[i]);
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn put_rows(&self, slots: &[f32; ROWS * PICKS], to: &[Cell<f32>]) {
        L::put_rows(slots, to);
    }

    #[inline(always)]
    fn place(&self, span: Span, count: usize, at: impl Fn(usize) -> usize, put: impl Fn(usize, usize)) {
        for j in 0..count {
            put(j, span.start + at(j));
        }
    }

    #[inline(always)]
    fn settle(&self) {}

    #[inline(always)]
    fn soon(&self, first: *const f32, length: usize, span: Span) {
        if span.end <= length {
            ask(first.wrapping_add(span.start).cast(), span.len() * size_of::<f32>());
        }
    }

    /// The x86-64 levels drain at the end of their rows.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn leave(&self, to: &[Cell<f32>], values: &[f32]) {
        crate::stream::stream(to, values);
    }

    #[inline(always)]
    fn leads(&self) -> bool {
        true
    }
}

/// Prefetches the chunk that is computed `AHEAD` chunks later. The hardware prefetcher stops at a page and
/// does not keep up with bursts of chunk reads (measured on 64 M tokens: see
/// docs/decisions/0004-cpu-speed.md).
#[inline(always)]
pub(crate) fn prefetch<T>(row: &[T]) {
    const AHEAD: usize = 8;
    let chunk = COLUMNS * size_of::<T>();
    ask(row.as_ptr().cast::<u8>().wrapping_add(AHEAD * chunk), chunk);
}

/// Prefetches `bytes` bytes from `first` on.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn ask(first: *const u8, bytes: usize) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in (0..bytes).step_by(64) {
        // SAFETY: a prefetch is a hint; it reads nothing and may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(line).cast()) };
    }
}

/// Other processors rely on their hardware prefetcher.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
fn ask(_first: *const u8, _bytes: usize) {}
