//! A token's covariance of advantage and log-probability: what Clip-Cov and KL-Cov select by.
//!
//! **Formula** (2505.22617; maths.md §2.6): cov_t = (A_t − mean(A))·(logp_t − mean(logp)), means over the live tokens of the batch.
//!
//! **Shapes**: per token `[N]`; advantages `[N]` or `[S]`; moments `[6]` as [`fold_moments`](crate::aggregate::moments) leaves them.
//!
//! **Special cases**: masked tokens write 0.
//!
//! **Accuracy**: binary64, rounded once.
//!
//! **Variants**: verl's means are those of the micro-batch, so that its results depend on it; pass the moments of the whole batch.

use crate::aggregate::moments::MEAN;
use crate::num::canonical;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::Team;

/// The op `covariance`.
#[derive(Clone, Copy, Debug)]
pub struct Covariance<'a> {
    /// Offsets of sequences, `[S+1]`.
    pub cu_seqlens: Offsets<'a>,
    /// Which tokens take part, `[N]`.
    pub loss_mask: Mask<'a>,
    /// Log-probabilities of the current policy, `[N]`.
    pub logp: In<'a, f32>,
    /// Advantage, `[S]` or `[N]`.
    pub advantage: In<'a, f32>,
    /// Whether `advantage` has one entry per token.
    pub advantage_per_token: bool,
    /// Moments of `logp`, `[6]`.
    pub logp_moments: In<'a, f64>,
    /// Moments of the advantages, counted by tokens, `[6]`.
    pub advantage_moments: In<'a, f64>,
    /// `[N]`.
    pub covariance: Out<'a, f32>,
}

crate::kernel_args!(Covariance<'_> { cu_seqlens, loss_mask, logp, advantage, advantage_per_token, logp_moments, advantage_moments, covariance });

impl Kernel for Covariance<'_> {
    const NAME: &'static str = "covariance";

    fn rows(&self) -> usize {
        self.cu_seqlens.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.cu_seqlens.span(row).len()
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (mask, logp, advantage, per_token) =
            (self.loss_mask, self.logp, self.advantage, self.advantage_per_token);
        let (mean_logp, mean_advantage) = (self.logp_moments.at(MEAN), self.advantage_moments.at(MEAN));
        let out = self.covariance;
        team.for_each(self.cu_seqlens.span(row), move |i| {
            let a = f64::from(advantage.at(if per_token { i } else { row }));
            let product = (a - mean_advantage) * (f64::from(logp.at(i)) - mean_logp);
            out.put(i, if mask.at(i) { canonical(product as f32) } else { 0.0 });
        });
    }
}
