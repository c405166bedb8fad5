//! Advantages of sequences, and whitening.

use super::{GpuBench, OnGpu, enqueue, mask, offsets};
use lockstep_core::advantage::whiten::Divisor;
use lockstep_core::advantage::{Baseline, Combine, GroupAdvantage, PassAtK, Scale, Singleton, Whiten};
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_gpu::{Driver, Error};

pub(super) fn benches<D: Driver>(per_token: f64) -> Vec<GpuBench<D>> {
    vec![
        GpuBench::new("group_advantage", 8.0 * per_token, group_advantage),
        GpuBench::new("whiten", 9.0, whiten),
        GpuBench::new("pass_at_k", 8.0 * per_token, pass_at_k),
        GpuBench::new("combine", 12.0 * per_token, combine),
    ]
}

fn group_advantage<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let [advantage, mean] = &mut batch.element;
    let kernel = GroupAdvantage {
        cu_groups: offsets(&batch.cu_groups),
        rewards: batch.rewards.view(),
        valid: Mask::all(),
        baseline: Baseline::Mean,
        scale: Scale::Std { ddof: 1, eps: 1e-6 },
        singleton: Singleton::Zero,
        limit: f64::INFINITY,
        least_std: 0.0,
        weights: None,
        lengths: None,
        given: None,
        moments: None,
        advantage: advantage.view_mut(),
        mean: mean.view_mut(),
        std: batch.row32.view_mut(),
        counted: batch.counts.view_mut(),
        status: batch.flags.view_mut(),
        pivot: None,
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn whiten<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = Whiten {
        offsets: offsets(&batch.cu_seqlens),
        mask: mask(&batch.loss_mask),
        values: batch.logp.view(),
        nan_is_missing: false,
        moments: batch.sums.view(),
        centre: true,
        divisor: Divisor::Inside,
        ddof: 1,
        eps: 1e-8,
        whitened: batch.element[0].view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn pass_at_k<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let [advantage, pass_at_k] = &mut batch.element;
    let kernel = PassAtK {
        cu_groups: offsets(&batch.cu_groups),
        rewards: batch.rewards.view(),
        valid: Mask::all(),
        k: 4,
        threshold: 0.5,
        advantage: advantage.view_mut(),
        pass_at_k: pass_at_k.view_mut(),
        counted: batch.counts.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn combine<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    // Two rewards per sequence; there are many more tokens.
    let combined = batch.element[0].view_mut();
    // SAFETY: the first elements of larger arrays.
    #[allow(unsafe_code)]
    let (components, weights, combined) = unsafe {
        let (components, weights) = (batch.logp.as_ptr(), batch.logp_old.as_ptr());
        (
            In::from_raw(components, 2 * batch.sequences),
            In::from_raw(weights, 2),
            Out::from_raw(combined.as_ptr(), batch.sequences),
        )
    };
    let kernel = Combine { cu_groups: offsets(&batch.cu_groups), components, weights, combined };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}
