//! MSSR's entropy shaping: per-token advantages with a bonus where the policy was uncertain.
//!
//! **Formula** (2512.18215; docs/maths/rewards.md):
//!
//! ```text
//! ψ_t = min(α H_t, |A_t|/κ),    A'_t = A_t + ψ_t
//! ```
//!
//! MSSR uses α 0.4 and κ 2; κ > 1 keeps the sign of A. H is a constant: no gradient flows through it.
//!
//! **Shapes**: `source` (log-probabilities or entropies), `shaped` `[N]`; `advantage` `[N]` or `[S]`;
//! `cu_seqlens` `[S+1]`. Entropies are in nats.
//!
//! **Special cases**: masked tokens get 0 and their inputs are ignored; A = 0 stays 0.
//!
//! **Accuracy**: `f32`, with one exponential where H is that of the sampled token.
//!
//! **Variants** (docs/maths/disagreements.md, row 18): given log-probabilities, H_t = −p log p of the
//! *sampled token alone*, as in the released code; given entropies (`full`), H_t is the entropy of the whole
//! distribution.

use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Stream, flag};
use crate::team::{Element, Lane, Team};

crate::kernel! {
    /// The op `entropy_bonus`: one shaped advantage per token.
    pub struct EntropyBonus<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Advantages, `[N]` or `[S]`.
        pub advantage: In<'a, f32> [advantages],
        /// Whether `advantage` has one entry per token.
        pub per_token: bool,
        /// Log-probability of the sampled token, or, if `full`, the entropy of its distribution (at least 0),
        /// `[N]`.
        pub source: In<'a, f32> [tokens],
        /// Whether `source` holds entropies.
        pub full: bool,
        /// Coefficient α of the entropy, at least 0.
        pub alpha: f32 where not_negative,
        /// Divisor κ of the bound |A|/κ on the bonus, above 0.
        pub kappa: f32 where positive,
        /// Shaped advantages A', `[N]`.
        pub shaped: Out<'a, f32> [tokens],
        /// Row alarm, `[S]`: above [`flag::LIMIT`] if a live input or a result is invalid.
        pub row_alarm: Out<'a, u32> [sequences],
    }
    unsafe "entropy_bonus", over cu_seqlens (tokens, sequences),
        let advantages = |k| if k.per_token { tokens } else { sequences };
}

impl EntropyBonus<'_> {
    #[inline(always)]
    fn sweep<const FULL: bool, T: Team>(&self, team: &T, row: usize) {
        let advantage = match self.per_token {
            true => Stream::Array(self.advantage),
            false => Stream::Constant(self.advantage.at(row)),
        };
        let token = Token::<FULL> { alpha: self.alpha, kappa: self.kappa };
        let ins = [advantage, Stream::Array(self.source)];
        let swept = team.sweep(self.cu_seqlens.span(row), self.loss_mask, ins, [Some(*self.shaped)], &token);
        if team.leads() {
            self.row_alarm.put(row, swept.alarm);
        }
    }
}

struct Token<const FULL: bool> {
    alpha: f32,
    kappa: f32,
}

impl<const FULL: bool> Element<2, 1, 0, 0> for Token<FULL> {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        let (advantage, source) = (input(0), input(1));
        let entropy = if FULL { source } else { -(num::exp::<A>(source) * source) };
        let bonus = self.alpha * entropy;
        let limit = num::div(advantage.abs(), self.kappa);
        let shaped = num::canonical(advantage + if bonus > limit { limit } else { bonus });
        let bad = if FULL { flag::weight(source) } else { flag::logp(source) };
        let alarm = flag::worse(flag::worse(flag::finite(advantage), bad), flag::finite(shaped));
        Lane { out: [shaped], sum: [], max: [], alarm }
    }
}

impl Kernel for EntropyBonus<'_> {
    crate::row_by_variant!(0; 1);

    #[inline(always)]
    fn variant(&self) -> usize {
        usize::from(self.full)
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        // Separate sweeps: given entropies, no exponential is computed.
        if V == 1 {
            self.sweep::<true, T>(team, row);
        } else {
            self.sweep::<false, T>(team, row);
        }
    }
}
