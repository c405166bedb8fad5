//! Ops over tokens: ratios, KL, scans, the value loss.

use super::{GpuBench, OnGpu, enqueue, mask, offsets};
use lockstep_core::aggregate::{PerRow, RowScan, Weight, WeightFrom};
use lockstep_core::kl::{Estimator, Kl, KlDivergence};
use lockstep_core::kl_importance::KlImportance;
use lockstep_core::policy_loss::sum;
use lockstep_core::ratio::{Guard, TokenRatio, token};
use lockstep_core::team::Direction;
use lockstep_core::value_loss::ValueLoss;
use lockstep_gpu::{Driver, Error};

pub(super) fn benches<D: Driver>() -> Vec<GpuBench<D>> {
    vec![
        GpuBench::new("token_ratio", 17.0, token_ratio),
        GpuBench::new("kl", 17.0, kl),
        GpuBench::new("row_scan", 9.0, row_scan),
        GpuBench::new("kl_importance", 21.0, kl_importance),
        GpuBench::new("value_loss", 17.0, value_loss),
    ]
}

fn token_ratio<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let [ratio, log_ratio] = &mut batch.element;
    let kernel = TokenRatio {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        logp: batch.logp.view(),
        logp_old: batch.logp_old.view(),
        guard: Guard::clamp(20.0),
        band: [0.8, 1.2],
        ratio: Some(ratio.view_mut()),
        log_ratio: Some(log_ratio.view_mut()),
        row_sums: batch.sums.view_mut(),
        row_maxima: batch.row32.view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    const { assert!(token::sum::SUMS <= sum::SUMS) };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn kl<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let [value, gradient] = &mut batch.element;
    let kernel = KlDivergence {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        logp: batch.logp.view(),
        logp_ref: batch.logp_old.view(),
        kl: Kl::guarded(Estimator::K3),
        value: Some(value.view_mut()),
        gradient: Some(gradient.view_mut()),
        row_sum: batch.row64.view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn row_scan<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = RowScan {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        values: batch.logp.view(),
        direction: Direction::Suffix,
        scanned: batch.element[0].view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn kl_importance<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let [value, gradient] = &mut batch.element;
    let kernel = KlImportance {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        logp: batch.logp.view(),
        logp_old: batch.logp_old.view(),
        logp_ref: batch.logp_ref.view(),
        kl: Kl::LOW_VAR_KL,
        guard: Guard::clamp(20.0),
        through_ratio: true,
        value: Some(value.view_mut()),
        gradient: Some(gradient.view_mut()),
        row_sum: batch.row64.view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn value_loss<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = ValueLoss {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        values: batch.logp.view(),
        values_old: Some(batch.logp_old.view()),
        returns: batch.logp_ref.view(),
        cliprange_value: 0.2,
        huber_delta: f32::INFINITY,
        weight: Weight { per_row: PerRow::One, denominator: batch.tokens as f64, scale: 1.0 },
        weight_from: WeightFrom::ABSENT,
        gradient: batch.element[0].view_mut(),
        token_loss: None,
        row_loss: batch.row64.view_mut(),
        row_clipped: batch.counts.view_mut(),
        row_tokens: batch.row_tokens.view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}
