//! Covariance of advantage and log-probability per token, by which Clip-Cov and KL-Cov select.
//!
//! **Formula** (2505.22617; docs/maths/gates.md): cov_t = (A_t − mean(A))·(logp_t − mean(logp)), with means
//! over the live tokens of the batch.
//!
//! **Shapes**: per token `[N]`; advantages `[N]` or `[S]`; moments `[6]` as
//! [`fold_moments`](crate::aggregate::moments) leaves them.
//!
//! **Special cases**: masked tokens get 0.
//!
//! **Accuracy**: binary64, rounded once.
//!
//! **Variants**: verl uses the means of the micro-batch, so that its results depend on it; pass the moments
//! of the whole batch.

use crate::aggregate::moments::{MEAN, MOMENTS};
use crate::num::Arith;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Stream, flag};
use crate::team::{Element, Lane, Team};

crate::kernel! {
    /// The op `covariance`: centred advantage times centred log-probability of each token.
    pub struct Covariance<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Tokens that count, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Log-probabilities of the current policy, `[N]`.
        pub logp: In<'a, f32> [tokens],
        /// Advantages, `[S]` or `[N]`.
        pub advantage: In<'a, f32> [advantages],
        /// Whether `advantage` has one entry per token.
        pub advantage_per_token: bool,
        /// Moments of `logp`, `[6]`.
        pub logp_moments: In<'a, f64> [MOMENTS],
        /// Moments of the advantages, counted by tokens, `[6]`.
        pub advantage_moments: In<'a, f64> [MOMENTS],
        /// Covariance, `[N]`.
        pub covariance: Out<'a, f32> [tokens],
    }
    unsafe "covariance", over cu_seqlens (tokens, sequences),
        let advantages = |k| if k.advantage_per_token { tokens } else { sequences };
}

impl Kernel for Covariance<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let advantage = match self.advantage_per_token {
            true => Stream::Array(self.advantage),
            false => Stream::Constant(self.advantage.at(row)),
        };
        let centred =
            Centred { logp: self.logp_moments.at(MEAN), advantage: self.advantage_moments.at(MEAN) };
        let ins = [Stream::Array(self.logp), advantage];
        team.sweep(self.cu_seqlens.span(row), self.loss_mask, ins, [Some(*self.covariance)], &centred);
    }
}

/// The means to subtract.
struct Centred {
    logp: f64,
    advantage: f64,
}

impl Element<2, 1, 0, 0> for Centred {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        let (logp, advantage) = (f64::from(input(0)), f64::from(input(1)));
        let product = ((advantage - self.advantage) * (logp - self.logp)) as f32;
        // A NaN must come with an alarm; otherwise it would not be made canonical.
        Lane { out: [product], sum: [], max: [], alarm: flag::finite(product) }
    }
}
