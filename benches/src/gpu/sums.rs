//! Sums and moments.

use super::{GpuBench, OnGpu, enqueue, mask, offsets};
use lockstep_core::aggregate::moments::{FoldMoments, MOMENTS, RowMoments};
use lockstep_core::aggregate::totals::COUNTS;
use lockstep_core::aggregate::weight::PARTS;
use lockstep_core::aggregate::{Aggregate, BatchCounts, FoldRows, LossTotals, MetricTotals};
use lockstep_core::policy_loss::sum;
use lockstep_core::ragged::Out;
use lockstep_gpu::{Buffer, Driver, Error, Gpu};

pub(super) fn benches<D: Driver>(per_token: f64) -> Vec<GpuBench<D>> {
    vec![
        GpuBench::new("aggregate", 5.0, aggregate),
        GpuBench::new("fold_rows", 8.0 * per_token, fold_rows),
        GpuBench::new("row_moments", 5.0, row_moments),
        GpuBench::new("fold_moments", 48.0 * per_token, fold_moments),
        GpuBench::new("batch_counts", 1.0, batch_counts),
        GpuBench::new("loss_totals", 128.0 * per_token, loss_totals),
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
    // One statistic: as many totals as the view is long. SAFETY: the first element of a buffer with one
    // element per sequence.
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

fn batch_counts<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let [tokens, nonempty, longest] = &mut batch.parts;
    let kernel = BatchCounts {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        parts: PARTS,
        tokens: tokens.view_mut(),
        nonempty: nonempty.view_mut(),
        longest: longest.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn loss_totals<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let Totals { loss, counts, alarm, sums, maxima } = &mut batch.totals;
    let kernel = LossTotals {
        row_loss: batch.row64.view(),
        row_tokens: batch.row_tokens.view(),
        row_alarm: batch.flags.view(),
        loss: loss.view_mut(),
        counts: counts.view_mut(),
        alarm: alarm.view_mut(),
        metrics: Some(MetricTotals {
            row_sums: batch.sums.view(),
            row_maxima: batch.row32.view(),
            sums: sums.view_mut(),
            maxima: maxima.view_mut(),
        }),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

/// The scalars of a batch.
pub(super) struct Totals<D: Driver> {
    loss: Buffer<f64, D>,
    counts: Buffer<u64, D>,
    alarm: Buffer<u32, D>,
    sums: Buffer<f64, D>,
    maxima: Buffer<f32, D>,
}

impl<D: Driver> Totals<D> {
    pub(super) fn new(gpu: &Gpu<D>) -> Result<Self, Error> {
        Ok(Totals {
            loss: gpu.alloc(1)?,
            counts: gpu.alloc(COUNTS)?,
            alarm: gpu.alloc(1)?,
            sums: gpu.alloc(sum::SUMS)?,
            maxima: gpu.alloc(2)?,
        })
    }
}
