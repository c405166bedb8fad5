//! Rows of logits over a vocabulary; here a "token" in the rates is a logit.

use super::{GpuBench, OnGpu, enqueue};
use crate::Inputs;
use lockstep_core::logits::kl::Direction;
use lockstep_core::logits::statistics::{LogitsMoments, STATE};
use lockstep_core::logits::{
    DrawTokens, LogitRows, LogitsGradient, LogitsKl, LogitsStatistics, OtrExact, OtrSampled,
};
use lockstep_core::ragged::{In, Mask};
use lockstep_gpu::{Buffer, Driver, Error, Gpu, Stream};

/// Draws per row.
const DRAWS: usize = 256;

/// Per-row arrays of a batch of logits. The logits themselves are the batch's log-probabilities.
pub(super) struct PerRow<D: Driver> {
    rows: usize,
    vocab: usize,
    labels: Buffer<u32, D>,
    coef: Buffer<f32, D>,
    state: Buffer<f64, D>,
    out: [Buffer<f32, D>; 5],
    top: Buffer<u32, D>,
    drawn: Buffer<u32, D>,
    row_alarm: Buffer<u32, D>,
}

impl<D: Driver> PerRow<D> {
    /// As many whole rows as the log-probabilities fill.
    pub(super) fn new(gpu: &Gpu<D>, stream: &Stream<D>, inputs: &Inputs) -> Result<Self, Error> {
        let (rows, vocab) = inputs.logit_rows();
        let row = || gpu.alloc(rows);
        Ok(PerRow {
            rows,
            vocab,
            labels: gpu.upload(stream, &vec![17.min(vocab as u32 - 1); rows])?,
            coef: gpu.upload(stream, &vec![-1.0; rows])?,
            state: gpu.alloc(STATE * rows)?,
            out: [row()?, row()?, row()?, row()?, row()?],
            top: gpu.alloc(rows)?,
            drawn: gpu.alloc(rows * DRAWS)?,
            row_alarm: gpu.alloc(rows)?,
        })
    }
}

pub(super) fn benches<D: Driver>(inputs: &Inputs) -> Vec<GpuBench<D>> {
    let (rows, vocab) = inputs.logit_rows();
    let share = (rows * vocab) as f64 / inputs.tokens() as f64;
    vec![
        GpuBench::new("logits_statistics/logp", 4.0 * share, |batch| statistics(batch, false)),
        // Runs last before the gradient, which reads its state.
        GpuBench::new("logits_statistics/moments", 4.0 * share, |batch| statistics(batch, true)),
        GpuBench::new("logits_gradient", 8.0 * share, gradient),
        GpuBench::new("otr_exact", 8.0 * share, otr_exact),
        // Runs before the loss, which reads what it draws.
        GpuBench::new("draw_tokens", 4.0 * share, draw_tokens),
        GpuBench::new("otr_sampled", 8.0 * share, otr_sampled),
        GpuBench::new("logits_kl", 12.0 * share, logits_kl),
    ]
}

fn rows<'a, D: Driver>(logp: &'a Buffer<f32, D>, per_row: &PerRow<D>) -> LogitRows<'a> {
    let (rows, vocab) = (per_row.rows, per_row.vocab);
    LogitRows { logits: whole_rows(logp, per_row), rows, vocab, live: Mask::all() }
}

fn whole_rows<'a, D: Driver>(values: &'a Buffer<f32, D>, per_row: &PerRow<D>) -> In<'a, f32> {
    // SAFETY: the first elements of an array that is at least as long.
    #[allow(unsafe_code)]
    unsafe {
        In::from_raw(values.view().as_ptr(), per_row.rows * per_row.vocab)
    }
}

fn statistics<D: Driver>(batch: &mut OnGpu<D>, moments: bool) -> Result<(), Error> {
    let rows = rows(&batch.logp, &batch.logits);
    let [logp, lse, entropy, collision, score_norm] = &mut batch.logits.out;
    let kernel = LogitsStatistics {
        rows,
        labels: batch.logits.labels.view(),
        temperature: 1.0,
        logp: logp.view_mut(),
        lse: lse.view_mut(),
        top: batch.logits.top.view_mut(),
        moments: moments.then(|| LogitsMoments {
            entropy: entropy.view_mut(),
            collision: collision.view_mut(),
            score_norm: score_norm.view_mut(),
        }),
        state: batch.logits.state.view_mut(),
        row_alarm: batch.logits.row_alarm.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn gradient<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = LogitsGradient {
        rows: rows(&batch.logp, &batch.logits),
        labels: batch.logits.labels.view(),
        temperature: 1.0,
        state: batch.logits.state.view(),
        coef: batch.logits.coef.view(),
        coef_entropy: Some(batch.logits.coef.view()),
        gradient: batch.element[0].view_mut(),
        row_alarm: batch.logits.row_alarm.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn otr_exact<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = OtrExact {
        rows: rows(&batch.logp, &batch.logits),
        labels: batch.logits.labels.view(),
        kappa: 1.0,
        beta: -0.1,
        coef: batch.logits.coef.view(),
        loss: batch.logits.out[0].view_mut(),
        gradient: Some(batch.element[0].view_mut()),
        row_alarm: batch.logits.row_alarm.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn draw_tokens<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = DrawTokens {
        rows: rows(&batch.logp, &batch.logits),
        temperature: 1.3,
        draws: DRAWS,
        seed: 7,
        first: 0,
        tokens: batch.logits.drawn.view_mut(),
        row_alarm: batch.logits.row_alarm.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn otr_sampled<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = OtrSampled {
        rows: rows(&batch.logp, &batch.logits),
        labels: batch.logits.labels.view(),
        candidates: batch.logits.drawn.view(),
        draws: DRAWS,
        beta: -0.1,
        coef: batch.logits.coef.view(),
        loss: batch.logits.out[0].view_mut(),
        gradient: Some(batch.element[0].view_mut()),
        row_alarm: batch.logits.row_alarm.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}

fn logits_kl<D: Driver>(batch: &mut OnGpu<D>) -> Result<(), Error> {
    let kernel = LogitsKl {
        rows: rows(&batch.logp, &batch.logits),
        reference: whole_rows(&batch.logp_ref, &batch.logits),
        direction: Direction::Policy,
        temperature: 1.0,
        coef: batch.logits.coef.view(),
        value: batch.logits.out[0].view_mut(),
        gradient: Some(batch.element[0].view_mut()),
        row_alarm: batch.logits.row_alarm.view_mut(),
    };
    enqueue(&batch.gpu, &batch.stream, &kernel)
}
