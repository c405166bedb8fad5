//! Importance ratios of tokens, and their statistics.
//!
//! **Formula** (PPO 1707.06347; docs/maths/correction.md): d = logp − logp_old, r = exp(guard(d)).
//!
//! **Shapes**: `logp`, `logp_old` `[N]`, in nats; `ratio`, `log_ratio` `[N]`; `row_sums` `[SUMS][S]`,
//! `row_maxima` `[2][S]`.
//!
//! **Special cases**: masked tokens write 0 and are not counted. `log_ratio` is the *raw* d: the guard
//! changes the ratio, but not the reported log-ratio.
//!
//! **Accuracy**: d rounds once (2⁻²⁴ relative, exact if logp and logp_old are within a factor of two), so r
//! is within 1 ULP + |d|·2⁻²⁴.

use super::Guard;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::flag;
use crate::ragged::{In, Mask, Offsets, Out, Stream, sink};
use crate::team::{Element, Lane, Team};

/// The importance ratio of a token, after the guard.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// The guarded log-ratio.
    pub log_ratio: f32,
    /// The ratio r, exp of `log_ratio`.
    pub ratio: f32,
    /// Whether the raw log-ratio was inside the guard.
    pub inside: bool,
}

/// Computes the importance ratio r = exp(guard(logp − logp_old)) of one token.
#[inline(always)]
pub fn token_ratio<A: Arith>(logp: f32, logp_old: f32, guard: Guard) -> Ratio {
    let (log_ratio, inside) = guard.apply_as::<A>(logp - logp_old);
    Ratio { log_ratio, ratio: num::exp::<A>(log_ratio), inside }
}

/// Index of each statistic in `row_sums`; each is a sum over live tokens.
pub mod sum {
    /// −d: the k1 estimate of KL(old ‖ current).
    pub const K1: usize = 0;
    /// exp(d) − d − 1: the k3 estimate of KL(old ‖ current).
    pub const K3: usize = 1;
    /// r − 1, which is exact near 1, where a sum of r would round the difference away.
    pub const EXCESS: usize = 2;
    /// (r − 1)².
    pub const EXCESS_SQUARED: usize = 3;
    /// Number of tokens outside the guard.
    pub const GUARDED: usize = 4;
    /// Number of tokens whose ratio is in the band, both ends included.
    pub const IN_BAND: usize = 5;
    /// Number of statistics.
    pub const SUMS: usize = 6;
}

crate::kernel! {
    /// The op `token_ratio`: one ratio per token, and statistics per sequence.
    pub struct TokenRatio<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Numerator of the ratio: log-probabilities of the current policy, `[N]`.
        pub logp: In<'a, f32> [tokens],
        /// Denominator of the ratio: log-probabilities of the older policy, `[N]`.
        pub logp_old: In<'a, f32> [tokens],
        /// Guard of the log-ratio.
        pub guard: Guard where valid,
        /// Lower and upper bound of the ratios counted by [`sum::IN_BAND`].
        pub band: [f32; 2],
        /// Ratios r, `[N]`.
        pub ratio: Option<Out<'a, f32>> [tokens],
        /// Raw log-ratios d, `[N]`.
        pub log_ratio: Option<Out<'a, f32>> [tokens],
        /// Statistics of each sequence, `[SUMS][S]`; see [`sum`].
        pub row_sums: Out<'a, f64> [sum::SUMS * sequences],
        /// max r and max −r, `[2][S]`.
        pub row_maxima: Out<'a, f32> [2 * sequences],
        /// Row alarm, `[S]`: above [`flag::LIMIT`] if an input is not a log-probability.
        pub row_alarm: Out<'a, u32> [sequences],
    }
    unsafe "token_ratio", over cu_seqlens (tokens, sequences);
}

impl Kernel for TokenRatio<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let swept = team.sweep(
            self.cu_seqlens.span(row),
            self.loss_mask,
            [Stream::Array(self.logp), Stream::Array(self.logp_old)],
            [sink(&self.ratio), sink(&self.log_ratio)],
            &Token { guard: self.guard, band: self.band },
        );
        if team.leads() {
            let rows = self.cu_seqlens.rows();
            for (k, &value) in swept.sums.iter().enumerate() {
                self.row_sums.put(k * rows + row, value);
            }
            for (k, &value) in swept.maxima.iter().enumerate() {
                self.row_maxima.put(k * rows + row, value);
            }
            self.row_alarm.put(row, swept.alarm);
        }
    }
}

struct Token {
    guard: Guard,
    band: [f32; 2],
}

impl Element<2, 2, { sum::SUMS }, 2> for Token {
    const COUNTS: u32 = 1 << sum::GUARDED | 1 << sum::IN_BAND;

    #[inline(always)]
    fn element<A: Arith>(
        &self,
        _staged: [f32; 2],
        input: impl Fn(usize) -> f32,
    ) -> Lane<2, { sum::SUMS }, 2> {
        let (logp, logp_old) = (input(0), input(1));
        let alarm = flag::worse(flag::logp(logp), flag::logp(logp_old));
        let Ratio { log_ratio, ratio, inside } = token_ratio::<A>(logp, logp_old, self.guard);
        let in_band = (ratio >= self.band[0]) & (ratio <= self.band[1]);
        let (k3, excess) = (num::expm1mx::<A>(log_ratio), ratio - 1.0);
        Lane {
            out: [ratio, logp - logp_old],
            sum: [-log_ratio, k3, excess, excess * excess, num::count(!inside), num::count(in_band)],
            max: [ratio, -ratio],
            alarm,
        }
    }
}
