//! Whitening over the batch.

use super::locate::{self, Checked};
use super::moments;
use crate::{Advantage, Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::advantage::{Divisor, Whiten};
use lockstep_core::aggregate::ExactMoments;
use lockstep_core::aggregate::moments::{MEAN, MOMENTS};
use lockstep_core::ragged::{In, Mask, Offsets, Out, flag};
use lockstep_core::require;

/// How often a sequence counts in the statistics of per-sequence values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighting {
    /// Once for each live token (verl).
    Tokens,
    /// Once (TRL, NeMo).
    Sequences,
}

/// Parameters of [`whiten`]; formula and variants: [`lockstep_core::advantage::whiten`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WhitenParams {
    /// How often a sequence counts; per-token values count once each.
    pub weighting: Weighting,
    /// Whether to subtract the mean.
    pub centre: bool,
    /// The divisor, which says where eps enters.
    pub divisor: Divisor,
    /// Degrees of freedom subtracted in the variance: 1 = unbiased, 0 = population.
    pub ddof: u32,
    /// The ε of [`Divisor`].
    pub eps: f64,
}

impl WhitenParams {
    /// verl's `masked_whiten`: token-weighted, ddof 1, 1e-8 inside the root.
    pub const VERL: WhitenParams = WhitenParams {
        weighting: Weighting::Tokens,
        centre: true,
        divisor: Divisor::Inside,
        ddof: 1,
        eps: 1e-8,
    };
    /// NeMo's global normalisation: token-weighted, ddof 0, variance at least 1e-8.
    pub const NEMO: WhitenParams = WhitenParams { divisor: Divisor::Floor, ddof: 0, ..WhitenParams::VERL };
    /// TRL's batch step of GDPO: over sequences, ddof 1, 1e-4 outside the root.
    pub const TRL: WhitenParams = WhitenParams {
        weighting: Weighting::Sequences,
        divisor: Divisor::Outside,
        eps: 1e-4,
        ..WhitenParams::VERL
    };
}

/// Centres and scales `values` by their moments over the whole batch; the result has the shape of the input.
/// Masked tokens get 0; so does a sequence whose value is NaN ("no value"), which is excluded from the
/// statistics.
///
/// Errors: lengths that disagree; a live per-token value that is not finite, or an infinite per-sequence
/// value (index); parameters out of their domain; a result that is not finite (index).
///
/// ```
/// use lockstep_ops::ops::whiten::{WhitenParams, whiten};
/// use lockstep_ops::{Advantage, Batch, Device};
/// let batch = Batch::new(&[0, 1, 4], &[0, 2], None)?;
/// // Three tokens of the second sequence against one of the first: mean 0.75, variance 0.25.
/// let out = whiten(&Device::cpu(), &batch, Advantage::PerSequence(&[0.0, 1.0]), &WhitenParams::VERL)?;
/// assert!((out[0] + 1.5).abs() < 1e-6 && (out[1] - 0.5).abs() < 1e-6);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias("advantage normalisation", "advantage normalization"))]
pub fn whiten(
    device: &Device,
    batch: &Batch<'_>,
    values: Advantage<'_>,
    params: &WhitenParams,
) -> Result<Vec<f32>, Error> {
    let mut whitened = Vec::new();
    whiten_into(device, batch, values, params, &mut whitened)?;
    Ok(whitened)
}

/// Like [`whiten`], but into `out`, whose memory is reused. `out` is unspecified after an error.
pub fn whiten_into(
    device: &Device,
    batch: &Batch<'_>,
    values: Advantage<'_>,
    params: &WhitenParams,
    out: &mut Vec<f32>,
) -> Result<(), Error> {
    values.check(batch, "values")?;
    let moments = match (values, params.weighting) {
        (Advantage::PerToken(values), _) => {
            let (offsets, mask) = (batch.cu_seqlens(), batch.loss_mask());
            moments::run(device, offsets, mask, ("values", values), false, false)?
        }
        (Advantage::PerSequence(values), Weighting::Tokens) => moments::by_tokens(device, batch, values)?,
        (Advantage::PerSequence(values), Weighting::Sequences) => {
            moments::of_sequences(device, batch, values, None)?
        }
    };
    run(device, batch, values, params, &moments, out)
}

/// Like [`whiten`], but with the moments of all ranks: each rank computes those of its own values
/// ([`exact_token_moments`](super::exact::exact_token_moments),
/// [`exact_sequence_moments`](super::exact::exact_sequence_moments), which is where the weighting is
/// applied), and they are merged in any order. However a batch is sharded, the results have the same bits.
///
/// Errors: those of [`whiten`]; moments of a value that was not finite.
pub fn whiten_by(
    device: &Device,
    batch: &Batch<'_>,
    values: Advantage<'_>,
    params: &WhitenParams,
    moments: &ExactMoments,
) -> Result<Vec<f32>, Error> {
    values.check(batch, "values")?;
    let moments = moments.moments();
    if !moments[MEAN].is_finite() {
        return Err(require::value("moments", Some(MEAN), "moments of finite values", moments[MEAN]).into());
    }
    let mut whitened = Vec::new();
    run(device, batch, values, params, &moments, &mut whitened)?;
    Ok(whitened)
}

fn run(
    device: &Device,
    batch: &Batch<'_>,
    values: Advantage<'_>,
    params: &WhitenParams,
    moments: &[f64; MOMENTS],
    whitened: &mut Vec<f32>,
) -> Result<(), Error> {
    let per_token = matches!(values, Advantage::PerToken(_));
    let (values, offsets, mask) = match values {
        Advantage::PerToken(values) => (values, batch.cu_seqlens(), batch.loss_mask()),
        Advantage::PerSequence(values) => (values, batch.cu_groups(), Mask::all()),
    };
    let alarm = with_moments(device, offsets, mask, (values, !per_token), moments, params, whitened)?;
    let hint = "the spread of the values is too small: choose a larger eps";
    if per_token {
        let arguments = [Checked::finite("values", values)];
        let results = [Checked::finite("whitened", &whitened[..])];
        locate::check(batch, &alarm, &arguments, &results, hint)?;
    } else if alarm.iter().any(|alarm| *alarm > flag::LIMIT) {
        // An infinite value of a sequence without live tokens is not in the moments.
        locate::each("values", values, "a finite number, or NaN for none", |_, x| !x.is_infinite())?;
        let index = whitened.iter().position(|y| !y.is_finite()).unwrap_or(0);
        return Err(Argument::NotFinite { result: "whitened", index, hint }.into());
    }
    Ok(())
}

/// Whitens `values` by given moments, into `whitened`; if `nan_is_missing`, NaN means no value. Returns the
/// rows' alarms.
pub(super) fn with_moments(
    device: &Device,
    offsets: Offsets<'_>,
    mask: Mask<'_>,
    (values, nan_is_missing): (&[f32], bool),
    moments: &[f64],
    params: &WhitenParams,
    whitened: &mut Vec<f32>,
) -> Result<Vec<u32>, Error> {
    whitened.resize(values.len(), 0.0);
    let mut alarm = vec![0; offsets.rows()];
    device.run(&Whiten {
        offsets,
        mask,
        values: In::new(values),
        nan_is_missing,
        moments: In::new(moments),
        centre: params.centre,
        divisor: params.divisor,
        ddof: params.ddof,
        eps: params.eps,
        whitened: Out::new(whitened),
        row_alarm: Out::new(&mut alarm),
    })?;
    Ok(alarm)
}
