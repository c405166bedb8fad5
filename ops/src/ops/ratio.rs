//! Importance ratios and the mismatch between two policies.

use super::aggregate::fold_rows;
use super::locate::{self, Checked};
use crate::{Batch, Device, Error, RatioStats};
use lockstep_core::ragged::{In, Out};
use lockstep_core::ratio::{Guard, TokenRatio, token::sum};

/// The importance ratio of every token, and statistics of the ratios.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Ratios {
    /// r per token, `[N]`; 0 where masked.
    pub ratio: Vec<f32>,
    /// Raw log-ratio per token, `[N]`; 0 where masked.
    pub log_ratio: Vec<f32>,
    /// Statistics over live tokens.
    pub stats: RatioStats,
}

/// Computes the importance ratios r = exp(guard(logp − logp_old)) per token, `[N]`; formula:
/// [`lockstep_core::ratio::token`]. `band` is `[low, high]` of [`RatioStats::in_band_fraction`].
///
/// Errors: lengths that disagree; a live log-probability that is NaN, infinite or above 0 (argument, index).
#[doc(alias("importance sampling", "importance ratio"))]
pub fn token_ratio(
    device: &Device,
    batch: &Batch<'_>,
    logp: &[f32],
    logp_old: &[f32],
    guard: Guard,
    band: [f32; 2],
) -> Result<Ratios, Error> {
    let (mut ratio, mut log_ratio) = (vec![0.0; batch.tokens()], vec![0.0; batch.tokens()]);
    let outs = Some((&mut ratio[..], &mut log_ratio[..]));
    let stats = run(device, batch, [("logp", logp), ("logp_old", logp_old)], guard, band, outs)?;
    Ok(Ratios { ratio, log_ratio, stats })
}

/// Computes the training-inference mismatch: statistics of exp(logp_old − logp_rollout), the ratio that a
/// rollout correction would apply. `kl_k1` is mean(logp_rollout − logp_old), verl's `rollout_corr/kl`; the
/// band is `[1/2, 2]`.
///
/// Errors: those of [`token_ratio`].
#[doc(alias = "training-inference mismatch")]
pub fn mismatch(
    device: &Device,
    batch: &Batch<'_>,
    logp_rollout: &[f32],
    logp_old: &[f32],
) -> Result<RatioStats, Error> {
    let named = [("logp_old", logp_old), ("logp_rollout", logp_rollout)];
    run(device, batch, named, Guard::clamp(Guard::LOG_RATIO_CLAMP), [0.5, 2.0], None)
}

fn run(
    device: &Device,
    batch: &Batch<'_>,
    [(name, logp), (name_old, logp_old)]: [(&'static str, &[f32]); 2],
    guard: Guard,
    band: [f32; 2],
    outs: Option<(&mut [f32], &mut [f32])>,
) -> Result<RatioStats, Error> {
    let arguments = [Checked::logp(name, logp), Checked::logp(name_old, logp_old)];
    locate::lengths(batch, &arguments)?;
    let rows = batch.sequences();
    let (mut sums, mut maxima, mut alarm) = (vec![0.0; rows * sum::SUMS], vec![0.0; rows * 2], vec![0; rows]);
    let (ratio, log_ratio) = outs.map_or((None, None), |(r, d)| (Some(Out::new(r)), Some(Out::new(d))));
    device.run(&TokenRatio {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        logp: In::new(logp),
        logp_old: In::new(logp_old),
        guard,
        band,
        ratio,
        log_ratio,
        row_sums: Out::new(&mut sums),
        row_maxima: Out::new(&mut maxima),
        row_alarm: Out::new(&mut alarm),
    })?;
    locate::check(batch, &alarm, &arguments, &[], "choose a guard for the log-ratio")?;
    let totals = fold_rows(device, &sums, rows)?;
    let totals: [f64; sum::SUMS] = std::array::from_fn(|k| totals[k]);
    Ok(RatioStats::new(batch.counts(device)?.tokens, &totals, fold_maxima(&maxima, rows)))
}

/// Maxima over rows of a `[2][S]` array.
pub(crate) fn fold_maxima(maxima: &[f32], rows: usize) -> [f32; 2] {
    let fold = |k: usize| maxima[k * rows..(k + 1) * rows].iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
    [fold(0), fold(1)]
}
