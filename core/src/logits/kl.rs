//! The exact KL divergence between two rows of logits, over the whole vocabulary instead of the sampled
//! token.
//!
//! **Formula** (elementary; `kl.md` and `correction.md` in docs/maths have its estimates), with
//! p = softmax(z/T) of the policy and q = softmax(z_ref/T) of the reference:
//!
//! | direction | value | d/dz_v |
//! |---|---|---|
//! | [`Direction::Policy`], KL(p ‖ q) | Σ p (ln p − ln q) | p_v (ln p_v − ln q_v − KL)/T |
//! | [`Direction::Reference`], KL(q ‖ p) | Σ q (ln q − ln p) | (p_v − q_v)/T |
//!
//! The first is what k1, k2 and k3 of the sampled token estimate ([`kl`](crate::kl)); the second is the
//! divergence used in distillation.
//!
//! **Shapes**: both logits and the gradient `[rows · vocab]`; coefficients and values `[rows]`. `coef` is
//! dL/dKL of each row; values are in nats.
//!
//! **Special cases**: a token that is forbidden (−∞) on the side that is averaged over adds nothing, whatever
//! its logit on the other side. A token that is forbidden only on the *other* side makes the divergence
//! infinite, which raises the row's [alarm](crate::ragged::flag), as do a row without a finite maximum, and
//! coefficients or gradients that are not finite. A masked row gives 0. The gradient of a forbidden token
//! is 0.
//!
//! **Accuracy**: computed as Σ p (eᵘ − 1 − u) with u = ln q − ln p, which is the same sum because both sides
//! sum to 1. Every term is at least 0, so the divergence of two nearly equal rows keeps its digits and is
//! never negative.
//!
//! **Variants**: both sides have the same temperature (a temperature on one side only is a bug that
//! frameworks have had).

use super::{LogitRows, Scale, check_temperature, inverse, largest, ln_total, weight};
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Out, Stream, flag};
use crate::require;
use crate::team::{Element, Lane, Team};

/// The direction of the divergence: the side that it is averaged over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// KL(policy ‖ reference).
    Policy,
    /// KL(reference ‖ policy).
    Reference,
}

crate::launch_args!(
    enum Direction {
        Policy,
        Reference,
    }
);

crate::kernel! {
    /// The op `logits_kl`: the divergence of each row of logits, and its gradient.
    pub struct LogitsKl<'a> {
        /// Logits of the policy, and which rows take part.
        pub rows: LogitRows<'a> where valid,
        /// Logits of the reference, `[rows · vocab]`.
        pub reference: In<'a, f32> [logits],
        /// Direction of the divergence.
        pub direction: Direction,
        /// Temperature T of both sides, 1e-6 to 1e6.
        pub temperature: f32,
        /// dL/dKL, `[rows]`.
        pub coef: In<'a, f32> [rows],
        /// Divergence in nats, `[rows]`.
        pub value: Out<'a, f32> [rows],
        /// dL/dz of the policy, `[rows · vocab]`.
        pub gradient: Option<Out<'a, f32>> [logits],
        /// Row alarm, `[rows]`: above [`flag::LIMIT`] if the row cannot be used or a result is invalid.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe "logits_kl", over rows (logits, rows),
        require |k| {
            let logits = k.rows.logits.len();
            require::length("reference", logits, "the length of `logits`", k.reference.len())?;
            check_temperature("temperature", k.temperature)
        };
}

struct Totals([Scale; 2]);

impl Element<2, 0, 2, 0> for Totals {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 2, 0> {
        let [a, b] = self.0;
        let sum = [weight::<A>(a.exponent(input(0))), weight::<A>(b.exponent(input(1)))];
        Lane { out: [], sum, max: [], alarm: 0 }
    }
}

/// Both sides of a row; side `a` is the one that is averaged over.
#[derive(Clone, Copy)]
struct Sides {
    scales: [Scale; 2],
    /// 1/Z of each.
    shares: [f32; 2],
    /// ln Z_a − ln Z_b.
    shift: f32,
}

impl Sides {
    /// a_v, b_v and ln b_v − ln a_v.
    #[inline(always)]
    fn token<A: Arith>(&self, z: [f32; 2]) -> (f32, f32, f32) {
        let (y, other) = (self.scales[0].exponent(z[0]), self.scales[1].exponent(z[1]));
        let u = (other - y) + self.shift;
        (weight::<A>(y) * self.shares[0], weight::<A>(other) * self.shares[1], u)
    }
}

struct Term(Sides);

impl Element<2, 0, 1, 0> for Term {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 1, 0> {
        let (a, b, u) = self.0.token::<A>([input(0), input(1)]);
        // For u > 1, b = a·e^u is much larger than a·(1 + u): the difference does not cancel, and no
        // exponential overflows.
        let near = a * num::expm1mx::<A>(if u > 1.0 { 1.0 } else { u });
        let far = b - a * (1.0 + u);
        let term = if u > 1.0 { far } else { near };
        Lane { out: [], sum: [if a > 0.0 { term } else { b }], max: [], alarm: 0 }
    }
}

#[derive(Clone, Copy)]
struct Slope<const V: usize> {
    sides: Sides,
    kl: f32,
    /// coef/T.
    coef: f32,
    on: bool,
}

impl<const V: usize> Element<2, 1, 0, 0> for Slope<V> {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        let (a, b, u) = self.sides.token::<A>([input(0), input(1)]);
        let slope = if V == 0 { if a > 0.0 { a * (0.0 - (u + self.kl)) } else { 0.0 } } else { b - a };
        // + 0: a gradient is never −0.
        let gradient = if self.on { self.coef * slope + 0.0 } else { 0.0 };
        Lane { out: [gradient], sum: [], max: [], alarm: flag::finite(gradient) }
    }
}

impl Kernel for LogitsKl<'_> {
    #[inline(always)]
    fn variant(&self) -> usize {
        self.direction as usize
    }

    crate::row_by_variant!(0; 1);

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        let (span, live) = (self.rows.span(row), self.rows.live_span(row));
        let on = !live.is_empty();
        let (a, b) =
            if V == 0 { (self.rows.logits, self.reference) } else { (self.reference, self.rows.logits) };
        let inverse = inverse(self.temperature);
        let (top_a, top_b) = (largest(team, a, live), largest(team, b, live));
        let scales = [Scale { largest: top_a, inverse }, Scale { largest: top_b, inverse }];
        let ins = [Stream::Array(a), Stream::Array(b)];
        let [total_a, total_b] = team.sweep(live, Mask::all(), ins, [], &Totals(scales)).sums;
        let shift = ln_total::<T::Arith>(total_a) - ln_total::<T::Arith>(total_b);
        let sides = Sides {
            scales,
            shares: [num::div64(1.0, total_a) as f32, num::div64(1.0, total_b) as f32],
            shift,
        };
        let kl = team.sweep(live, Mask::all(), ins, [], &Term(sides)).sums[0] as f32;
        let mut alarm = 0;
        if let Some(gradient) = &self.gradient {
            let slope = Slope::<V> { sides, kl, coef: self.coef.at(row) * inverse, on };
            alarm = team.sweep(span, Mask::all(), ins, [Some(**gradient)], &slope).alarm;
        }
        if team.leads() {
            let usable = top_a.is_finite() & top_b.is_finite();
            alarm = flag::worse(alarm, if usable { flag::finite(kl) } else { u32::MAX });
            let kl = if usable { kl } else { f32::NAN };
            self.value.put(row, if on { num::canonical(kl) } else { 0.0 });
            self.row_alarm.put(row, if on { alarm } else { 0 });
        }
    }
}
