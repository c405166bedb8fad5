//! Sums and counts of per-token values.

use super::locate::{self, Checked};
use crate::{Batch, Device, Error};
use lockstep_core::aggregate::{Aggregate, FoldRows, Weight};
use lockstep_core::ragged::{In, Out};
use lockstep_core::require;

/// Sums and counts per sequence, and the aggregated value.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Aggregated {
    /// Σ over live tokens per sequence, `[S]`.
    pub row_sum: Vec<f64>,
    /// Live tokens per sequence, `[S]`.
    pub row_tokens: Vec<u32>,
    /// Σ of W·row_sum over sequences.
    pub value: f64,
}

/// Aggregates per-token `values` `[N]` with the weights W of `weight`; [`lockstep_core::aggregate::weight`]
/// describes the five modes.
///
/// Errors: lengths that disagree; a live value that is not finite (index).
#[doc(alias("token-mean", "loss aggregation"))]
pub fn aggregate(
    device: &Device,
    batch: &Batch<'_>,
    values: &[f32],
    weight: &Weight,
) -> Result<Aggregated, Error> {
    batch.check_tokens("values", values.len())?;
    weight.check()?;
    let (row_sum, row_tokens) = row_sums(device, batch, "values", values)?;
    let mut out = Aggregated { row_sum, row_tokens, value: 0.0 };
    let weighted: Vec<f64> =
        out.row_sum.iter().zip(&out.row_tokens).map(|(sum, n)| weight.of(u64::from(*n)) * sum).collect();
    out.value = fold_rows(device, &weighted, batch.sequences())?[0];
    Ok(out)
}

/// The mean of `values` `[N]`, called `name` in errors, over the live tokens of each sequence, into `means`
/// `[S]`: a binary64 sum, divided and rounded once; 0 where no token is live.
///
/// Errors: lengths that disagree; a live value that is not finite (index).
#[doc(hidden)]
pub fn sequence_means_into(
    device: &Device,
    batch: &Batch<'_>,
    name: &'static str,
    values: &[f32],
    means: &mut Vec<f32>,
) -> Result<(), Error> {
    let (row_sum, row_tokens) = row_sums(device, batch, name, values)?;
    means.clear();
    means.extend(row_sum.iter().zip(&row_tokens).map(|(sum, n)| (sum / f64::from((*n).max(1))) as f32));
    Ok(())
}

/// Sums and counts of live tokens, `[S]`.
pub(crate) fn row_sums(
    device: &Device,
    batch: &Batch<'_>,
    name: &'static str,
    values: &[f32],
) -> Result<(Vec<f64>, Vec<u32>), Error> {
    batch.check_tokens(name, values.len())?;
    let rows = batch.sequences();
    let (mut sums, mut tokens, mut alarm) = (vec![0.0; rows], vec![0; rows], vec![0; rows]);
    device.run(&Aggregate {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        values: Some(In::new(values)),
        row_sum: Out::new(&mut sums),
        row_tokens: Out::new(&mut tokens),
        row_alarm: Out::new(&mut alarm),
    })?;
    locate::check(batch, &alarm, &[Checked::finite(name, values)], &[], "")?;
    Ok((sums, tokens))
}

/// Folds per-row partial sums `[K][rows]` into K whole-batch sums, with the fixed reduction tree over the row
/// index.
///
/// Errors: a length of `partials` that is not a multiple of `rows`.
pub fn fold_rows(device: &Device, partials: &[f64], rows: usize) -> Result<Vec<f64>, Error> {
    let mut totals = vec![0.0; partials.len().checked_div(rows).unwrap_or(0)];
    require::length("partials", rows * totals.len(), "a multiple of `rows`", partials.len())?;
    device.run(&FoldRows { partials: In::new(partials), rows, totals: Out::new(&mut totals) })?;
    Ok(totals)
}
