//! Running sums within each sequence.

use super::locate::{self, Domain};
use crate::{Batch, Device, Error};
use lockstep_core::aggregate::RowScan;
use lockstep_core::ragged::{In, Out};
use lockstep_core::team::Direction;

/// Computes masked inclusive prefix or suffix sums `[N]` of `values` `[N]` within each sequence; formula:
/// [`lockstep_core::aggregate::scan`].
///
/// Errors: lengths that disagree; a live value that is not finite or a running sum that overflows (index).
pub fn row_scan(
    device: &Device,
    batch: &Batch<'_>,
    values: &[f32],
    direction: Direction,
) -> Result<Vec<f32>, Error> {
    locate::live(batch, "values", values, Domain::Finite)?;
    let mut scanned = vec![0.0; batch.tokens()];
    device.run(&RowScan {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        values: In::new(values),
        direction,
        scanned: Out::new(&mut scanned),
    })?;
    locate::finite("scanned", &scanned, "the running sum is too large for f32")?;
    Ok(scanned)
}
