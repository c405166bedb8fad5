//! Mismatch statistics: how far the trainer's probabilities are from the sampler's.
//!
//! **Formula** (verl rollout_corr_helper.py; `routing.md` and `correction.md` in docs/maths), with
//! d = logp_old − logp_rollout and x = clip(d, ±bound), over live tokens:
//!
//! ```text
//! K1 Σ −x   K2 Σ x²/2   K3 Σ e^x − 1 − x           estimates of KL(rollout ‖ old)
//! LOG Σ d   EXCESS Σ (ρ − 1)   EXCESS_SQUARED Σ (ρ − 1)²         ρ = e^x
//! EXTREME + j: tokens with |d| > ln τ_j,  τ = 1.25, 2, 5, 10
//! of a sequence with live tokens: SEQUENCE ρ_s − 1, SEQUENCE_SQUARED (ρ_s − 1)², PPL e^(−mean d) − 1, LIVE 1
//! ρ_s = exp(clip(Σ d, ±bound))
//! ```
//!
//! The χ² divergence of tokens is E ρ² − 1 = (2·EXCESS + EXCESS_SQUARED) / M over the M live tokens, and that
//! of sequences likewise. verl's perplexity ratio is 1 + PPL / S₊ over the S₊ sequences with live tokens.
//! Ratios are summed as ρ − 1, which is exact near 1, where a sum of ρ would round the difference away.
//!
//! **Shapes**: `logp_old`, `logp_rollout` `[N]`, in nats; `row_sums` `[SUMS][S]`, `row_maxima` `[2][S]` (max
//! d, max −d), `row_tokens` `[S]`.
//!
//! **Special cases**: masked tokens are ignored. A sequence without live tokens has sums of 0 and maxima of
//! −∞.
//!
//! **Variants**: `bound` ∞ for frameworks without a clamp (TRL, slime, NeMo RL).

use super::{clip, k2_k3};
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::flag;
use crate::ragged::{In, Mask, Offsets, Out, Stream};
use crate::team::{Element, Lane, Team};

/// Index of each statistic in `row_sums`.
pub mod sum {
    /// Σ d.
    pub const LOG: usize = 0;
    /// Σ −x.
    pub const K1: usize = 1;
    /// Σ x²/2.
    pub const K2: usize = 2;
    /// Σ e^x − 1 − x.
    pub const K3: usize = 3;
    /// Σ (ρ − 1).
    pub const EXCESS: usize = 4;
    /// Σ (ρ − 1)².
    pub const EXCESS_SQUARED: usize = 5;
    /// First of four entries: the number of tokens beyond each [`TAU`](super::TAU).
    pub const EXTREME: usize = 6;
    /// ρ_s − 1.
    pub const SEQUENCE: usize = 10;
    /// (ρ_s − 1)².
    pub const SEQUENCE_SQUARED: usize = 11;
    /// e^(−mean d) − 1.
    pub const PPL: usize = 12;
    /// 1 for a sequence with live tokens.
    pub const LIVE: usize = 13;
    /// Number of statistics.
    pub const SUMS: usize = 14;
}

/// Number of statistics that are sums over tokens; they come first.
const TOKEN_SUMS: usize = 10;

/// Thresholds of the extreme-token fractions F(τ): tokens with max(ρ, 1/ρ) > τ.
pub const TAU: [f32; 4] = [1.25, 2.0, 5.0, 10.0];
/// Logarithms of [`TAU`].
const LOG_TAU: [f32; 4] = [
    f32::from_bits(0x3e64_7fbe), // 0.22314355
    f32::from_bits(0x3f31_7218), // 0.6931472
    f32::from_bits(0x3fce_0210), // 1.609438
    f32::from_bits(0x4013_5d8e), // 2.3025851
];

crate::kernel! {
    /// The op `rollout_mismatch`: mismatch statistics per sequence.
    pub struct RolloutMismatch<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// The trainer's log-probabilities, `[N]`.
        pub logp_old: In<'a, f32> [tokens],
        /// The sampler's log-probabilities, `[N]`.
        pub logp_rollout: In<'a, f32> [tokens],
        /// Bound on the log-ratios of tokens and of sequences; ∞ = none.
        pub bound: f32 where bound,
        /// Statistics of each sequence, `[SUMS][S]`; see [`sum`].
        pub row_sums: Out<'a, f64> [sum::SUMS * sequences],
        /// max d and max −d, `[2][S]`.
        pub row_maxima: Out<'a, f32> [2 * sequences],
        /// Number of live tokens, `[S]`.
        pub row_tokens: Out<'a, u32> [sequences],
        /// Row alarm, `[S]`: above [`flag::LIMIT`] if a live input is not a log-probability.
        pub row_alarm: Out<'a, u32> [sequences],
    }
    unsafe "rollout_mismatch", over cu_seqlens (tokens, sequences);
}

impl Kernel for RolloutMismatch<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (span, mask, bound) = (self.cu_seqlens.span(row), self.loss_mask, self.bound);
        let tokens = team.count(span, mask);
        let ins = [Stream::Array(self.logp_old), Stream::Array(self.logp_rollout)];
        let swept = team.sweep(span, mask, ins, [], &Token { bound });
        if team.leads() {
            let rows = self.cu_seqlens.rows();
            for (k, &value) in swept.sums.iter().enumerate() {
                self.row_sums.put(k * rows + row, value);
            }
            let (log, live) = (swept.sums[sum::LOG], tokens > 0);
            let sequence = f64::from(num::expm1::<T::Arith>(clip(log as f32, bound)));
            let mean = num::div64(log, if live { tokens as f64 } else { 1.0 });
            let ppl = f64::from(num::expm1::<T::Arith>(-(mean as f32)));
            let of_row = |value: f64| if live { num::canonical64(value) } else { 0.0 };
            self.row_sums.put(sum::SEQUENCE * rows + row, of_row(sequence));
            self.row_sums.put(sum::SEQUENCE_SQUARED * rows + row, of_row(sequence * sequence));
            self.row_sums.put(sum::PPL * rows + row, of_row(ppl));
            self.row_sums.put(sum::LIVE * rows + row, of_row(1.0));
            self.row_maxima.put(row, swept.maxima[0]);
            self.row_maxima.put(rows + row, swept.maxima[1]);
            // A row has fewer than 2³² tokens: its offsets are u32.
            self.row_tokens.put(row, tokens as u32);
            self.row_alarm.put(row, swept.alarm);
        }
    }
}

struct Token {
    bound: f32,
}

impl Element<2, 0, TOKEN_SUMS, 2> for Token {
    const COUNTS: u32 = 0b1111 << sum::EXTREME;

    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, TOKEN_SUMS, 2> {
        let (old, rollout) = (input(0), input(1));
        let alarm = flag::worse(flag::logp(old), flag::logp(rollout));
        let d = old - rollout;
        let x = clip(d, self.bound);
        let ([k2, k3], excess) = (k2_k3::<A>(x), num::expm1::<A>(x));
        let beyond = |j: usize| num::count((d > LOG_TAU[j]) | (d < -LOG_TAU[j]));
        let extreme = [beyond(0), beyond(1), beyond(2), beyond(3)];
        Lane {
            out: [],
            sum: [d, -x, k2, k3, excess, excess * excess, extreme[0], extreme[1], extreme[2], extreme[3]],
            max: [d, -d],
            alarm,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_rounded_logarithms() {
        for (tau, log) in TAU.iter().zip(LOG_TAU) {
            assert_eq!(log, libm::log(f64::from(*tau)) as f32);
        }
    }
}
