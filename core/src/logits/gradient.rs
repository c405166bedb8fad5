//! The gradient of a loss with respect to the logits, from its derivatives with respect to logp and the
//! entropy.
//!
//! **Formula** (`conventions.md` and `entropy.md` in docs/maths; notation of [`logits`](super)), for the
//! label a of a row, with c = dL/dlogp and h = dL/dH:
//!
//! ```text
//! dL/dz_v = [ c·(1[v = a] − p_v) − h·p_v·(ln p_v + H) ] / T
//! ```
//!
//! An entropy bonus is the loss −entropy_coef·Σ W·H, so its h is −entropy_coef·W. c is the `coef` that a
//! policy loss writes.
//!
//! Of a vocabulary that is spread over ranks each rank computes the gradient of its shard, with `vocab_start`
//! and the state of [`VocabParallelStatistics`](super::VocabParallelStatistics).
//!
//! **Shapes**: logits and result `[rows · vocab]`; labels and coefficients `[rows]`; `state` `[3][rows]` of
//! [`LogitsStatistics`](super::LogitsStatistics) over the same logits and temperature.
//!
//! **Special cases**: an entry of −∞ gets exactly 0, as does a row that is masked or whose coefficients
//! are 0. Rows that cannot be used, coefficients that are not finite, and gradients that overflow the format
//! of the logits raise the row's [alarm](crate::ragged::flag).
//!
//! **Accuracy**: the label's own entry computes 1 − p_a as (Z − e_a)/Z, so that a nearly certain token keeps
//! its digits.

use super::statistics::{ENTROPY, LARGEST, TOTAL};
use super::{LogitRows, Scale, check_shard, check_temperature, floored, inverse, ln_total, weight};
use crate::num::{self, Arith, Storage};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Out, Span, Stream, flag};
use crate::team::{Element, Lane, Team};
use core::marker::PhantomData;

crate::kernel! {
    /// The ops `logits_gradient` (`f32`), `logits_gradient_bf16` and `logits_gradient_f16`: the gradient of
    /// each row of logits.
    pub struct LogitsGradient<'a, S: Storage = f32> {
        /// Logits, and which rows take part.
        pub rows: LogitRows<'a, S>,
        /// Label of each row, `[rows]`.
        pub labels: In<'a, u32> [rows],
        /// The logits are a shard of a vocabulary: the number of its first entry there, and labels are
        /// numbers of the whole vocabulary. Absent: they are all there is.
        pub vocab_start: Option<u32>,
        /// Temperature T, 1e-6 to 1e6.
        pub temperature: f32,
        /// The `state` that `logits_statistics` wrote, `[3][rows]`; with `coef_entropy`, it must have been
        /// asked for its moments.
        pub state: In<'a, f64> [3 * rows],
        /// dL/dlogp, `[rows]`.
        pub coef: In<'a, f32> [rows],
        /// dL/dH, `[rows]`; absent = 0.
        pub coef_entropy: Option<In<'a, f32>> [rows],
        /// dL/dz, `[rows · vocab]`. On a GPU it may be the memory of the logits: each element is read before
        /// it is written, and its value is used by no other thread.
        pub gradient: Out<'a, S> [logits],
        /// Row alarm, `[rows]`: above [`flag::LIMIT`] if the row cannot be used or a result is invalid.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe S::SUFFIX.of(["logits_gradient", "logits_gradient_bf16", "logits_gradient_f16"]),
        over rows (logits, rows),
        require |k| {
            check_shard(&k.rows, k.vocab_start.unwrap_or(0))?;
            check_temperature("temperature", k.temperature)
        };
}

/// The gradient of every entry except the label's.
#[derive(Clone, Copy)]
struct Other<S, const ENTROPY: bool> {
    scale: Scale,
    /// 1/Z.
    share: f32,
    /// c/T.
    score: f32,
    /// h/T, 0 without ENTROPY.
    entropy: f32,
    /// H − ln Z: added to y it is ln p + H.
    shift: f32,
    stored: PhantomData<S>,
}

impl<S: Storage, const ENTROPY: bool> Element<1, 1, 0, 0> for Other<S, ENTROPY> {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        let y = self.scale.exponent(input(0));
        let p = weight::<A>(y) * self.share;
        let slope = if ENTROPY { self.score + self.entropy * (floored(y) + self.shift) } else { self.score };
        // 0 − x: a gradient is never −0.
        let gradient = 0.0 - p * slope;
        Lane { out: [gradient], sum: [], max: [], alarm: S::finite(gradient) }
    }
}

impl<S: Storage> Kernel for LogitsGradient<'_, S> {
    crate::row_by_variant!(0; 1);

    #[inline(always)]
    fn variant(&self) -> usize {
        usize::from(self.vocab_start.is_some())
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        let span = self.rows.span(row);
        let on = self.rows.live.at(row);
        let of_row = |k: usize| self.state.at(k * self.rows.rows + row);
        let (largest, total, entropy) = (of_row(LARGEST) as f32, of_row(TOTAL), of_row(ENTROPY));
        let scale = Scale { largest, inverse: inverse(self.temperature) };
        let shift = entropy - f64::from(ln_total::<T::Arith>(total));
        let of_entropy = match self.coef_entropy {
            Some(coef) => coef.at(row),
            None => 0.0,
        };
        let score = self.coef.at(row) * scale.inverse;
        let (of_entropy, share) = (of_entropy * scale.inverse, num::div64(1.0, total) as f32);
        // A label of another shard has no entry here.
        let (start, lacking) = if V == 0 { (0, 0) } else { (self.vocab_start.unwrap_or(0), self.rows.vocab) };
        let given = self.labels.at(row).wrapping_sub(start) as usize;
        let label = span.start + if given < self.rows.vocab { given } else { lacking };
        // The entries before the label, then those after it; the leader alone writes the label's entry.
        let mut alarm = S::finite(0.0);
        let (mut from, mut to) = (span.start, label);
        while on & (from < span.end) {
            let (part, ins) = (Span::new(from, to), [Stream::Array(self.rows.logits)]);
            let outs = [Some(*self.gradient)];
            // Most losses have no entropy term, which is a tenth of the work.
            let swept = if of_entropy == 0.0 {
                let (entropy, shift) = (0.0, 0.0);
                let other = Other::<S, false> { scale, share, score, entropy, shift, stored: PhantomData };
                team.sweep(part, Mask::all(), ins, outs, &other)
            } else {
                let (entropy, shift) = (of_entropy, shift as f32);
                let other = Other::<S, true> { scale, share, score, entropy, shift, stored: PhantomData };
                team.sweep(part, Mask::all(), ins, outs, &other)
            };
            alarm = flag::worse(alarm, swept.alarm);
            (from, to) = (to + 1, span.end);
        }
        if !on {
            let out = *self.gradient;
            team.for_each(span, move |i| out.put(i, S::narrow(0.0)));
        }
        if team.leads() {
            let here = (V == 0) | (label < span.end);
            let y = scale.exponent(self.rows.logits.at(if here { label } else { span.start }).widen());
            let e = f64::from(weight::<T::Arith>(y));
            let score = f64::from(score) * num::div64(total - e, total);
            let own = score - f64::from(of_entropy) * num::div64(e, total) * (f64::from(floored(y)) + shift);
            let own = if on { num::canonical(own as f32 + 0.0) } else { 0.0 };
            // A label that is outside the vocabulary, or forbidden in it, has no gradient.
            let known = (given < self.rows.vocab) & (y > f32::NEG_INFINITY);
            let fault = if on & !known { u32::MAX } else { S::finite(own) };
            if here & on {
                self.gradient.put(label, S::narrow(own));
            }
            self.row_alarm.put(row, if here { flag::worse(alarm, fault) } else { alarm });
        }
    }
}
