//! Several rewards, or advantages, of one sequence as one.
//!
//! **Formula** (GDPO 2601.05242; maths.md §6.8): a = Σ_k w_k a_k over the components that are there.
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

use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Offsets, Out};
use crate::team::Team;

/// The op `combine`.
#[derive(Clone, Copy, Debug)]
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

crate::kernel_args!(Combine<'_> { cu_groups, components, weights, combined });

impl Kernel for Combine<'_> {
    const NAME: &'static str = "combine";

    fn rows(&self) -> usize {
        self.cu_groups.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.cu_groups.span(row).len() * self.weights.len()
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (components, weights, combined) = (self.components, self.weights, self.combined);
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
