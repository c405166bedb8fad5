//! Ops over tokens: ratios, KL, scans.

use super::{GpuBench, OnGpu, enqueue, mask, offsets};
use lockstep_core::advantage::DiscountedReturn;
use lockstep_core::aggregate::RowScan;
use lockstep_core::kl::{Estimator, Kl, KlDivergence};
use lockstep_core::policy_loss::sum;
use lockstep_core::ratio::{Guard, TokenRatio, token};
use lockstep_core::team::Direction;
use lockstep_gpu::{Driver, Error};

pub(super) fn benches<D: Driver>() -> Vec<GpuBench<D>> {
    vec![
        GpuBench::new("token_ratio", 17.0, token_ratio),
        GpuBench::new("kl", 17.0, kl),
        GpuBench::new("row_scan", 9.0, row_scan),
        GpuBench::new("discounted_return", 9.0, discounted_return),
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

fn discounted_return<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = DiscountedReturn {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        rewards: batch.logp.view(),
        gamma: 0.99,
        returns: batch.element[0].view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}
