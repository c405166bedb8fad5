//! Moments of a batch.

use crate::{Batch, Device, Error};
use lockstep_core::aggregate::moments::{COUNT, FoldMoments, HIGH, LOW, MEAN, MOMENTS, RowMoments, SQUARES};
use lockstep_core::ragged::{In, Mask, Offsets, Out, flag};
use lockstep_core::require;

/// Count, mean, squared deviations and extremes of the values of a batch; formula:
/// [`lockstep_core::aggregate::moments`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Moments {
    /// Number of counted values.
    pub count: f64,
    /// Their mean; 0 without values.
    pub mean: f64,
    /// Sum of the squared deviations from the mean.
    pub squares: f64,
    /// The smallest; +∞ without values.
    pub low: f64,
    /// The largest; −∞ without values.
    pub high: f64,
}

/// Computes the moments of `values` `[N]` over the live tokens.
///
/// Errors: lengths that disagree; a live value that is not finite (index).
pub fn token_moments(device: &Device, batch: &Batch<'_>, values: &[f32]) -> Result<Moments, Error> {
    batch.check_tokens("values", values.len())?;
    let m = run(device, batch.cu_seqlens(), batch.loss_mask(), ("values", values), false, false)?;
    Ok(Moments { count: m[COUNT], mean: m[MEAN], squares: m[SQUARES], low: m[LOW], high: m[HIGH] })
}

/// Moments of one value per sequence, each counted once; NaN and sequences that are not `valid` are excluded.
pub(crate) fn of_sequences(
    device: &Device,
    batch: &Batch<'_>,
    values: &[f32],
    valid: Option<&[u8]>,
) -> Result<[f64; MOMENTS], Error> {
    run(device, batch.cu_groups(), Mask::new(valid), ("values", values), false, true)
}

/// Moments of one value per sequence, each counted as often as the sequence has live tokens; NaN is excluded.
pub(crate) fn by_tokens(device: &Device, batch: &Batch<'_>, values: &[f32]) -> Result<[f64; MOMENTS], Error> {
    run(device, batch.cu_seqlens(), batch.loss_mask(), ("values", values), true, true)
}

pub(super) fn run(
    device: &Device,
    offsets: Offsets<'_>,
    mask: Mask<'_>,
    (argument, values): (&'static str, &[f32]),
    per_row: bool,
    nan_is_missing: bool,
) -> Result<[f64; MOMENTS], Error> {
    let rows = offsets.rows();
    let (mut row_moments, mut alarm) = (vec![0.0; MOMENTS * rows], vec![0; rows]);
    device.run(&RowMoments {
        offsets,
        mask,
        values: In::new(values),
        per_row,
        nan_is_missing,
        row_moments: Out::new(&mut row_moments),
        row_alarm: Out::new(&mut alarm),
    })?;
    if let Some(row) = alarm.iter().position(|alarm| *alarm > flag::LIMIT) {
        let span = offsets.span(row);
        let bad =
            |i: &usize| mask.at(*i) && !(values[*i].is_finite() || (nan_is_missing && values[*i].is_nan()));
        let index = if per_row { Some(row) } else { (span.start..span.end).find(bad) };
        let got = index.map_or(f32::NAN, |i| values[i]);
        return Err(require::value(argument, index, "a finite number", got).into());
    }
    let mut moments = [0.0; MOMENTS];
    device.run(&FoldMoments { row_moments: In::new(&row_moments), rows, moments: Out::new(&mut moments) })?;
    Ok(moments)
}
