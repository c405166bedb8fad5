//! The mismatch between trainer and sampler.

use super::super::aggregate::fold_rows;
use super::super::locate::{self, Checked};
use crate::{Batch, Device, Error};
use lockstep_core::correction::mismatch::{RolloutMismatch, sum};
use lockstep_core::ragged::{In, Out};
use lockstep_core::require;

/// The mismatch between trainer and sampler over a batch; formula: [`lockstep_core::correction::mismatch`].
/// All fields are 0 for a batch without live tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Mismatch {
    /// Live tokens.
    pub tokens: u64,
    /// Mean of logp_rollout − logp_old: the k1 estimate of KL(rollout ‖ old); verl's `rollout_corr/kl`.
    pub kl_k1: f64,
    /// The k3 estimate of the same KL, at least 0; verl's `k3_kl`, but with bounded log-ratios.
    pub kl_k3: f64,
    /// χ² of tokens, E ρ² − 1.
    pub chi2_token: f64,
    /// χ² of sequences, E ρ_s² − 1.
    pub chi2_seq: f64,
    /// Effective sample size of the token ratios as a fraction of the tokens: (Σρ)² / (n Σρ²).
    pub ess: f64,
    /// Mean over sequences of exp(mean logp_rollout − mean logp_old); verl's `ppl_ratio`.
    pub ppl_ratio: f64,
    /// F(τ): fraction of tokens with max(ρ, 1/ρ) > τ, for τ = 1.25, 2, 5, 10.
    pub extreme: [f64; 4],
    /// Largest logp_old − logp_rollout.
    pub max_log_ratio: f64,
    /// Smallest logp_old − logp_rollout.
    pub min_log_ratio: f64,
}

/// Computes the mismatch of `logp_old` `[N]` and `logp_rollout` `[N]`. Log-ratios are limited to ±`bound`
/// before they are exponentiated (20 in verl; ∞ means no bound).
///
/// Errors: lengths that disagree; a live log-probability that is NaN, infinite or above 0 (argument, index);
/// a bound that is not positive.
pub fn mismatch_stats(
    device: &Device,
    batch: &Batch<'_>,
    logp_old: &[f32],
    logp_rollout: &[f32],
    bound: f32,
) -> Result<Mismatch, Error> {
    let arguments = [Checked::logp("logp_old", logp_old), Checked::logp("logp_rollout", logp_rollout)];
    locate::lengths(batch, &arguments)?;
    let rows = batch.sequences();
    let (mut sums, mut maxima) = (vec![0.0; rows * sum::SUMS], vec![0.0; rows * 2]);
    let (mut tokens, mut alarm) = (vec![0; rows], vec![0; rows]);
    device.run(&RolloutMismatch {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        logp_old: In::new(logp_old),
        logp_rollout: In::new(logp_rollout),
        bound,
        row_sums: Out::new(&mut sums),
        row_maxima: Out::new(&mut maxima),
        row_tokens: Out::new(&mut tokens),
        row_alarm: Out::new(&mut alarm),
    })?;
    locate::check(batch, &alarm, &arguments, &[], "choose a bound for the log-ratio")?;
    let totals = fold_rows(device, &sums, rows)?;
    let tokens: u64 = tokens.iter().map(|n| u64::from(*n)).sum();
    if tokens == 0 {
        return Ok(Mismatch::default());
    }
    let (n, live) = (tokens as f64, totals[sum::LIVE]);
    let (excess, squares) = (totals[sum::EXCESS], totals[sum::EXCESS_SQUARED]);
    let second = (n + 2.0 * excess + squares) / n;
    let mean = 1.0 + excess / n;
    let [high, neg_low] = super::super::ratio::fold_maxima(&maxima, rows);
    Ok(Mismatch {
        tokens,
        kl_k1: -totals[sum::LOG] / n,
        kl_k3: totals[sum::K3] / n,
        chi2_token: (2.0 * excess + squares) / n,
        chi2_seq: (2.0 * totals[sum::SEQUENCE] + totals[sum::SEQUENCE_SQUARED]) / live,
        ess: if second > 0.0 { (mean * mean / second).min(1.0) } else { 0.0 },
        ppl_ratio: 1.0 + totals[sum::PPL] / live,
        extreme: std::array::from_fn(|j| totals[sum::EXTREME + j] / n),
        max_log_ratio: high.into(),
        min_log_ratio: -f64::from(neg_low),
    })
}

/// Computes the mean of |logp_old − logp_rollout| over live tokens, in nats; 0 without live tokens. Unlike in
/// k1, terms do not cancel.
///
/// Errors: lengths that disagree; a live log-probability that is NaN, infinite or above 0 (argument, index).
pub fn mean_abs_log_ratio(batch: &Batch<'_>, logp_old: &[f32], logp_rollout: &[f32]) -> Result<f64, Error> {
    let arguments = [("logp_old", logp_old), ("logp_rollout", logp_rollout)];
    for (name, values) in arguments {
        batch.check_tokens(name, values.len())?;
    }
    let (mut sum, mut live) = (0.0, 0u64);
    for token in (0..batch.tokens()).filter(|token| batch.loss_mask().at(*token)) {
        for (argument, values) in arguments {
            let value = values[token];
            if !(value <= 0.0 && value.is_finite()) {
                let expected = "a log-probability: finite, at most 0";
                return Err(require::value(argument, Some(token), expected, value).into());
            }
        }
        sum += (f64::from(logp_old[token]) - f64::from(logp_rollout[token])).abs();
        live += 1;
    }
    Ok(sum / live.max(1) as f64)
}
