//! Selection of the n largest values of a batch.

use super::{GpuBench, OnGpu, enqueue, mask, offsets};
use lockstep_core::select::{
    Covariance, DIGITS, DigitCounts, NarrowDigits, Order, SHIFTS, SelectTop, SelectionKey,
};
use lockstep_gpu::{Driver, Error};

pub(super) fn benches<D: Driver>(per_token: f64) -> Vec<GpuBench<D>> {
    vec![
        GpuBench::new("covariance", 9.0, covariance),
        GpuBench::new("selection_key", 9.0, selection_key),
        GpuBench::new("digit_counts", 4.0, digit_counts),
        GpuBench::new("narrow_digits", 4.0 * (DIGITS + 1) as f64 * per_token, narrow_digits),
        GpuBench::new("select_top", 13.0, select_top),
    ]
}

fn covariance<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = Covariance {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        logp: batch.logp.view(),
        advantage: batch.advantage.view(),
        advantage_per_token: false,
        logp_moments: batch.sums.view(),
        advantage_moments: batch.sums.view(),
        covariance: batch.element[0].view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn selection_key<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = SelectionKey {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        values: batch.logp.view(),
        band: [f32::NEG_INFINITY, f32::INFINITY],
        unclipped: None,
        order: Order::Largest,
        keys: batch.keys.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn digit_counts<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = DigitCounts {
        offsets: offsets(&batch.cu_seqlens),
        keys: batch.keys.view(),
        state: batch.wanted.view(),
        shift: SHIFTS[0],
        counts: batch.digit_counts.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn narrow_digits<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = NarrowDigits {
        counts: batch.digit_counts.view(),
        rows: batch.sequences,
        state: batch.wanted.view(),
        shift: SHIFTS[0],
        narrowed: batch.counts.view_mut(),
        ties_before: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn select_top<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = SelectTop {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        keys: batch.keys.view(),
        state: batch.wanted.view(),
        ties_before: batch.flags.view(),
        on: Some(batch.logp.view()),
        on_value: 0.0,
        off: None,
        off_value: 0.0,
        out: batch.element[0].view_mut(),
        row_selected: batch.counts.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}
