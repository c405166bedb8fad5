//! Checks of arguments.

use super::{GpuBench, OnGpu, enqueue, mask};
use lockstep_core::check::{CheckOffsets, CheckValues, Domain};
use lockstep_gpu::{Driver, Error};

pub(super) fn benches<D: Driver>(per_token: f64) -> Vec<GpuBench<D>> {
    vec![
        GpuBench::new("check_offsets", 4.0 * per_token, check_offsets),
        GpuBench::new("check_values", 5.0, check_values),
    ]
}

fn check_offsets<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let (offsets, first_fault) = (batch.cu_seqlens.view(), batch.flags.view_mut());
    enqueue(&batch.gpu, &batch.stream, &CheckOffsets { offsets, elements: batch.tokens, first_fault })
}

fn check_values<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = CheckValues {
        values: batch.logp.view(),
        mask: mask(&batch.loss_mask),
        domain: Domain::LogProbability,
        first_fault: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}
