//! Policy versions within sequences, for partial rollouts.

use super::locate;
use crate::{Batch, Device, Error};
use lockstep_core::ragged::{In, Out};
use lockstep_core::ratio::{Staleness as Kernel, staleness::VERSIONS};

/// The staleness of a batch's tokens.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Staleness {
    /// 1 where a token is live and not too old, `[N]`: for [`Batch::with_mask`].
    pub kept_mask: Vec<u8>,
    /// Version that a sequence was started with, −1 if there is none, `[S]`: the sort key of a buffer of
    /// partial rollouts.
    pub start_version: Vec<i32>,
    /// 1 where a sequence has a kept token, `[S]`: the `valid` of the group advantage.
    pub kept: Vec<u8>,
    /// Fraction of live tokens that an older version sampled.
    pub off_policy_fraction: f64,
    /// Fraction of live tokens that are too old.
    pub too_old_fraction: f64,
}

/// Finds the tokens that are at most `max_staleness` versions behind `current`, from the version that sampled
/// each token, `versions` `[N]`; formula: [`lockstep_core::ratio::staleness`].
///
/// Errors: lengths that disagree; a version below −1 or of at least 2²⁴ (index); a negative `max_staleness`.
///
/// ```
/// use lockstep_ops::{Batch, Device, ops::staleness};
/// let batch = Batch::new(&[0, 3, 4], &[0, 2], None)?;
/// let found = staleness(&Device::cpu(), &batch, &[5, 6, 7, 7], 7, 1)?;
/// assert_eq!((&found.kept_mask[..], &found.start_version[..]), (&[0, 1, 1, 1][..], &[5, 7][..]));
/// assert_eq!((found.off_policy_fraction, found.too_old_fraction), (0.5, 0.25));
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn staleness(
    device: &Device,
    batch: &Batch<'_>,
    versions: &[i32],
    current: i32,
    max_staleness: i32,
) -> Result<Staleness, Error> {
    let expected = "a version below 2^24, or -1 for none";
    locate::each_live(batch, "versions", versions, expected, |v| (-1..VERSIONS).contains(&v))?;
    let rows = batch.sequences();
    let mut out = Staleness {
        kept_mask: vec![0; batch.tokens()],
        start_version: vec![0; rows],
        ..Staleness::default()
    };
    let (mut off_policy, mut kept) = (vec![0; rows], vec![0; rows]);
    device.run(&Kernel {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        versions: In::new(versions),
        current,
        max_staleness,
        kept_mask: Out::new(&mut out.kept_mask),
        row_start: Out::new(&mut out.start_version),
        row_off_policy: Out::new(&mut off_policy),
        row_kept: Out::new(&mut kept),
    })?;
    let total = |counts: &[u32]| counts.iter().map(|n| u64::from(*n)).sum::<u64>() as f64;
    let tokens = batch.counts(device)?.tokens as f64;
    if tokens > 0.0 {
        out.off_policy_fraction = total(&off_policy) / tokens;
        out.too_old_fraction = (tokens - total(&kept)) / tokens;
    }
    out.kept = kept.iter().map(|n| u8::from(*n > 0)).collect();
    Ok(out)
}
