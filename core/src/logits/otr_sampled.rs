//! Sampled one-token rollout (OTR): the estimator from drawn tokens, whose expectation [`otr`](super::otr)
//! computes.
//!
//! **Formula** (OTR 2509.26313, via reviews; docs/maths/correction.md), with π = softmax(z), candidates a_1 …
//! a_K drawn from π' = softmax(z/κ), the label x, and the reward R(a) = 1 for the label and β for every other
//! token:
//!
//! ```text
//! L_t = −(1/K) Σ_j R(a_j) ln π(a_j)
//! dL_t/dz_v = −(1/K) Σ_j R(a_j) (1[v = a_j] − π(v))
//! ```
//!
//! Candidates and rewards are constants; there is no importance weight π/π'. The candidates may come from
//! [`draw_tokens`](super::draw) or any other sampler.
//!
//! **Shapes**: logits and gradient `[rows · vocab]`; candidates `[rows · draws]`, ascending within each row,
//! with repetitions; labels, coefficients and losses `[rows]`. `coef` is dL/dL_t, which is 1/T for the mean
//! over T unmasked label positions.
//!
//! **Defaults**: K 256, κ 1.3, β 0 or −0.1 (κ and β recalled).
//!
//! **Special cases**: an entry of −∞ gets gradient 0. A masked row has loss 0 and gradient 0. Candidates that
//! are out of order, outside the vocabulary or at −∞, a label that is at −∞ or outside the vocabulary, a row
//! without a finite maximum, and results that overflow raise the row's [alarm](crate::ragged::flag).
//!
//! **Accuracy**: the entry of a token that was drawn n times is −(coef/K)·[n R (1 − π) − π Σ R of the
//! others], with 1 − π computed as (Z − e)/Z, so that nothing cancels near a certain token.

use super::draw::check_draws;
use super::otr::check_beta;
use super::{LogitRows, Scale, ln_total, weight};
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Out, Span, Stream, flag};
use crate::require;
use crate::team::{Element, Lane, Team};

crate::kernel! {
    /// The op `otr_sampled`: the loss and gradient of each row of logits.
    pub struct OtrSampled<'a> {
        /// Logits, and which rows take part.
        pub rows: LogitRows<'a> where valid,
        /// Label of each row, `[rows]`.
        pub labels: In<'a, u32> [rows],
        /// Candidates, `[rows · draws]`, ascending within each row.
        pub candidates: In<'a, u32> [draws],
        /// Number K of candidates per row, 1 to [`OtrSampled::MAX_DRAWS`].
        pub draws: usize,
        /// Reward β of a token that is not the label, at most 1.
        pub beta: f32,
        /// dL/dL_t, `[rows]`.
        pub coef: In<'a, f32> [rows],
        /// Losses L_t, `[rows]`.
        pub loss: Out<'a, f32> [rows],
        /// dL/dz, `[rows · vocab]`.
        pub gradient: Option<Out<'a, f32>> [logits],
        /// Row alarm, `[rows]`: above [`flag::LIMIT`] if the row cannot be used or a result is invalid.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe "otr_sampled", over rows (logits, rows), work |k, _| k.rows.vocab + k.draws,
        require |k| {
            check_draws("draws", k.draws, Self::MAX_DRAWS, "1 to 1048576")?;
            let draws = k.rows.rows.saturating_mul(k.draws);
            require::length("candidates", draws, "rows times draws", k.candidates.len())?;
            check_beta(k.beta)
        },
        let draws = |k| rows.saturating_mul(k.draws);
}

impl OtrSampled<'_> {
    /// Largest number of candidates per row: their counts are exact in binary32.
    pub const MAX_DRAWS: usize = 1 << 20;
}

struct Total(Scale);

impl Element<1, 0, 1, 0> for Total {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 1, 0> {
        Lane { out: [], sum: [weight::<A>(self.0.exponent(input(0)))], max: [], alarm: 0 }
    }
}

/// The part of the gradient that every entry gets, drawn or not: coef·Σ R/(K·Z)·e.
#[derive(Clone, Copy)]
struct Undrawn {
    scale: Scale,
    factor: f32,
    on: bool,
}

impl Element<1, 1, 0, 0> for Undrawn {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        // + 0: a gradient is never −0.
        let gradient = weight::<A>(self.scale.exponent(input(0))) * self.factor + 0.0;
        let gradient = if self.on { gradient } else { 0.0 };
        Lane { out: [gradient], sum: [], max: [], alarm: flag::finite(gradient) }
    }
}

impl Kernel for OtrSampled<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (span, live) = (self.rows.span(row), self.rows.live_span(row));
        let on = !live.is_empty();
        let scale = Scale { largest: self.rows.largest(team, live), inverse: 1.0 };
        let ins = [Stream::Array(self.rows.logits)];
        let total = team.sweep(live, Mask::all(), ins, [], &Total(scale)).sums[0];
        let ln_z = f64::from(ln_total::<T::Arith>(total));

        let (logits, candidates, vocab) = (self.rows.logits, self.candidates, self.rows.vocab);
        let from = row * self.draws;
        let drawn = Span::new(from, if on { from + self.draws } else { from });
        let label = self.labels.at(row);
        let beta = f64::from(self.beta);
        let [hits, products, bad] = team.sum(drawn, move |j| {
            let a = candidates.at(j);
            let z = logits.at(span.start + within(a, vocab));
            let hit = a == label;
            let reward = if hit { 1.0 } else { beta };
            // Successive candidates must ascend, so that equal ones are neighbours.
            let ordered = (j == from) || candidates.at(j - 1) <= a;
            let known = ordered & ((a as usize) < vocab) & (z > f32::NEG_INFINITY);
            let product = reward * (f64::from(scale.exponent(z)) - ln_z);
            [if hit { 1.0 } else { 0.0 }, product, if known { 0.0 } else { 1.0 }]
        });
        let count = self.draws as f64;
        let coef = num::div64(f64::from(self.coef.at(row)), count);
        let rewards = hits + beta * (count - hits);
        let mut alarm = if bad > 0.0 { u32::MAX } else { 0 };
        if let Some(gradient) = &self.gradient {
            let undrawn = Undrawn { scale, factor: num::div64(coef * rewards, total) as f32, on };
            let swept = team.sweep(span, Mask::all(), ins, [Some(**gradient)], &undrawn);
            alarm = flag::worse(alarm, swept.alarm);
            let place = move |j: usize| within(candidates.at(from + j), vocab);
            team.place(span, drawn.len(), place, move |j, i| {
                let at = from + j;
                let a = candidates.at(at);
                if (j == 0) || candidates.at(at - 1) != a {
                    let mut end = at + 1;
                    while end < drawn.end && candidates.at(end) == a {
                        end += 1;
                    }
                    let own = (end - at) as f64;
                    let reward = if a == label { 1.0 } else { beta };
                    let e = f64::from(weight::<T::Arith>(scale.exponent(logits.at(i))));
                    let miss = num::div64(total - e, total);
                    // Σ R of the candidates that are a different token; exact for the label.
                    let hits_of_others = if a == label { 0.0 } else { hits };
                    let others = hits_of_others + beta * (count - own - hits_of_others);
                    let slope = 0.0 - coef * (own * reward * miss - num::div64(e, total) * others);
                    gradient.put(i, num::canonical(slope as f32 + 0.0));
                }
            });
        }
        if team.leads() {
            let given = label as usize;
            let z = logits.at(span.start + within(label, vocab));
            let loss = (0.0 - num::div64(products, count)) as f32 + 0.0;
            let known = (given < vocab) & (z > f32::NEG_INFINITY) & scale.largest.is_finite();
            // The entries of drawn tokens, which no sweep checks, are below 2·|coef|·(1 + |β|).
            let bound = (2.0 * count * coef.abs() * (1.0 + beta.abs())) as f32;
            let fault = flag::worse(flag::finite(loss), flag::finite(bound));
            alarm = flag::worse(alarm, if known { fault } else { u32::MAX });
            self.loss.put(row, if on { num::canonical(loss) } else { 0.0 });
            self.row_alarm.put(row, if on { alarm } else { 0 });
        }
    }
}

/// The token as a position in the row; 0 if it is outside the vocabulary, which raises the alarm elsewhere.
#[inline(always)]
fn within(token: u32, vocab: usize) -> usize {
    if (token as usize) < vocab { token as usize } else { 0 }
}
