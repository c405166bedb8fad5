//! Packed batches: which tokens belong to which sequence, and which sequences to which group.

use crate::{Device, Error};
use lockstep_core::aggregate;
use lockstep_core::ragged::{Mask, Offsets, Out};
use lockstep_core::require;

/// A validated packed batch of N tokens, S sequences and G groups.
///
/// * `cu_seqlens` `[S+1]`: sequence s holds tokens `cu_seqlens[s]..cu_seqlens[s+1]`;
/// * `cu_groups` `[G+1]`: group g holds sequences `cu_groups[g]..cu_groups[g+1]` (the responses to one
///   prompt);
/// * `loss_mask` `[N]`: 0 = the token is masked (prompt, tool output, padding).
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    cu_seqlens: Offsets<'a>,
    cu_groups: Offsets<'a>,
    loss_mask: Mask<'a>,
    tokens: usize,
}

impl<'a> Batch<'a> {
    /// Validates offsets and mask.
    ///
    /// Errors, each with the argument and the index: offsets that are empty, do not start at 0, decrease, or
    /// do not end at the number of elements that they partition; a mask of the wrong length; a sequence or
    /// group without members (usually a sign of a wrong offset; [`Batch::with_empty_rows`] accepts them).
    pub fn new(
        cu_seqlens: &'a [u32],
        cu_groups: &'a [u32],
        loss_mask: Option<&'a [u8]>,
    ) -> Result<Self, Error> {
        let batch = Batch::with_empty_rows(cu_seqlens, cu_groups, loss_mask)?;
        for (argument, row, offsets) in
            [("cu_seqlens", "sequence", cu_seqlens), ("cu_groups", "group", cu_groups)]
        {
            if let Some(index) = offsets.windows(2).position(|pair| pair[0] == pair[1]) {
                return Err(lockstep_core::Error::EmptyRow { argument, index, row }.into());
            }
        }
        Ok(batch)
    }

    /// Like [`Batch::new`], but accepts sequences without tokens and groups without sequences. They have loss
    /// 0 and no advantage, and are counted like a sequence whose tokens are all masked.
    pub fn with_empty_rows(
        cu_seqlens: &'a [u32],
        cu_groups: &'a [u32],
        loss_mask: Option<&'a [u8]>,
    ) -> Result<Self, Error> {
        let tokens = cu_seqlens.last().map_or(0, |last| *last as usize);
        let sequences = cu_seqlens.len().saturating_sub(1);
        let offsets = Offsets::new("cu_seqlens", cu_seqlens, tokens, "tokens")?;
        if let Some(mask) = loss_mask {
            require::length("loss_mask", tokens, "one per token of `cu_seqlens`", mask.len())?;
        }
        Ok(Batch {
            cu_seqlens: offsets,
            cu_groups: Offsets::new("cu_groups", cu_groups, sequences, "sequences")?,
            loss_mask: Mask::new(loss_mask),
            tokens,
        })
    }

    /// Returns the same batch with another loss mask `[N]`, for example the one that rejection produced.
    ///
    /// Errors: a mask of the wrong length.
    pub fn with_mask(self, loss_mask: &'a [u8]) -> Result<Self, Error> {
        require::length("loss_mask", self.tokens, "one per token of `cu_seqlens`", loss_mask.len())?;
        Ok(Batch { loss_mask: Mask::new(Some(loss_mask)), ..self })
    }

    /// Number of tokens N, masked ones included.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Number of sequences S.
    pub fn sequences(&self) -> usize {
        self.cu_seqlens.rows()
    }

    /// Number of groups G.
    pub fn groups(&self) -> usize {
        self.cu_groups.rows()
    }

    /// Number of tokens of the longest sequence, masked ones included: the width of the batch when it is
    /// padded. verl's Dr.GRPO uses it as the `horizon` if none is configured; it then changes from batch to
    /// batch.
    pub fn longest(&self) -> usize {
        (0..self.sequences()).map(|row| self.cu_seqlens.span(row).len()).max().unwrap_or(0)
    }

    /// Offsets of the sequences, `[S+1]`.
    pub fn cu_seqlens(&self) -> Offsets<'a> {
        self.cu_seqlens
    }

    /// Offsets of the groups, `[G+1]`.
    pub fn cu_groups(&self) -> Offsets<'a> {
        self.cu_groups
    }

    /// The loss mask, `[N]`.
    pub fn loss_mask(&self) -> Mask<'a> {
        self.loss_mask
    }

    /// Number of live (unmasked) tokens of each sequence, `[S]`.
    pub fn lengths(&self, device: &Device) -> Result<Vec<u32>, Error> {
        let sequences = self.sequences();
        let (mut sums, mut tokens, mut alarm) =
            (vec![0.0; sequences], vec![0; sequences], vec![0; sequences]);
        device.run(&aggregate::Aggregate {
            cu_seqlens: self.cu_seqlens,
            loss_mask: self.loss_mask,
            values: None,
            row_sum: Out::new(&mut sums),
            row_tokens: Out::new(&mut tokens),
            row_alarm: Out::new(&mut alarm),
        })?;
        Ok(tokens)
    }

    /// Counts the live tokens, the sequences that have any, and all sequences.
    pub fn counts(&self, device: &Device) -> Result<Counts, Error> {
        Ok(Counts::of_rows(&self.lengths(device)?))
    }

    #[doc(hidden)]
    pub fn check_tokens(&self, argument: &'static str, got: usize) -> Result<(), Error> {
        Ok(require::length(argument, self.tokens, "one per token of `cu_seqlens`", got)?)
    }

    #[doc(hidden)]
    pub fn check_sequences(&self, argument: &'static str, got: usize) -> Result<(), Error> {
        Ok(require::length(argument, self.sequences(), "one per sequence of `cu_seqlens`", got)?)
    }
}

/// The counts that the loss's denominators are computed from. If the counts of all micro-batches and ranks
/// are added and the total is passed, the loss does not depend on how the batch was split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Live tokens.
    pub tokens: u64,
    /// Sequences with at least one live token.
    pub nonempty: u64,
    /// All sequences.
    pub sequences: u64,
}

impl Counts {
    /// The counts of sequences with these numbers of live tokens.
    pub(crate) fn of_rows(live: &[u32]) -> Self {
        Counts {
            tokens: live.iter().map(|n| u64::from(*n)).sum(),
            nonempty: live.iter().filter(|n| **n > 0).count() as u64,
            sequences: live.len() as u64,
        }
    }
}

impl std::ops::Add for Counts {
    type Output = Counts;
    fn add(self, other: Counts) -> Counts {
        Counts {
            tokens: self.tokens.saturating_add(other.tokens),
            nonempty: self.nonempty.saturating_add(other.nonempty),
            sequences: self.sequences.saturating_add(other.sequences),
        }
    }
}
