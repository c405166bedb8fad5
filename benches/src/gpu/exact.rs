//! Exact sums.

use super::{GpuBench, OnGpu, enqueue, mask};
use lockstep_core::aggregate::ExactDigits;
use lockstep_core::ragged::Mask;
use lockstep_gpu::{Driver, Error};

pub(super) fn benches<D: Driver>(per_token: f64) -> Vec<GpuBench<D>> {
    vec![
        GpuBench::new("exact_sum", 8.0 * per_token, exact_sum),
        GpuBench::new("exact_sum_f32", 5.0, exact_sum_f32),
    ]
}

fn exact_sum<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = ExactDigits {
        values: batch.row64.view(),
        mask: Mask::all(),
        square: false,
        digits: batch.digits.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn exact_sum_f32<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = ExactDigits {
        values: batch.logp.view(),
        mask: mask(&batch.loss_mask),
        square: true,
        digits: batch.digits.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}
