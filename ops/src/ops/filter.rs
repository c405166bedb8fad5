//! Filters that decide which groups and sequences remain in a batch.

use super::reward::check_scores;
use crate::{Batch, Device, Error};
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::require;
use lockstep_core::reward::{Criterion, FilterGroups, MaskSequences};

/// The result of a filter.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Filtered {
    /// 1 = the sequence is kept, `[S]`.
    pub keep: Vec<u8>,
    /// Number of kept sequences of each group, `[G]`.
    pub kept: Vec<u32>,
    /// The statistic that the criterion compared, `[G]`.
    pub statistic: Vec<f32>,
}

/// Whether enough groups were kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// At least as many groups as wanted were kept.
    Complete,
    /// The batch is partial. (DAPO's recipe raises an error after its last generation; here the caller
    /// decides.)
    Partial {
        /// Number of groups that are missing.
        missing: usize,
    },
}

/// A packed batch of the kept sequences: its offsets, and the indices in the original batch.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Packed {
    /// Offsets of the kept sequences, `[S'+1]`.
    pub cu_seqlens: Vec<u32>,
    /// Offsets of the kept groups, `[G'+1]`; groups without a kept sequence are removed.
    pub cu_groups: Vec<u32>,
    /// Original indices of the kept groups, `[G']`.
    pub groups: Vec<u32>,
    /// Original indices of the kept sequences, `[S']`.
    pub sequences: Vec<u32>,
    /// Original indices of the kept tokens, masked ones included, `[N']`.
    pub tokens: Vec<u32>,
}

impl Filtered {
    /// Number of groups that lost all their sequences.
    pub fn dropped_groups(&self) -> usize {
        self.kept.iter().filter(|n| **n == 0).count()
    }

    /// Number of sequences that were dropped.
    pub fn dropped_sequences(&self) -> usize {
        self.keep.iter().filter(|keep| **keep == 0).count()
    }

    /// Whether at least `wanted` groups were kept.
    pub fn status(&self, wanted: usize) -> Status {
        let kept = self.kept.len() - self.dropped_groups();
        if kept >= wanted { Status::Complete } else { Status::Partial { missing: wanted - kept } }
    }

    /// Packs the kept sequences of the first `limit` groups that have any, in their original order. DAPO
    /// truncates to its batch size this way.
    ///
    /// Errors: a batch whose number of sequences is not that of the filtered one.
    pub fn pack(&self, batch: &Batch<'_>, limit: usize) -> Result<Packed, Error> {
        batch.check_sequences("keep", self.keep.len())?;
        let mut packed = Packed { cu_seqlens: vec![0], cu_groups: vec![0], ..Packed::default() };
        for group in 0..batch.groups() {
            let span = batch.cu_groups().span(group);
            let remaining: Vec<usize> = (span.start..span.end).filter(|s| self.keep[*s] != 0).collect();
            if remaining.is_empty() || packed.groups.len() == limit {
                continue;
            }
            packed.groups.push(group as u32);
            for sequence in remaining {
                let tokens = batch.cu_seqlens().span(sequence);
                packed.sequences.push(sequence as u32);
                packed.tokens.extend((tokens.start..tokens.end).map(|t| t as u32));
                packed.cu_seqlens.push(packed.tokens.len() as u32);
            }
            packed.cu_groups.push(packed.sequences.len() as u32);
        }
        Ok(packed)
    }
}

/// Filters groups and sequences by `metric` `[S]`; formula: [`lockstep_core::reward::filter`]. A sequence
/// with a NaN metric or a 0 in `valid` `[S]` is not counted.
///
/// Errors: lengths that disagree; an infinite metric (index); parameters out of their domain.
///
/// ```
/// use lockstep_ops::core::reward::Criterion;
/// use lockstep_ops::{Batch, Device, ops::{filter::Status, filter_groups}};
/// let batch = Batch::new(&[0, 2, 3, 4, 5], &[0, 2, 4], None)?;
/// let out = filter_groups(&Device::cpu(), &batch, &[0.1, 0.1, 1.0, 0.0], None, Criterion::Varied)?;
/// assert_eq!((&out.keep[..], out.dropped_groups()), (&[0, 0, 1, 1][..], 1));
/// assert_eq!(out.status(2), Status::Partial { missing: 1 });
/// assert_eq!(out.pack(&batch, 2)?.tokens, [3, 4]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias("dynamic sampling", "rejection sampling", "DAPO"))]
pub fn filter_groups(
    device: &Device,
    batch: &Batch<'_>,
    metric: &[f32],
    valid: Option<&[u8]>,
    criterion: Criterion,
) -> Result<Filtered, Error> {
    check_scores(batch, "metric", metric, valid)?;
    let groups = batch.groups();
    let mut out =
        Filtered { keep: vec![0; batch.sequences()], kept: vec![0; groups], statistic: vec![0.0; groups] };
    device.run(&FilterGroups {
        cu_groups: batch.cu_groups(),
        metric: In::new(metric),
        valid: Mask::new(valid),
        criterion,
        keep: Out::new(&mut out.keep),
        kept: Out::new(&mut out.kept),
        statistic: Out::new(&mut out.statistic),
    })?;
    Ok(out)
}

/// Computes the batch's loss mask `[N]` without the tokens of sequences whose entry in `keep` `[S]` is 0. A
/// batch with this mask has the denominators of the kept sequences.
///
/// Errors: a `keep` of the wrong length.
#[doc(alias = "rejection sampling")]
pub fn mask_sequences(device: &Device, batch: &Batch<'_>, keep: &[u8]) -> Result<Vec<u8>, Error> {
    require::length("keep", batch.sequences(), "one per sequence", keep.len())?;
    let mut masked = vec![0; batch.tokens()];
    device.run(&MaskSequences {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        keep: In::new(keep),
        masked: Out::new(&mut masked),
    })?;
    Ok(masked)
}
