//! The clipped value loss of a critic, with dL/dV in closed form.
//!
//! **Formula** (PPO2, as in verl's `compute_value_loss`; docs/maths/advantages.md), with V_old the values at
//! the start of the step:
//!
//! ```text
//! V_c = clip(V, V_old − cliprange_value, V_old + cliprange_value)
//! l   = ½·max((V − ret)², (V_c − ret)²)          L = Σ W·l
//! ```
//!
//! With a finite δ (`huber_delta`, AReaL) Huber's loss replaces ½e²: ½e² up to |e| = δ and δ·(|e| − δ/2)
//! beyond; the gradient e becomes clip(e, −δ, δ).
//!
//! **Shapes**: per token `[N]`, per sequence `[S]`; W is the weight of the
//! [aggregation](crate::aggregate::weight).
//!
//! **Gradient**: dL/dV = W·(V − ret), or 0 where the clipped branch is the larger, since V_c is constant
//! there. At a tie the token counts as not clipped and keeps its gradient (PyTorch's `max` splits a tie of
//! two different branches in halves; such ties have measure zero).
//!
//! **Special cases**: masked tokens have gradient 0 and do not enter any sum. `cliprange_value` = ∞ disables
//! clipping; `values_old` may then be absent. Bad inputs of live tokens, or a square that overflows, raise
//! the row's [alarm](crate::ragged::flag).
//!
//! **Variants**: verl, OpenRLHF and TRL agree on the formula but not on the range: verl uses 0.5, TRL 0.2.
//! The ½ belongs to the loss in all of them; TRL's `vf_coef` is [`Weight::scale`].

use crate::Error;
use crate::aggregate::{Weight, WeightFrom};
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Sink, Stream, flag, sink};
use crate::team::{Element, Lane, Team};

crate::kernel! {
    /// The op `value_loss`: loss, dL/dV and number of clipped tokens.
    pub struct ValueLoss<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Tokens that count, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// V, the critic's values, `[N]`; the only differentiable input.
        pub values: In<'a, f32> [tokens],
        /// Values V_old at the start of the step, `[N]`; may be absent without clipping.
        pub values_old: Option<In<'a, f32>> [tokens],
        /// Returns, `[N]`.
        pub returns: In<'a, f32> [tokens],
        /// Largest distance of V from V_old; ∞ for no clipping.
        pub cliprange_value: f32 where bound,
        /// Huber's δ: larger errors enter linearly; ∞ for the square only.
        pub huber_delta: f32 where bound,
        /// Aggregation weight.
        pub weight: Weight,
        /// Numbers of the aggregation that are read from memory.
        pub weight_from: WeightFrom<'a>,
        /// dL/dV, `[N]`.
        pub gradient: Out<'a, f32> [tokens],
        /// Loss l per token, without W, `[N]`.
        pub token_loss: Option<Out<'a, f32>> [tokens],
        /// Loss per sequence, W·Σ l, `[S]`.
        pub row_loss: Out<'a, f64> [sequences],
        /// Number of tokens whose clipped branch was the larger, `[S]`.
        pub row_clipped: Out<'a, u32> [sequences],
        /// Number of live tokens, `[S]`.
        pub row_tokens: Out<'a, u32> [sequences],
        /// Above [`flag::LIMIT`] if a live input or result is bad, `[S]`.
        pub row_alarm: Out<'a, u32> [sequences],
    }
    unsafe "value_loss", over cu_seqlens (tokens, sequences),
        require |k| {
            if k.values_old.is_none() && k.cliprange_value < f32::INFINITY {
                return Err(Error::Combination { argument: "values_old", expected: "needed to clip values" });
            }
            k.weight_from.check(&k.weight)
        };
}

#[derive(Clone, Copy)]
struct Token<const HUBER: bool> {
    range: f32,
    delta: f32,
    /// Weight W of the row.
    weight: f32,
}

impl<const HUBER: bool> Token<HUBER> {
    /// Gradient, loss, whether the token is clipped, and the alarm.
    #[inline(always)]
    fn compute(&self, input: impl Fn(usize) -> f32) -> (f32, f32, bool, u32) {
        let (value, old, target) = (input(0), input(1), input(2));
        let (low, high) = (old - self.range, old + self.range);
        let raised = if value < low { low } else { value };
        let bounded = if raised > high { high } else { raised };
        let (error, clipped_error) = (value - target, bounded - target);
        let clipped = clipped_error.abs() > error.abs();
        let larger = if clipped { clipped_error } else { error };
        let delta = self.delta;
        let far = HUBER && larger.abs() > delta;
        let loss = if far { delta * (larger.abs() - 0.5 * delta) } else { 0.5 * (larger * larger) };
        let least = if HUBER && error < -delta { -delta } else { error };
        let slope = if HUBER && least > delta { delta } else { least };
        // + 0, so that a gradient is never −0.
        let gradient = if clipped { 0.0 } else { self.weight * slope + 0.0 };
        let inputs = flag::worse(flag::finite(value), flag::worse(flag::finite(old), flag::finite(target)));
        let alarm = flag::worse(inputs, flag::worse(flag::finite(loss), flag::finite(gradient)));
        (gradient, loss, clipped, alarm)
    }
}

/// Variant that does not write the token losses.
impl<const HUBER: bool> Element<3, 1, 2, 0> for Token<HUBER> {
    const COUNTS: u32 = 0b10;

    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 2, 0> {
        let (gradient, loss, clipped, alarm) = self.compute(input);
        Lane { out: [gradient], sum: [loss, num::count(clipped)], max: [], alarm }
    }
}

impl<const HUBER: bool> Element<3, 2, 2, 0> for Token<HUBER> {
    const COUNTS: u32 = 0b10;

    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<2, 2, 0> {
        let (gradient, loss, clipped, alarm) = self.compute(input);
        Lane { out: [gradient, loss], sum: [loss, num::count(clipped)], max: [], alarm }
    }
}

impl Kernel for ValueLoss<'_> {
    /// CPU only, since a GPU's sweep tests for the sink in each lane anyway: avoids computing token losses
    /// that are not wanted, and a δ that has no effect.
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        match (&self.token_loss, self.huber_delta < f32::INFINITY) {
            (None, false) => self.swept::<false, T, 1>(team, row, [Some(*self.gradient)]),
            (None, true) => self.swept::<true, T, 1>(team, row, [Some(*self.gradient)]),
            _ => self.row_as::<0, T>(team, row),
        }
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        self.swept::<true, T, 2>(team, row, [Some(*self.gradient), sink(&self.token_loss)]);
    }
}

impl ValueLoss<'_> {
    #[inline(always)]
    fn swept<const HUBER: bool, T: Team, const M: usize>(&self, team: &T, row: usize, outs: [Sink<'_>; M])
    where
        Token<HUBER>: Element<3, M, 2, 0>,
    {
        let (span, mask) = (self.cu_seqlens.span(row), self.loss_mask);
        let tokens = team.count(span, mask);
        let weight = self.weight_from.fill(team, self.weight).of(tokens);
        let ins = [Stream::Array(self.values), Stream::or(self.values_old, 0.0), Stream::Array(self.returns)];
        let token =
            Token::<HUBER> { range: self.cliprange_value, delta: self.huber_delta, weight: weight as f32 };
        let swept = team.sweep(span, mask, ins, outs, &token);
        if team.leads() {
            self.row_loss.put(row, num::canonical64(weight * swept.sums[0]));
            // A row has fewer than 2³² tokens, because its offsets are u32.
            self.row_clipped.put(row, swept.sums[1] as u32);
            self.row_tokens.put(row, tokens as u32);
            self.row_alarm.put(row, swept.alarm);
        }
    }
}
