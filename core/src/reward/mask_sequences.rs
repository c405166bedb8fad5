//! A loss mask without the tokens of dropped sequences.
//!
//! **Formula** (docs/maths/advantages.md and docs/maths/rewards.md): m'_t = 1 if m_t ≠ 0 and the sequence of
//! t is kept, else 0.
//!
//! A batch with this mask behaves like a batch of only the remaining sequences: its live tokens and its
//! sequences with a live token are the right denominators, and nothing has to be repacked.
//!
//! **Shapes**: `loss_mask`, `masked` `[N]`; `keep` `[S]`; `cu_seqlens` `[S+1]`.

use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out};
use crate::team::Team;

crate::kernel! {
    /// The op `mask_sequences`: the loss mask without the tokens of dropped sequences.
    pub struct MaskSequences<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Tokens that count, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Sequences that remain, `[S]`: `keep` of [`FilterGroups`](super::FilterGroups).
        pub keep: In<'a, u8> [sequences],
        /// The new mask, `[N]`.
        pub masked: Out<'a, u8> [tokens],
    }
    unsafe "mask_sequences", over cu_seqlens (tokens, sequences);
}

impl Kernel for MaskSequences<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (kept, mask, out) = (self.keep.at(row) != 0, self.loss_mask, *self.masked);
        team.for_each(self.cu_seqlens.span(row), move |i| out.put(i, u8::from(kept && mask.at(i))));
    }
}
