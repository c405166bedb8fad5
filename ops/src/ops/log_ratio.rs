//! Log-ratios over prefixes, segments and sequences.

use super::locate::{self, Checked};
use crate::{Batch, Device, Error};
use lockstep_core::ragged::{In, Offsets, Out};
use lockstep_core::ratio::{LogRatioScan, ScanKind};

/// Computes a log-ratio for each token, `[N]`, from `logp` and `logp_old` `[N]`; 0 where masked. Formula:
/// [`lockstep_core::ratio::log_ratio_scan`]. `cap_at_one` applies to the two minima: a log-ratio above 0
/// counts as 0.
///
/// Errors: lengths that disagree; a live log-probability that is NaN, infinite or above 0 (argument, index);
/// a log-ratio that overflows.
///
/// ```
/// use lockstep_ops::core::ratio::ScanKind;
/// use lockstep_ops::{Batch, Device, ops::log_ratio_scan};
/// let batch = Batch::new(&[0, 3], &[0, 1], None)?;
/// let (logp, old) = ([-1.0, -1.0, -1.0], [-1.5, -0.75, -1.25]);
/// let prefix = log_ratio_scan(&Device::cpu(), &batch, &logp, &old, ScanKind::Prefix, false)?;
/// assert_eq!(prefix, [0.5, 0.25, 0.5]);
/// let min_pro_style = log_ratio_scan(&Device::cpu(), &batch, &logp, &old, ScanKind::MinBefore, true)?;
/// assert_eq!(min_pro_style, [0.5, -0.25, 0.0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn log_ratio_scan(
    device: &Device,
    batch: &Batch<'_>,
    logp: &[f32],
    logp_old: &[f32],
    kind: ScanKind,
    cap_at_one: bool,
) -> Result<Vec<f32>, Error> {
    run(device, batch, batch.cu_seqlens(), logp, logp_old, kind, cap_at_one)
}

/// Like [`log_ratio_scan`], but over segments of tokens (turns, steps) instead of sequences, with offsets
/// `cu_segments` `[K+1]` from 0 to N.
///
/// Errors: those of [`log_ratio_scan`]; invalid offsets.
pub fn segment_log_ratio(
    device: &Device,
    batch: &Batch<'_>,
    cu_segments: &[u32],
    logp: &[f32],
    logp_old: &[f32],
    kind: ScanKind,
) -> Result<Vec<f32>, Error> {
    let segments = Offsets::new("cu_segments", cu_segments, batch.tokens(), "tokens")?;
    run(device, batch, segments, logp, logp_old, kind, false)
}

fn run(
    device: &Device,
    batch: &Batch<'_>,
    offsets: Offsets<'_>,
    logp: &[f32],
    logp_old: &[f32],
    kind: ScanKind,
    cap_at_one: bool,
) -> Result<Vec<f32>, Error> {
    let arguments = [Checked::logp("logp", logp), Checked::logp("logp_old", logp_old)];
    locate::lengths(batch, &arguments)?;
    let (mut log_ratio, mut alarm) = (vec![0.0; batch.tokens()], vec![0; offsets.rows()]);
    device.run(&LogRatioScan {
        offsets,
        loss_mask: batch.loss_mask(),
        logp: In::new(logp),
        logp_old: In::new(logp_old),
        kind,
        cap_at_one,
        log_ratio: Out::new(&mut log_ratio),
        row_alarm: Out::new(&mut alarm),
    })?;
    locate::check_rows(offsets, batch.loss_mask(), &alarm, &arguments, &[], "")?;
    locate::finite("log_ratio", &log_ratio, "the log-ratios of the row are too large for f32")?;
    Ok(log_ratio)
}
