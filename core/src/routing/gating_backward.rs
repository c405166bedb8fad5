//! From the gradient of the gates to the gradient of the scores.
//!
//! **Formula**, with c_e = dL/dg_e on the chosen set I, scale c, and d = Σ_{e in I} g_e c_e / c:
//!
//! ```text
//! SoftmaxChosen       dL/ds_e = g_e (c_e − d)                  0 outside of I
//! SoftmaxAll          dL/ds_e = g_e c_e [e in I] − c p_e d     p: softmax over all
//! SigmoidNormalized   dL/ds_e = g_e (c_e − d)(1 − σ(s_e))      0 outside of I
//! Sigmoid             dL/ds_e = g_e c_e (1 − σ(s_e))           0 outside of I
//! SqrtSoftplus        dL/ds_e = g_e (c_e − d) σ(s_e) / (2 ln(1 + exp(s_e)))    0 outside of I
//! ```
//!
//! Neither the selection nor the bias has a gradient. The gradient is dense, `[rows, E]`: an expert that was
//! replayed but would not have been chosen by the live router gets its own gradient (Megatron #79 lost it by
//! gathering after the scatter of a top-k).
//!
//! **Shapes**: `scores`, `gradient` `[rows, E]`; `gates`, `coef` `[rows, K]` and `chosen` as
//! [`GatingForward`](super::GatingForward) wrote them.
//!
//! **Special cases**: gates and coefficients that are not finite, experts outside 0..E, and, for SoftmaxAll,
//! scores that are not finite raise the row's [alarm](crate::ragged::flag).

use super::block::ROWS;
use super::gating_forward::{Total, largest_of};
use super::key::softplus;
use super::{Router, RouterKind, Trace};
use crate::Error;
use crate::logits::weight;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Out, Span, Stream, flag};
use crate::require;
use crate::team::{Element, Lane, Team, Terms};
use core::ops::Range;

crate::kernel! {
    /// The op `gating_backward`: gradient of the scores from that of the gates.
    pub struct GatingBackward<'a> {
        /// The router's rule and shape.
        pub router: Router,
        /// Number of rows.
        pub rows: usize,
        /// Router scores, `[rows, E]`.
        pub scores: In<'a, f32>,
        /// The experts that ran, `[rows, K]`.
        pub chosen: Trace<'a>,
        /// Their gates, `[rows, K]`.
        pub gates: In<'a, f32> [slots],
        /// dL/dg, `[rows, K]`.
        pub coef: In<'a, f32> [slots],
        /// dL/ds, `[rows, E]`.
        pub gradient: Out<'a, f32> [scores],
        /// Above [`flag::LIMIT`] if an input of the row is bad, `[rows]`.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe "gating_backward", rows |k| k.rows, work |k, _| k.router.experts,
        require |k| k.check_sizes(),
        let rows = |k| k.rows,
        let scores = |k| k.scores.len(),
        let slots = |k| rows.saturating_mul(k.router.top_k),
        check |k| k.check_parts();
}

impl GatingBackward<'_> {
    fn check_parts(&self) -> Result<(), Error> {
        self.router.check_scores(self.scores, self.rows)?;
        self.router.check_trace(&self.chosen, self.rows)
    }

    fn check_sizes(&self) -> Result<(), Error> {
        self.router.check_scores(self.scores, self.rows)?;
        let k = self.router.top_k;
        Router::length("gates", self.gates.len(), self.rows, k)?;
        Router::length("gate gradients", self.coef.len(), self.rows, k)?;
        let records = if self.chosen.top_k() == k { self.chosen.rows() } else { 0 };
        require::length("chosen", self.rows, "rows of top_k experts", records)
    }
}

/// g·c, and whether either factor is not finite.
#[derive(Clone, Copy)]
struct Product;

impl Terms<2, 2> for Product {
    #[inline(always)]
    fn terms(self, input: impl Fn(usize) -> f32) -> [f64; 2] {
        let (g, c) = (input(0), input(1));
        let usable = flag::worse(flag::finite(g), flag::finite(c)) <= flag::LIMIT;
        [f64::from(g) * f64::from(c), if usable { 0.0 } else { 1.0 }]
    }
}

/// The gradient of every expert through the denominator.
struct Denominator {
    largest: f32,
    /// d·c/Z.
    factor: f32,
}

impl Element<1, 1, 0, 0> for Denominator {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        // 0 − x: a gradient is never −0.
        let gradient = 0.0 - weight::<A>(input(0) - self.largest) * self.factor;
        Lane { out: [gradient], sum: [], max: [], alarm: flag::finite(gradient) }
    }
}

/// d ln √softplus(s) / ds; 1/2 where e^s vanishes.
#[inline(always)]
fn relative_slope<A: Arith>(s: f32) -> f32 {
    if s < -80.0 { 0.5 } else { 0.5 * num::div(num::sigmoid::<A>(s), softplus::<A>(s)) }
}

impl Kernel for GatingBackward<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        match self.variant() {
            0 => team.row_as::<0, Self>(self, row),
            1 => team.row_as::<1, Self>(self, row),
            _ => team.row_as::<2, Self>(self, row),
        }
    }

    #[inline(always)]
    fn block<T: Team>(&self, team: &T, rows: Range<usize>) {
        let mut row = rows.start;
        if let (8, Some(chosen)) = (self.router.top_k, self.chosen.packed()) {
            while row + ROWS <= rows.end {
                let ids = chosen.row(Span::new(row * 8, (row + ROWS) * 8));
                match (self.variant(), self.router.experts) {
                    (0, 128) => self.block_of::<0, 128, T>(team, row, ids),
                    (0, 256) => self.block_of::<0, 256, T>(team, row, ids),
                    (1, 128) => self.block_of::<1, 128, T>(team, row, ids),
                    _ => break,
                }
                row += ROWS;
            }
        }
        for row in row..rows.end {
            self.row(team, row);
        }
    }

    #[inline(always)]
    fn variant(&self) -> usize {
        match self.router.kind {
            RouterKind::SoftmaxChosen | RouterKind::SigmoidNormalized | RouterKind::Sigmoid => 0,
            RouterKind::SoftmaxAll => 1,
            RouterKind::SqrtSoftplus => 2,
        }
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        let (router, span) = (self.router, self.router.span(row));
        let (scores, chosen, gates, coef, out) =
            (self.scores, self.chosen, self.gates, self.coef, *self.gradient);
        let (k, experts) = (router.top_k, router.experts);
        let (first, position, scale) = (row * k, chosen.position(row), f64::from(router.scale));
        let expert = move |j: usize| {
            let expert = chosen.at(position + j) as usize;
            if expert < experts { expert } else { experts - 1 }
        };
        let slots = Span::new(0, k);
        let [dot, faults] = team.sum_of(Span::new(first, first + k), [gates, coef], Product);
        let strange = team.first(slots, move |j| chosen.at(position + j) as usize >= experts);
        let mean = num::div64(dot, scale);
        let mut alarm = if (faults > 0.0) | (strange < k) { u32::MAX } else { 0 };
        let (mut largest, mut factor) = (0.0, 0.0);
        if V == 1 {
            let ins = [Stream::Array(scores)];
            let found = largest_of(team, span, scores);
            largest = found.0;
            factor = num::div64(dot, team.sweep(span, Mask::all(), ins, [], &Total { largest }).sums[0]);
            alarm = flag::worse(alarm, found.1);
            let rest = Denominator { largest, factor: factor as f32 };
            alarm = flag::worse(alarm, team.sweep(span, Mask::all(), ins, [Some(out)], &rest).alarm);
        } else {
            team.fill(span, Mask::all(), out, 0.0);
        }
        let sigmoid = router.kind.sigmoid();
        let subtracted = if matches!(router.kind, RouterKind::Sigmoid) { 0.0 } else { mean };
        team.place(span, k, expert, move |j, i| {
            let (g, c) = (f64::from(gates.at(first + j)), f64::from(coef.at(first + j)));
            let gradient = if V == 1 {
                g * c - f64::from(weight::<T::Arith>(scores.at(i) - largest)) * factor
            } else {
                let slope = if V == 2 {
                    relative_slope::<T::Arith>(scores.at(i))
                } else if sigmoid {
                    num::sigmoid::<T::Arith>(-scores.at(i))
                } else {
                    1.0
                };
                g * (c - subtracted) * f64::from(slope)
            };
            out.put(i, num::canonical(gradient as f32 + 0.0));
        });
        if team.leads() {
            self.row_alarm.put(row, alarm);
        }
    }
}
