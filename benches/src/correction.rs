//! Benchmarks of importance ratios and rollout correction.

use crate::Inputs;
use crate::ops::{Bench, bits, bits64};
use lockstep::Batch;
use lockstep::core::correction::{K1Band, Rejections, Statistic, WeightLevel};
use lockstep::core::ratio::{Interpolation, ScanKind};
use lockstep::ops::correction::CorrectionParams;
use lockstep::ops::{self};

/// The ops of this topic.
pub(crate) fn benches<'a>(inputs: &'a Inputs, batch: Batch<'a>) -> Vec<Bench<'a>> {
    let (logp, old, rollout) = (&inputs.logp, &inputs.logp_old, &inputs.logp_ref);
    let reject = |statistic, high| match Rejections::NONE.with(statistic, None, high, K1Band::Rho) {
        Ok(rejections) => rejections,
        Err(_) => Rejections::NONE,
    };
    let tis = CorrectionParams::truncate(WeightLevel::Token, 2.0);
    let correct = |name, bytes, params: CorrectionParams| {
        Bench::new(name, bytes, move |device| {
            Ok(bits(&ops::rollout_correction(device, &batch, old, rollout, &params)?.weights))
        })
    };
    let scan = |name, kind| {
        Bench::new(name, 13.0, move |device| {
            Ok(bits(&ops::log_ratio_scan(device, &batch, logp, old, kind, true)?))
        })
    };
    let versions: Vec<i32> = (0..inputs.tokens()).map(|i| (i / 1000 % 8) as i32).collect();
    let own = versions.clone();
    let weights: Vec<f32> = (0..inputs.tokens()).map(|i| (i % 7) as f32 / 4.0).collect();
    let rejecting = tis.reject(reject(Statistic::SeqMeanK3, 0.05));
    vec![
        Bench::new("rollout_mismatch", 9.0, move |device| {
            let stats = ops::mismatch_stats(device, &batch, old, rollout, 20.0)?;
            Ok(bits64(&[stats.kl_k3, stats.chi2_token, stats.chi2_seq]))
        }),
        correct("rollout_correction/tis", 14.0, tis),
        correct("rollout_correction/tis, seq_mean_k3", 14.0, rejecting),
        correct("rollout_correction, normalize_weights", 23.0, CorrectionParams { normalize: true, ..tis }),
        scan("log_ratio_scan/prefix", ScanKind::Prefix),
        scan("log_ratio_scan/min", ScanKind::MinBefore),
        Bench::new("proximal_logp", 17.0, move |device| {
            let kind = Interpolation::Loglinear;
            Ok(bits(&ops::proximal_logp(device, &batch, &own, 7, old, logp, kind)?))
        }),
        Bench::new("staleness", 6.0, move |device| {
            let found = ops::staleness(device, &batch, &versions, 7, 4)?;
            Ok(bits64(&[found.off_policy_fraction, found.too_old_fraction]))
        }),
        Bench::new("effective_sample_size", 5.0, move |device| {
            Ok(bits64(&[ops::token_sample_sizes(device, &batch, &weights)?.batch]))
        }),
    ]
}
