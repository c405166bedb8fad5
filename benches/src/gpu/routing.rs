//! Router rows of 128 experts, top-8; here a "token" in the rates is a score.

use super::{GpuBench, OnGpu, enqueue, from_iter};
use crate::Inputs;
use lockstep_core::ragged::In;
use lockstep_core::routing::{
    BalanceLoss, ChosenOut, GatingBackward, GatingForward, Router, RouterKind, Trace,
};
use lockstep_gpu::{Buffer, Driver, Error, Gpu, Stream};

const EXPERTS: usize = 128;
const TOP_K: usize = 8;

/// Per-row arrays of a batch of router rows. The scores are the batch's log-probabilities.
pub(super) struct Routed<D: Driver> {
    rows: usize,
    chosen: Buffer<u8, D>,
    gates: Buffer<f32, D>,
    coef: Buffer<f32, D>,
    load: Buffer<f32, D>,
    row_loss: Buffer<f64, D>,
    flags: [Buffer<u32, D>; 2],
}

impl<D: Driver> Routed<D> {
    /// As many whole rows as the log-probabilities fill.
    pub(super) fn new(gpu: &Gpu<D>, stream: &Stream<D>, inputs: &Inputs) -> Result<Self, Error> {
        let rows = inputs.tokens() / EXPERTS;
        Ok(Routed {
            rows,
            chosen: from_iter(gpu, stream, (0..rows * TOP_K).map(|i| (i % TOP_K * 13) as u8))?,
            gates: gpu.alloc(rows * TOP_K)?,
            coef: gpu.upload(stream, &vec![0.5; rows * TOP_K])?,
            load: gpu.upload(stream, &[1.0 / EXPERTS as f32; EXPERTS])?,
            row_loss: gpu.alloc(rows)?,
            flags: [gpu.alloc(rows)?, gpu.alloc(rows)?],
        })
    }
}

pub(super) fn benches<D: Driver>(inputs: &Inputs) -> Vec<GpuBench<D>> {
    let share = (inputs.tokens() / EXPERTS * EXPERTS) as f64 / inputs.tokens() as f64;
    let of_row = (TOP_K * 5 + 8) as f64 / EXPERTS as f64;
    vec![
        GpuBench::new("gating_forward", (4.0 + of_row) * share, forward),
        GpuBench::new("gating_backward", (8.0 + of_row) * share, backward),
        GpuBench::new("balance_loss", 8.0 * share, balance),
    ]
}

fn scores<D: Driver>(logp: &Buffer<f32, D>, rows: usize) -> In<'_, f32> {
    // SAFETY: the first elements of an array that is at least as long.
    #[allow(unsafe_code)]
    unsafe {
        In::from_raw(logp.view().as_ptr(), rows * EXPERTS)
    }
}

fn router() -> Router {
    Router::new(RouterKind::SoftmaxChosen, EXPERTS, TOP_K)
}

fn forward<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let routed = &mut batch.routed;
    let [replayed, alarm] = &mut routed.flags;
    let kernel = GatingForward {
        router: router(),
        rows: routed.rows,
        scores: scores(&batch.logp, routed.rows),
        bias: None,
        replay: None,
        chosen: ChosenOut::narrow(routed.chosen.view_mut()),
        gates: routed.gates.view_mut(),
        group_scores: None,
        row_replayed: replayed.view_mut(),
        row_alarm: alarm.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn backward<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let routed = &mut batch.routed;
    let kernel = GatingBackward {
        router: router(),
        rows: routed.rows,
        scores: scores(&batch.logp, routed.rows),
        chosen: Trace::narrow(routed.chosen.view(), 1, TOP_K),
        gates: routed.gates.view(),
        coef: routed.coef.view(),
        gradient: batch.element[0].view_mut(),
        row_alarm: routed.flags[0].view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn balance<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let routed = &mut batch.routed;
    let kernel = BalanceLoss {
        experts: EXPERTS,
        rows: routed.rows,
        scores: scores(&batch.logp, routed.rows),
        load: routed.load.view(),
        weight: 1.0,
        gradient: batch.element[0].view_mut(),
        row_loss: routed.row_loss.view_mut(),
        row_alarm: routed.flags[0].view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}
