//! Advantages over time.

use super::{GpuBench, OnGpu, enqueue, mask, offsets};
use lockstep_core::advantage::{DiscountedReturn, Gae, OptimalTokenBaseline, StepReturn, VTrace};
use lockstep_core::ragged::Mask;
use lockstep_gpu::{Driver, Error};

pub(super) fn benches<D: Driver>() -> Vec<GpuBench<D>> {
    vec![
        GpuBench::new("discounted_return", 9.0, discounted_return),
        GpuBench::new("gae", 17.0, gae),
        GpuBench::new("vtrace", 25.0, vtrace),
        GpuBench::new("step_return", 9.0, step_return),
        GpuBench::new("optimal_token_baseline", 13.0, optimal_token_baseline),
    ]
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

fn gae<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let [advantage, returns] = &mut batch.element;
    let kernel = Gae {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        rewards: batch.logp.view(),
        values: batch.logp_old.view(),
        bootstrap: None,
        truncated: Mask::all(),
        gamma: 0.99,
        lambda: 0.95,
        length_alpha: None,
        advantage: Some(advantage.view_mut()),
        returns: Some(returns.view_mut()),
        row_alarm: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn vtrace<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let [vs, advantage] = &mut batch.element;
    let kernel = VTrace {
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        logp: batch.logp.view(),
        logp_rollout: batch.logp_old.view(),
        rewards: batch.logp_ref.view(),
        values: batch.probability.view(),
        bootstrap: None,
        truncated: Mask::all(),
        gamma: 0.99,
        lambda: 1.0,
        rho_bar: 1.0,
        rho_pg: 1.0,
        c_bar: 1.0,
        vs: vs.view_mut(),
        advantage: advantage.view_mut(),
        row_alarm: batch.flags.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn step_return<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = StepReturn {
        cu_steps: offsets(&batch.cu_seqlens),
        rewards: batch.logp.view(),
        matches: batch.loss_mask.view(),
        gamma: 0.9,
        include_first_mismatch: false,
        returns: batch.element[0].view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn optimal_token_baseline<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = OptimalTokenBaseline {
        cu_groups: offsets(&batch.cu_groups),
        cu_seqlens: offsets(&batch.cu_seqlens),
        loss_mask: mask(&batch.loss_mask),
        returns: batch.logp.view(),
        weights: batch.probability.view(),
        eps: 1e-8,
        lone_tail: None,
        advantage: batch.element[0].view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}
