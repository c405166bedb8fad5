//! Load-balance loss of a router, and its gradient.
//!
//! **Formula** (Switch 2101.03961 eq. 4, GShard 2006.16668), with p the softmax of the scores over all
//! experts and f_e the load of expert e:
//!
//! ```text
//! L = w Σ_r Σ_e f_e p_re          = coef · E Σ_e f_e P_e  for w = coef · E / rows,  P_e = mean_r p_re
//! dL/ds_re = w p_re (f_e − d_r),  d_r = Σ_e f_e p_re
//! ```
//!
//! f has no gradient. It is counted from a routing map: the natural one, as verl does even under replay
//! (docs/maths/routing.md), or the replayed one. The caller chooses, since f is an argument
//! ([`lockstep::routing`](https://docs.rs/lockstep-rl) counts either).
//!
//! **Shapes**: `scores`, `gradient` `[rows, E]`; `load` `[E]`; `row_loss` `[rows]`, w·d_r, to be folded by
//! the caller.
//!
//! **Special cases**: scores and loads that are not finite raise the row's [alarm](crate::ragged::flag). An
//! exponential below e⁻⁸⁷ times the largest is 0.
//!
//! **Variants**: f sums to 1 (Megatron) or to K (Hugging Face's `load_balancing_loss_func`), a difference of
//! a factor K.

use super::gating_forward::largest_of;
use super::{Router, RouterKind};
use crate::logits::weight;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Out, Span, Stream, flag};
use crate::team::{Element, Lane, Team};

crate::kernel! {
    /// The op `balance_loss`: load-balance loss of each row and its gradient.
    pub struct BalanceLoss<'a> {
        /// Number of experts, E.
        pub experts: usize,
        /// Number of rows.
        pub rows: usize,
        /// Router scores, `[rows, E]`.
        pub scores: In<'a, f32> [scores],
        /// Load of each expert, f, `[E]`.
        pub load: In<'a, f32> [experts],
        /// Weight of the loss, w.
        pub weight: f64 where finite,
        /// dL/ds, `[rows, E]`.
        pub gradient: Out<'a, f32> [scores],
        /// w·d_r, `[rows]`.
        pub row_loss: Out<'a, f64> [rows],
        /// Above [`flag::LIMIT`] if an input of the row is bad, `[rows]`.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe "balance_loss", rows |k| k.rows, work |k, _| k.experts,
        require |k| {
            Router::new(RouterKind::SoftmaxAll, k.experts, 1).check_scores(k.scores, k.rows)?;
            Router::length("load", k.load.len(), 1, k.experts)
        },
        let rows = |k| k.rows,
        let experts = |k| k.experts,
        let scores = |_| rows.saturating_mul(experts);
}

/// Z, Σ e·f, and whether loads are finite.
struct Loaded {
    largest: f32,
}

impl Element<2, 0, 2, 0> for Loaded {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 2, 0> {
        let e = weight::<A>(input(0) - self.largest);
        Lane { out: [], sum: [e, e * input(1)], max: [], alarm: flag::finite(input(1)) }
    }
}

struct Slope {
    largest: f32,
    mean: f32,
    /// w/Z.
    factor: f32,
}

impl Element<2, 1, 0, 0> for Slope {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        let gradient = weight::<A>(input(0) - self.largest) * (input(1) - self.mean) * self.factor + 0.0;
        Lane { out: [gradient], sum: [], max: [], alarm: flag::finite(gradient) }
    }
}

impl Kernel for BalanceLoss<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        // Views with a common index for the row and the loads.
        let (of_row, span) =
            (Span::new(row * self.experts, (row + 1) * self.experts), Span::new(0, self.experts));
        let scores = Stream::Array(self.scores.part(of_row));
        let ins = [scores, Stream::Array(self.load)];
        let (largest, found) = largest_of(team, of_row, self.scores);
        let loaded = team.sweep(span, Mask::all(), ins, [], &Loaded { largest });
        let [total, product] = loaded.sums;
        let mean = num::div64(product, total);
        let slope = Slope { largest, mean: mean as f32, factor: num::div64(self.weight, total) as f32 };
        let written = team.sweep(span, Mask::all(), ins, [Some(self.gradient.part(of_row))], &slope);
        if team.leads() {
            self.row_loss.put(row, num::canonical64(self.weight * mean));
            let alarm = flag::worse(found, loaded.alarm);
            self.row_alarm.put(row, flag::worse(alarm, written.alarm));
        }
    }
}
