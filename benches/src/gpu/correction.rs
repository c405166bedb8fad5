//! Rollout correction, ratios of prefixes, staleness.

use super::{GpuBench, OnGpu, enqueue, mask, offsets};
use lockstep_core::correction::{K1Band, Rejections, Rule, Statistic, WeightLevel};
use lockstep_core::correction::{NormalizeWeights, RolloutCorrection, RolloutMismatch, mismatch, weights};
use lockstep_core::ratio::{
    EffectiveSampleSize, Interpolation, LogRatioScan, ProximalLogp, ScanKind, Staleness,
};
use lockstep_gpu::{Driver, Error};

pub(super) fn benches<D: Driver>() -> Vec<GpuBench<D>> {
    vec![
        GpuBench::new("rollout_mismatch", 9.0, rollout_mismatch),
        GpuBench::new("rollout_correction/tis", 14.0, |batch| rollout_correction(batch, false)),
        GpuBench::new("rollout_correction/reject", 14.0, |batch| rollout_correction(batch, true)),
        GpuBench::new("normalize_weights", 9.0, normalize_weights),
        GpuBench::new("log_ratio_scan", 13.0, log_ratio_scan),
        GpuBench::new("proximal_logp", 17.0, proximal_logp),
        GpuBench::new("staleness", 6.0, staleness),
        GpuBench::new("effective_sample_size", 5.0, effective_sample_size),
    ]
}

fn rollout_mismatch<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = RolloutMismatch {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        logp_old: batch.logp.view(),
        logp_rollout: batch.logp_old.view(),
        bound: 20.0,
        row_sums: batch.sums.view_mut(),
        row_maxima: batch.row32.view_mut(),
        row_tokens: batch.counts.view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    const { assert!(mismatch::sum::SUMS <= super::SUMS) };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn rollout_correction<D: Driver>(batch: &mut OnGpu<D>, reject: bool) -> Result<(), Error> {
    // verl's preset with two rejections.
    let rejections = match reject {
        false => Ok(Rejections::NONE),
        true => Rejections::NONE
            .with(Statistic::SeqMeanK1, Some(0.99), 1.01, K1Band::Rho)
            .and_then(|all| all.with(Statistic::TokenK3, None, 0.2, K1Band::Rho)),
    };
    let kernel = RolloutCorrection {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        logp_old: batch.logp.view(),
        logp_rollout: batch.logp_old.view(),
        level: WeightLevel::Token,
        rule: Rule::Truncate,
        band: [0.5, 2.0],
        bounded_below: false,
        bound: 20.0,
        rejections: rejections.expect("constants in their domains"),
        weights: batch.element[0].view_mut(),
        kept_mask: batch.kept.view_mut(),
        row_kept: batch.row_kept.view_mut(),
        row_sums: batch.sums.view_mut(),
        row_maxima: batch.row32.view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    const { assert!(weights::sum::SUMS <= super::SUMS) };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn normalize_weights<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = NormalizeWeights {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        weights: batch.probability.view(),
        totals: batch.sums.view(),
        numerator: 0,
        denominator: 1,
        normalized: batch.element[0].view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn log_ratio_scan<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = LogRatioScan {
        offsets: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        logp: batch.logp.view(),
        logp_old: batch.logp_old.view(),
        kind: ScanKind::Prefix,
        cap_at_one: false,
        log_ratio: batch.element[0].view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn proximal_logp<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = ProximalLogp {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        versions: batch.versions.view(),
        current: 8,
        logp_behave: batch.logp_old.view(),
        logp: batch.logp.view(),
        interpolation: Interpolation::Loglinear,
        logp_prox: batch.element[0].view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn staleness<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = Staleness {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        versions: batch.versions.view(),
        current: 8,
        max_staleness: 4,
        kept_mask: batch.kept.view_mut(),
        row_start: batch.row_start.view_mut(),
        row_off_policy: batch.counts.view_mut(),
        row_kept: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn effective_sample_size<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = EffectiveSampleSize {
        offsets: offsets(&batch.cu_seqlens),
        mask: mask(&batch.loss_mask),
        weights: batch.probability.view(),
        eps: 1e-8,
        row_sums: batch.sums.view_mut(),
        row_ess: batch.row64.view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}
