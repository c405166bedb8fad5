//! Sums and moments.

use super::{GpuBench, OnGpu, enqueue, mask, offsets};
use lockstep_core::aggregate::moments::{FoldMoments, MOMENTS, RowMoments};
use lockstep_core::aggregate::{Aggregate, FoldRows};
use lockstep_core::policy_loss::sum;
use lockstep_core::ragged::Out;
use lockstep_gpu::{Driver, Error};

pub(super) fn benches<D: Driver>(per_token: f64) -> Vec<GpuBench<D>> {
    vec![
        GpuBench::new("aggregate", 5.0, aggregate),
        GpuBench::new("fold_rows", 8.0 * per_token, fold_rows),
        GpuBench::new("row_moments", 5.0, row_moments),
        GpuBench::new("fold_moments", 48.0 * per_token, fold_moments),
    ]
}

fn aggregate<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = Aggregate {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        values: Some(batch.logp.view()),
        row_sum: batch.row64.view_mut(),
        row_tokens: batch.counts.view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn fold_rows<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let (partials, totals) = (batch.sums.view(), batch.row64.view_mut());
    // One statistic: as many totals as the view is long.
    // SAFETY: the first element of a buffer that has one for each sequence.
    #[allow(unsafe_code)]
    let totals = unsafe { Out::from_raw(totals.as_ptr(), 1) };
    let kernel = FoldRows { partials, rows: batch.sequences, totals };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn row_moments<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = RowMoments {
        offsets: offsets(&batch.cu_seqlens),
        mask: mask(&batch.loss_mask),
        values: batch.logp.view(),
        per_row: false,
        nan_is_missing: false,
        row_moments: batch.sums.view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    const { assert!(MOMENTS <= sum::SUMS) };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn fold_moments<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let (row_moments, moments) = (batch.sums.view(), batch.row64.view_mut());
    enqueue(&batch.gpu, &batch.stream, &FoldMoments { row_moments, rows: batch.sequences, moments })
}
