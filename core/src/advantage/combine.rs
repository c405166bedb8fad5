//! Several rewards, or advantages, of one sequence as one.
//!
//! **Formula** (GDPO 2601.05242; docs/maths/advantages.md): a = Σ_k w_k a_k over the components that are there.
//!
//! GDPO normalises each reward in its group (K times the groups for [`GroupAdvantage`](super::GroupAdvantage)), combines, and
//! [whitens](super::whiten) over the batch. The alternative, "sum then normalise", combines the rewards and is GRPO.
//!
//! **Shapes**: `components` `[K][S]`, `weights` `[K]`, `combined` `[S]`; `cu_groups` `[G+1]` only divides the work.
//!
//! **Special cases**: a NaN component is "no score" and is left out (TRL's nan-sum); a sequence without any score gets NaN, which excludes
//! it wherever rewards are read.
//!
//! **Accuracy**: binary64, in the order of k, rounded to `f32` once.

use crate::Error;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Span, Stream, flag};
use crate::team::{Element, Lane, Team};

/// The op `combine`.
#[derive(Debug)]
pub struct Combine<'a> {
    /// Offsets of groups, `[G+1]`.
    pub cu_groups: Offsets<'a>,
    /// `[K][S]`.
    pub components: In<'a, f32>,
    /// `[K]`.
    pub weights: In<'a, f32>,
    /// `[S]`.
    pub combined: Out<'a, f32>,
}

crate::kernel_args!(unsafe Combine<'_> { cu_groups, components, weights, combined });

impl Kernel for Combine<'_> {
    const NAME: &'static str = "combine";

    fn check_bounds(&self) -> Result<(), Error> {
        let sequences = self.cu_groups.sizes().0;
        crate::lengths!(self; sequences.saturating_mul(self.weights.len()) => components; sequences => combined);
        Ok(())
    }

    fn rows(&self) -> usize {
        self.cu_groups.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.cu_groups.span(row).len() * self.weights.len()
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        if self.weights.len() != 2 {
            return self.row_as::<0, T>(team, row);
        }
        // Two on a CPU, which is how a further term comes to a policy loss: as vectors.
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
        // A NaN comes with an alarm, or nobody makes it the canonical one.
        Lane { out: [combined], sum: [], max: [], alarm: flag::finite(combined) }
    }
}
