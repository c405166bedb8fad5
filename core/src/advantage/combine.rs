//! Weighted sum of the several rewards, or advantages, of a sequence.
//!
//! **Formula** (GDPO 2601.05242; docs/maths/advantages.md): a = Σ_k w_k a_k over the components that are not
//! NaN.
//!
//! GDPO normalises each reward within its group ([`GroupAdvantage`](super::GroupAdvantage) over K times as
//! many groups), combines the results, and [whitens](super::whiten) them over the batch. The alternative,
//! "sum then normalise", combines the rewards first; that is GRPO.
//!
//! **Shapes**: `components` `[K][S]`, `weights` `[K]`, `combined` `[S]`; `cu_groups` `[G+1]` only divides the
//! work.
//!
//! **Special cases**: a NaN component means "no score" and is left out of the sum (TRL's nan-sum). A sequence
//! without any score gets NaN, which excludes it wherever rewards are read.
//!
//! **Accuracy**: binary64, in the order of k, rounded to `f32` once.

use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Span, Stream, flag};
use crate::team::{Element, Lane, Team};

crate::kernel! {
    /// The op `combine`: one combined score per sequence.
    pub struct Combine<'a> {
        /// Offsets of groups, `[G+1]`.
        pub cu_groups: Offsets<'a>,
        /// Scores to combine, `[K][S]`; NaN = no score.
        pub components: In<'a, f32> [products],
        /// Weight of each component, `[K]`.
        pub weights: In<'a, f32>,
        /// Weighted sums, `[S]`; NaN where every component is NaN.
        pub combined: Out<'a, f32> [sequences],
    }
    unsafe "combine", over cu_groups (sequences, _),
        work |k, row| k.cu_groups.span(row).len() * k.weights.len(),
        let products = |k| sequences.saturating_mul(k.weights.len());
}

impl Kernel for Combine<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        if self.weights.len() != 2 {
            return self.row_as::<0, T>(team, row);
        }
        // On a CPU, two components (a policy loss with one extra term) are summed with vectors.
        let (span, sequences) = (self.cu_groups.span(row), self.combined.len());
        let [first, second] =
            [0, sequences].map(|from| self.components.part(Span::new(from, from + sequences)));
        let two = Two { weights: [self.weights.at(0), self.weights.at(1)] };
        let ins = [Stream::Array(first), Stream::Array(second)];
        team.sweep(span, Mask::all(), ins, [Some(*self.combined)], &two);
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        let (components, weights, combined) = (self.components, self.weights, *self.combined);
        let sequences = combined.len();
        team.for_each(self.cu_groups.span(row), move |i| {
            let (mut sum, mut scored, mut k) = (0.0, false, 0);
            while k < weights.len() {
                let x = components.at(k * sequences + i);
                sum += if x.is_nan() { 0.0 } else { f64::from(weights.at(k)) * f64::from(x) };
                scored |= !x.is_nan();
                k += 1;
            }
            combined.put(i, if scored { num::canonical(sum as f32) } else { num::canonical_nan() });
        });
    }
}

/// The sum of two components.
struct Two {
    weights: [f32; 2],
}

impl Element<2, 1, 0, 0> for Two {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        let term = |k: usize| {
            let product = f64::from(self.weights[k]) * f64::from(input(k));
            if input(k).is_nan() { 0.0 } else { product }
        };
        let sum = (0.0 + term(0) + term(1)) as f32;
        let combined = if input(0).is_nan() & input(1).is_nan() { num::canonical_nan() } else { sum };
        // A NaN must raise the alarm; otherwise the sweep does not make it the canonical NaN.
        Lane { out: [combined], sum: [], max: [], alarm: flag::finite(combined) }
    }
}
