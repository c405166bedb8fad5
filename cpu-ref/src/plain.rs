//! **This file is the contract.** A team on the CPU, one lane after the other: every other backend must
//! return exactly what it returns, bit for bit. No SIMD, no threads, no hardware fused multiply-add.

use core::array::from_fn;
use core::ops::Range;
use lockstep_core::num::{self, Soft, Storage};
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{Cells, In, Mask, Sink, Span, Stream, flag};
use lockstep_core::team::fold::{COLUMNS, LANES, fold_columns};
use lockstep_core::team::order::{LEAST, ordered, unordered};
use lockstep_core::team::recur::{STILL, recur_block};
use lockstep_core::team::scan::scan_block;
use lockstep_core::team::{Direction, Element, Key, Picked, Recurrence, Semigroup, Step, Swept, Team};

/// The plain team.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

/// Runs the rows `rows` of `kernel`, one after the other.
#[inline]
pub fn run<K: Kernel>(kernel: &K, rows: Range<usize>) {
    for row in rows {
        kernel.row(&Plain, row);
    }
}

impl Team for Plain {
    type Arith = Soft;
    type Slots = [f32; LANES];
    // Mutants of the formulas are built for this level alone, and must reach every variant.
    const FAST_VARIANTS: bool = cfg!(lockstep_plain_variants);

    #[inline(never)]
    fn row_as<const V: usize, K: Kernel>(&self, kernel: &K, row: usize) {
        kernel.row_as::<V, Plain>(self, row);
    }

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
        let mut columns = [[0.0f64; COLUMNS]; K];
        let mut maxima = [f32::NEG_INFINITY; E];
        let mut alarm = 0;
        for i in span.start..span.end {
            let live = mask.at(i);
            let input = |j: usize| ins[j].at(i);
            let mut staged = [0.0; 2];
            let mut first = 0;
            for number in 0..F::STAGES {
                let (value, alarm) = f.stage::<Soft>(number, staged, input);
                staged[number] = value;
                first = first.max(alarm);
            }
            let lane = f.element::<Soft>(staged, input);
            for (out, value) in outs.iter().zip(lane.out) {
                if let Some(out) = out {
                    out.put(i, S::narrow(if live { num::canonical(value) } else { 0.0 }));
                }
            }
            if !live {
                continue;
            }
            for (columns, term) in columns.iter_mut().zip(lane.sum) {
                columns[(i - span.start) % COLUMNS] += f64::from(term);
            }
            for (maximum, value) in maxima.iter_mut().zip(lane.max) {
                *maximum = num::max(*maximum, value);
            }
            alarm = alarm.max(lane.alarm).max(first);
        }
        Swept { sums: from_fn(|k| num::canonical64(fold_columns(&columns[k]))), maxima, alarm }
    }

    fn sum<const K: usize>(&self, span: Span, f: impl Fn(usize) -> [f64; K]) -> [f64; K] {
        let mut columns = [[0.0f64; COLUMNS]; K];
        for i in span.start..span.end {
            for (columns, term) in columns.iter_mut().zip(f(i)) {
                columns[(i - span.start) % COLUMNS] += term;
            }
        }
        from_fn(|k| num::canonical64(fold_columns(&columns[k])))
    }

    fn max(&self, span: Span, f: impl Fn(usize) -> f32) -> f32 {
        (span.start..span.end).fold(f32::NEG_INFINITY, |maximum, i| num::max(maximum, f(i)))
    }

    fn count(&self, span: Span, mask: Mask<'_>) -> u64 {
        (span.start..span.end).map(|i| u64::from(mask.at(i))).sum()
    }

    fn for_each(&self, span: Span, f: impl Fn(usize)) {
        (span.start..span.end).for_each(f);
    }

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
        for block in (0..span.len()).step_by(LANES) {
            let live = LANES.min(span.len() - block);
            let on = |l: usize| l < live && mask.at(element(block + l));
            let mut x = from_fn(|l| if on(l) { get(element(block + l)) } else { op.identity() });
            carry = scan_block(op, carry, &mut x);
            for (l, value) in x.into_iter().enumerate().take(live) {
                put(element(block + l), value);
            }
        }
    }

    fn recur<const J: usize, const K: usize, const M: usize, F: Recurrence<J, K, M>>(
        &self,
        span: Span,
        mask: Mask<'_>,
        ins: [Stream<'_>; J],
        outs: [Sink<'_>; M],
        behind: f32,
        f: F,
    ) -> u32 {
        let (mut carry, mut next, mut alarm) = (0.0, behind, 0);
        for block in (0..span.len()).step_by(LANES) {
            let inside = LANES.min(span.len() - block);
            let element = |l: usize| span.end - 1 - (block + l);
            let mut maps = [STILL; LANES];
            let unknown = Step { live: false, own: [0.0; K], value: next, next, y: carry, y_next: carry };
            let mut steps = [unknown; LANES];
            for l in 0..inside {
                let live = mask.at(element(l));
                let (own, value, flagged) = f.ready::<Soft>(from_fn(|j| ins[j].at(element(l))));
                if live {
                    alarm = flag::worse(alarm, flagged);
                    maps[l] = f.map(own, value, next);
                }
                let value = if live { value } else { next };
                steps[l] = Step { live, own, value, next, ..unknown };
                next = value;
            }
            let running = recur_block(carry, maps);
            for l in 0..inside {
                let y_next = if l == 0 { carry } else { running[l - 1] };
                let values = f.out(Step { y: running[l], y_next, ..steps[l] });
                for (out, value) in outs.iter().zip(values) {
                    if let Some(out) = out {
                        alarm = flag::worse(alarm, flag::finite(value));
                        out.put(element(l), num::canonical(value));
                    }
                }
            }
            carry = running[LANES - 1];
        }
        alarm
    }

    fn largest<F: Key>(
        &self,
        span: Span,
        values: In<'_, f32>,
        bias: Option<In<'_, f32>>,
        count: usize,
        key: &F,
        put: impl Fn(usize, usize),
    ) -> Picked<[f32; LANES]> {
        let mut picked = Picked { keys: [0.0; LANES], sum: 0.0, first: 0.0, bits: 0, alarm: 0 };
        let mut last = (i32::MAX, None);
        for j in 0..count {
            let mut best = (LEAST, 0);
            for e in 0..span.len() {
                let (value, bias) = (values.at(span.start + e), bias.map_or(0.0, |bias| bias.at(e)));
                let faults = flag::finite(value).max(flag::finite(bias));
                picked.alarm = picked.alarm.max(faults);
                let order = ordered(key.key::<Soft>(value, bias, e));
                let behind = last.1.is_none_or(|at| order < last.0 || (order == last.0 && e > at));
                if behind && order > best.0 {
                    best = (order, e);
                }
            }
            picked.first = if j == 0 { unordered(best.0) } else { picked.first };
            picked.sum = if j == 0 { picked.first } else { picked.sum + unordered(best.0) };
            if j < LANES {
                picked.keys[j] = unordered(best.0);
            }
            picked.bits |= if best.1 < 32 { 1 << best.1 } else { 0 };
            put(j, best.1);
            last = (best.0, Some(best.1));
        }
        picked
    }

    fn slots(&self, count: usize, value: impl Fn(usize) -> f32) -> [f32; LANES] {
        from_fn(|j| if j < count { value(j) } else { 0.0 })
    }

    fn shares<const SUM: bool, F: Key + Copy>(
        &self,
        count: usize,
        slots: [f32; LANES],
        key: F,
        factor: impl Fn(f64) -> f64,
    ) -> [f32; LANES] {
        let numerators: [f32; LANES] = from_fn(|j| num::canonical(key.key::<Soft>(slots[j], 0.0, j)));
        let total = if SUM { self.sum(Span::new(0, count), |j| [f64::from(numerators[j])])[0] } else { 0.0 };
        let factor = factor(total);
        numerators.map(|numerator| num::canonical((f64::from(numerator) * factor) as f32))
    }

    fn put_slots(&self, span: Span, out: Cells<'_, f32>, slots: [f32; LANES]) {
        for j in 0..span.len() {
            out.put(span.start + j, slots[j]);
        }
    }

    fn place(&self, span: Span, count: usize, at: impl Fn(usize) -> usize, put: impl Fn(usize, usize)) {
        (0..count).for_each(|j| put(j, span.start + at(j)));
    }

    #[inline(always)]
    fn settle(&self) {}

    fn leads(&self) -> bool {
        true
    }
}
