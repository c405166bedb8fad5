//! The clipped value loss of a critic.

use super::aggregate::fold_rows;
use super::locate::{self, Checked};
use super::moments;
use crate::{Batch, Counts, Device, Error};
use lockstep_core::aggregate::moments::{COUNT, MOMENTS, SQUARES};
use lockstep_core::aggregate::{Weight, WeightFrom};
use lockstep_core::ragged::{In, Out};
use lockstep_core::require;
use lockstep_core::value_loss::ValueLoss;

/// The inputs of a value loss. Only `values` is differentiated.
#[derive(Clone, Copy, Debug)]
pub struct ValueInput<'a> {
    /// V, the critic's values, `[N]`.
    pub values: &'a [f32],
    /// V at the start of the step, `[N]`; may be `None` without clipping.
    pub values_old: Option<&'a [f32]>,
    /// Returns, `[N]`.
    pub returns: &'a [f32],
    /// δ of Huber's loss; `None` = half the squared error.
    pub huber_delta: Option<f32>,
}

/// The outputs of a value loss.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ValueOutput {
    /// dL/dV, `[N]`; 0 where masked.
    pub gradient: Vec<f32>,
    /// l per token before the aggregation's weights, `[N]`.
    pub token_loss: Vec<f32>,
    /// Σ W·l of each sequence, `[S]`.
    pub row_loss: Vec<f64>,
    /// The loss L.
    pub loss: f64,
    /// Fraction of live tokens whose clipped branch was larger; verl's `vf_clipfrac`.
    pub clip_fraction: f64,
    /// Counts of this batch.
    pub counts: Counts,
    scratch: Scratch,
}

/// Numbers of clipped and live tokens, and alarms, of each row; kept between calls.
#[derive(Clone, Debug, Default, PartialEq)]
struct Scratch {
    clipped: Vec<u32>,
    tokens: Vec<u32>,
    alarm: Vec<u32>,
}

/// The fraction of live tokens that are clipped.
fn clip_fraction(row_clipped: &[u32], counts: Counts) -> f64 {
    let clipped: u64 = row_clipped.iter().map(|n| u64::from(*n)).sum();
    if counts.tokens == 0 { 0.0 } else { clipped as f64 / counts.tokens as f64 }
}

impl ValueOutput {
    /// Builds the output from a device's results.
    #[doc(hidden)]
    pub fn of(
        (gradient, token_loss): (Vec<f32>, Vec<f32>),
        (row_loss, loss): (Vec<f64>, f64),
        (row_clipped, counts): (&[u32], Counts),
    ) -> Self {
        let clip_fraction = clip_fraction(row_clipped, counts);
        ValueOutput { gradient, token_loss, row_loss, loss, clip_fraction, counts, ..ValueOutput::default() }
    }
}

/// Computes the value loss and dL/dV, `[N]`; formula: [`lockstep_core::value_loss`]. A `cliprange_value` of ∞
/// means no clipping.
///
/// Errors: lengths that disagree; a live value or return that is not finite (index); clipping without old
/// values; a clip range that is not positive; a loss that overflows (index).
///
/// ```
/// use lockstep_ops::core::aggregate::{PerRow, Weight};
/// use lockstep_ops::ops::value_loss::{ValueInput, value_loss};
/// use lockstep_ops::{Batch, Device};
/// let batch = Batch::new(&[0, 2], &[0, 1], None)?;
/// let mean = Weight { per_row: PerRow::One, denominator: 2.0, scale: 1.0 };
/// // The second value fell by 1 towards its return; with a range of 0.5 that step earns nothing more.
/// let (values, values_old, returns) = (&[1.0, 2.0], Some(&[1.0, 3.0][..]), &[0.0, 1.0]);
/// let input = ValueInput { values, values_old, returns, huber_delta: None };
/// let out = value_loss(&Device::cpu(), &batch, &input, 0.5, &mean)?;
/// assert_eq!(out.gradient, [0.5, 0.0]);
/// assert_eq!((out.token_loss, out.loss, out.clip_fraction), (vec![0.5, 1.125], 0.8125, 0.5));
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "critic")]
pub fn value_loss(
    device: &Device,
    batch: &Batch<'_>,
    input: &ValueInput<'_>,
    cliprange_value: f32,
    weight: &Weight,
) -> Result<ValueOutput, Error> {
    let mut out = ValueOutput::default();
    value_loss_into(device, batch, input, cliprange_value, weight, true, &mut out)?;
    Ok(out)
}

/// Like [`value_loss`], but into `out`, whose memory is reused. If `token_loss` is false, `out.token_loss`
/// stays empty. `out` is unspecified after an error.
pub fn value_loss_into(
    device: &Device,
    batch: &Batch<'_>,
    input: &ValueInput<'_>,
    cliprange_value: f32,
    weight: &Weight,
    token_loss: bool,
    out: &mut ValueOutput,
) -> Result<(), Error> {
    let arguments = [
        Checked::finite("values", input.values),
        Checked::finite("returns", input.returns),
        Checked::finite("values_old", input.values_old),
    ];
    locate::lengths(batch, &arguments)?;
    let (tokens, rows) = (batch.tokens(), batch.sequences());
    out.gradient.resize(tokens, 0.0);
    out.token_loss.resize(if token_loss { tokens } else { 0 }, 0.0);
    out.row_loss.resize(rows, 0.0);
    let Scratch { clipped, tokens: row_tokens, alarm } = &mut out.scratch;
    for row in [&mut *clipped, &mut *row_tokens, &mut *alarm] {
        row.resize(rows, 0);
    }
    device.run(&ValueLoss {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        values: In::new(input.values),
        values_old: input.values_old.map(In::new),
        returns: In::new(input.returns),
        cliprange_value,
        huber_delta: input.huber_delta.unwrap_or(f32::INFINITY),
        weight: *weight,
        weight_from: WeightFrom::ABSENT,
        gradient: Out::new(&mut out.gradient),
        token_loss: token_loss.then(|| Out::new(&mut out.token_loss)),
        row_loss: Out::new(&mut out.row_loss),
        row_clipped: Out::new(clipped),
        row_tokens: Out::new(row_tokens),
        row_alarm: Out::new(alarm),
    })?;
    let losses = token_loss.then_some(&out.token_loss[..]);
    let results =
        [Checked::finite("value gradient", &out.gradient[..]), Checked::finite("value loss", losses)];
    let hint = "the square of a value's error is too large for f32: scale values and returns";
    locate::check(batch, alarm, &arguments, &results, hint)?;
    out.counts = Counts::of_rows(row_tokens);
    out.clip_fraction = clip_fraction(clipped, out.counts);
    out.loss = fold_rows(device, &out.row_loss, rows)?[0];
    Ok(())
}

/// Computes the fraction of the returns' variance that the values explain, over live tokens: 1 − Var(ret −
/// V)/(Var(ret) + `eps`), variances with ddof 1. verl logs it as `vf_explained_var`, with the values of the
/// rollout and eps 1e-5. It is 1 at best, 0 for constant values, and negative if a constant would do better.
/// It is 0 if the returns have no variance (and eps is 0), or with fewer than two live tokens.
///
/// Errors: lengths that disagree; a live value, return or difference that is not finite (index); an `eps`
/// that is negative or not finite.
pub fn explained_variance(
    device: &Device,
    batch: &Batch<'_>,
    values: &[f32],
    returns: &[f32],
    eps: f64,
) -> Result<f64, Error> {
    batch.check_tokens("values", values.len())?;
    batch.check_tokens("returns", returns.len())?;
    require::not_negative("eps", eps)?;
    let of = |argument, values: &[f32]| {
        moments::run(device, batch.cu_seqlens(), batch.loss_mask(), (argument, values), false, false)
    };
    let spread = of("returns", returns)?;
    of("values", values)?;
    let residual: Vec<f32> = returns.iter().zip(values).map(|(r, v)| r - v).collect();
    let residual = of("returns - values", &residual)?;
    if spread[COUNT] < 2.0 {
        return Ok(0.0);
    }
    let variance = |moments: [f64; MOMENTS]| moments[SQUARES] / (spread[COUNT] - 1.0);
    let divisor = variance(spread) + eps;
    Ok(if divisor == 0.0 { 0.0 } else { 1.0 - variance(residual) / divisor })
}
