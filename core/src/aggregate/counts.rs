//! The counts from which a batch's denominators are formed, computed on the device and left there for the
//! launches that read them ([`WeightFrom`](super::WeightFrom)).
//!
//! **Formula**: part p of P covers the sequences p, p + P, p + 2P, …:
//!
//! ```text
//! tokens[p]   = Σ live tokens
//! nonempty[p] = number of sequences with a live token
//! longest[p]  = max tokens, masked ones included
//! ```
//!
//! The batch has Σ_p `tokens[p]` live tokens and Σ_p `nonempty[p]` sequences with a live token; its longest
//! sequence has max_p `longest[p]` tokens. One launch, no atomics: the reader adds the parts, and integers
//! may be added in any order.
//!
//! **Shapes**: `cu_seqlens` `[S+1]`, `loss_mask` `[N]`; outputs `[P]`, P at most [`PARTS`].
//!
//! **Special cases**: a sequence without tokens contributes nothing, so offsets may be padded past the last
//! sequence by repeating the last offset.

use super::weight::PARTS;
use crate::Error;
use crate::op::Kernel;
use crate::ragged::{Mask, Offsets, Out};
use crate::require;
use crate::team::Team;

crate::kernel! {
    /// The op `batch_counts`: live tokens, non-empty sequences and longest length of each part of a batch.
    pub struct BatchCounts<'a> {
        /// Offsets of sequences, `[S+1]`.
        pub cu_seqlens: Offsets<'a>,
        /// Tokens that count, `[N]`.
        pub loss_mask: Mask<'a> [tokens],
        /// Number of parts P, from 1 to [`PARTS`].
        pub parts: usize,
        /// Live tokens of each part, `[P]`.
        pub tokens: Out<'a, u64>,
        /// Sequences of each part that have a live token, `[P]`.
        pub nonempty: Out<'a, u64>,
        /// Length in tokens of the longest sequence of each part, masked tokens included, `[P]`.
        pub longest: Out<'a, u64>,
    }
    unsafe "batch_counts", rows |k| k.parts, work |k, _| k.cu_seqlens.sizes().0 / k.parts,
        require |k| k.check_parts(),
        let tokens = |k| k.cu_seqlens.sizes().0,
        check |k| k.check_parts();
}

impl BatchCounts<'_> {
    /// Checks that the number of parts is within its range and that each output has one entry per part.
    fn check_parts(&self) -> Result<(), Error> {
        let parts = self.parts;
        require::scalar("parts", (1..=PARTS).contains(&parts), "a number from 1 to 64", parts as f64)?;
        [("tokens", *self.tokens), ("nonempty", *self.nonempty), ("longest", *self.longest)]
            .into_iter()
            .try_for_each(|(argument, output)| require::length(argument, parts, "one per part", output.len()))
    }
}

impl Kernel for BatchCounts<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (mut tokens, mut nonempty, mut longest) = (0, 0, 0);
        let mut sequence = row;
        while sequence < self.cu_seqlens.rows() {
            let span = self.cu_seqlens.span(sequence);
            let live = team.count(span, self.loss_mask);
            tokens += live;
            nonempty += u64::from(live > 0);
            let length = span.len() as u64;
            longest = if length > longest { length } else { longest };
            sequence += self.parts;
        }
        if team.leads() {
            self.tokens.put(row, tokens);
            self.nonempty.put(row, nonempty);
            self.longest.put(row, longest);
        }
    }
}
