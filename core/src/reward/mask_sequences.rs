//! A loss mask without the tokens of the sequences that were dropped.
//!
//! **Formula** (docs/maths/advantages.md, docs/maths/rewards.md): m'_t = 1 where m_t ≠ 0 and the sequence of
//! t is kept, else 0.
//!
//! A batch with this mask is the batch of the sequences that remain: its live tokens and its sequences with a
//! live token are the denominators of what is left, and nothing has to be packed anew.
//!
//! **Shapes**: `loss_mask`, `masked` `[N]`; `keep` `[S]`; `cu_seqlens` `[S+1]`.

use crate::Error;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::Team;

/// The op `mask_sequences`.
#[derive(Debug)]
pub struct MaskSequences<'a> {
    /// Offsets of sequences, `[S+1]`.
    pub cu_seqlens: Offsets<'a>,
    /// Which tokens take part, `[N]`.
    pub loss_mask: Mask<'a>,
    /// Which sequences remain, `[S]`: `keep` of [`FilterGroups`](super::FilterGroups).
    pub keep: In<'a, u8>,
    /// `[N]`.
    pub masked: Out<'a, u8>,
}

crate::kernel_args!(unsafe MaskSequences<'_> { cu_seqlens, loss_mask, keep, masked });

impl Kernel for MaskSequences<'_> {
    const NAME: &'static str = "mask_sequences";

    fn check_bounds(&self) -> Result<(), Error> {
        let (tokens, sequences) = self.cu_seqlens.sizes();
        crate::lengths!(self; tokens => loss_mask, masked; sequences => keep);
        Ok(())
    }

    fn rows(&self) -> usize {
        self.cu_seqlens.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.cu_seqlens.span(row).len()
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (kept, mask, out) = (self.keep.at(row) != 0, self.loss_mask, *self.masked);
        team.for_each(self.cu_seqlens.span(row), move |i| out.put(i, u8::from(kept && mask.at(i))));
    }
}
