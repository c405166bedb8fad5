//! Router rows of 128 experts, top-8; here a "token" in the rates is a score.

use crate::Inputs;
use crate::ops::{Bench, bits};
use lockstep::{Device, Error};
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::routing::{
    BalanceLoss, ChosenOut, GatingBackward, GatingForward, Replay, Router, RouterKind, Trace,
};

const ROUTERS: [(&str, &str, RouterKind); 3] = [
    ("gating_forward/softmax_chosen", "gating_backward/softmax_chosen", RouterKind::SoftmaxChosen),
    ("gating_forward/softmax_all", "gating_backward/softmax_all", RouterKind::SoftmaxAll),
    ("gating_forward/sigmoid", "gating_backward/sigmoid", RouterKind::SigmoidNormalized),
];

/// A router and the outputs of its launches, allocated once so that the kernels are timed and not the
/// allocator.
#[derive(Debug)]
pub struct RouterBuffers {
    router: Router,
    rows: usize,
    chosen: Vec<u8>,
    gates: Vec<f32>,
    group_scores: Vec<f32>,
    gradient: Vec<f32>,
    flags: [Vec<u32>; 2],
}

impl RouterBuffers {
    /// Allocates the outputs of `router` for this many rows.
    pub fn new(router: Router, rows: usize) -> Self {
        let slots = rows * router.top_k;
        RouterBuffers {
            router,
            rows,
            chosen: vec![0; slots],
            gates: vec![0.0; slots],
            group_scores: vec![0.0; if router.groups > 1 { rows * router.groups } else { 0 }],
            gradient: vec![0.0; rows * router.experts],
            flags: [vec![0; rows], vec![0; rows]],
        }
    }

    /// Chooses the experts and computes their gates.
    pub fn forward(
        &mut self,
        device: &Device,
        scores: &[f32],
        replay: Option<Replay<'_>>,
    ) -> Result<(), Error> {
        let [replayed, alarm] = &mut self.flags;
        device.run(&GatingForward {
            router: self.router,
            rows: self.rows,
            scores: In::new(scores),
            bias: None,
            replay,
            chosen: ChosenOut::narrow(Out::new(&mut self.chosen)),
            gates: Out::new(&mut self.gates),
            group_scores: (self.router.groups > 1).then(|| Out::new(&mut self.group_scores)),
            row_replayed: Out::new(replayed),
            row_alarm: Out::new(alarm),
        })
    }

    /// Computes dL/ds for the experts that [`forward`](Self::forward) chose; `coef` is dL/dg.
    pub fn backward(&mut self, device: &Device, scores: &[f32], coef: &[f32]) -> Result<(), Error> {
        device.run(&GatingBackward {
            router: self.router,
            rows: self.rows,
            scores: In::new(scores),
            chosen: Trace::narrow(In::new(&self.chosen), 1, self.router.top_k),
            gates: In::new(&self.gates),
            coef: In::new(coef),
            gradient: Out::new(&mut self.gradient),
            row_alarm: Out::new(&mut self.flags[1]),
        })
    }
}

pub(crate) fn benches(inputs: &Inputs) -> Vec<Bench<'_>> {
    let mut list = Vec::new();
    let (experts, top_k) = (128, 8);
    let rows = inputs.tokens() / experts;
    let scores = &inputs.logp[..rows * experts];
    // Bytes per score: the score itself, and its share of the row's experts, gates and flags.
    let (forward, per_row) = (4.0 + (8.0 + 32.0 + 8.0) / experts as f64, top_k * rows);
    for (name, backward, kind) in ROUTERS {
        let router = Router::new(kind, experts, top_k);
        let mut buffers = RouterBuffers::new(router, rows);
        list.push(Bench::new(name, forward, move |device| {
            buffers.forward(device, scores, None)?;
            Ok(bits(&buffers.gates))
        }));
        let mut buffers = RouterBuffers::new(router, rows);
        let coef = &inputs.logp_old[..per_row];
        // Scores, trace, gates and gradients in both directions.
        list.push(Bench::new(backward, 2.0 * forward + 4.0, move |device| {
            buffers.forward(device, scores, None)?;
            buffers.backward(device, scores, coef)?;
            Ok(bits(&buffers.gradient))
        }));
    }
    let load: Vec<f32> = (0..experts).map(|e| e as f32 / 8128.0).collect();
    let mut of_balance = (vec![0.0f32; rows * experts], vec![0.0f64; rows], vec![0u32; rows]);
    list.push(Bench::new("balance_loss", 8.0, move |device| {
        let (gradient, row_loss, alarm) = &mut of_balance;
        device.run(&BalanceLoss {
            experts,
            rows,
            scores: In::new(scores),
            load: In::new(&load),
            weight: 1.0,
            gradient: Out::new(gradient),
            row_loss: Out::new(row_loss),
            row_alarm: Out::new(alarm),
        })?;
        Ok(bits(gradient))
    }));
    let router = Router::new(RouterKind::SoftmaxChosen, experts, top_k);
    let mut buffers = RouterBuffers::new(router, rows);
    let record: Vec<u8> = (0..per_row).map(|i| ((i / top_k + 13 * (i % top_k)) % experts) as u8).collect();
    list.push(Bench::new("gating_forward/replay", forward + 8.0 / experts as f64, move |device| {
        let trace = Trace::narrow(In::new(&record), 1, top_k);
        buffers.forward(device, scores, Some(Replay { trace, mask: Mask::all() }))?;
        Ok(bits(&buffers.gates))
    }));
    list
}
