//! Masked sum and token count of each sequence: the first half of every aggregation, and the counts from
//! which its denominators are formed.

use crate::num::Arith;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Stream, flag};
use crate::team::{Element, Lane, Team};

crate::kernel! {
    /// The op `aggregate`: Σ of `values` over live tokens, and their number, for each sequence.
    ///
    /// Without `values` it only counts. A sequence without live tokens has sum 0 and count 0.
    pub struct Aggregate<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Tokens that count, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Per-token values, `[N]`; absent to only count.
        pub values: Option<In<'a, f32>> [tokens],
        /// Sum per sequence, `[S]`.
        pub row_sum: Out<'a, f64> [sequences],
        /// Live tokens per sequence, `[S]`.
        pub row_tokens: Out<'a, u32> [sequences],
        /// Above [`flag::LIMIT`] if a live value is not finite, `[S]`.
        pub row_alarm: Out<'a, u32> [sequences],
    }
    unsafe "aggregate", over cu_seqlens (tokens, sequences);
}

impl Kernel for Aggregate<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.cu_seqlens.span(row);
        let tokens = team.count(span, self.loss_mask);
        let mut sum = 0.0;
        let mut alarm = 0;
        if let Some(values) = self.values {
            let swept = team.sweep(span, self.loss_mask, [Stream::Array(values)], [], &Value);
            [sum] = swept.sums;
            alarm = swept.alarm;
        }
        if team.leads() {
            self.row_sum.put(row, sum);
            // A row has fewer than 2³² tokens: its offsets are u32.
            self.row_tokens.put(row, tokens as u32);
            self.row_alarm.put(row, alarm);
        }
    }
}

struct Value;

impl Element<1, 0, 1, 0> for Value {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 1, 0> {
        let x = input(0);
        Lane { out: [], sum: [x], max: [], alarm: flag::finite(x) }
    }
}
