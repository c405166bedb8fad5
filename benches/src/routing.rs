//! Router rows of 128 experts, top-8; here a "token" in the rates is a score.

use crate::Inputs;
use crate::ops::{Bench, bits};
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::routing::{
    BalanceLoss, ChosenOut, GatingBackward, GatingForward, Replay, Router, RouterKind, Trace,
};

const ROUTERS: [(&str, &str, RouterKind); 3] = [
    ("gating_forward/softmax_chosen", "gating_backward/softmax_chosen", RouterKind::SoftmaxChosen),
    ("gating_forward/softmax_all", "gating_backward/softmax_all", RouterKind::SoftmaxAll),
    ("gating_forward/sigmoid", "gating_backward/sigmoid", RouterKind::SigmoidNormalized),
];

/// Buffers of a launch, allocated once so that the kernel is timed and not the allocator.
struct Buffers {
    chosen: Vec<u8>,
    gates: Vec<f32>,
    flags: [Vec<u32>; 2],
}

impl Buffers {
    fn new(rows: usize, top_k: usize) -> Self {
        let gates = vec![0.0; rows * top_k];
        Buffers { chosen: vec![0; rows * top_k], gates, flags: [vec![0; rows], vec![0; rows]] }
    }

    fn forward(
        &mut self,
        device: &lockstep::Device,
        router: Router,
        scores: &[f32],
        replay: Option<Replay<'_>>,
    ) -> Result<(), lockstep::Error> {
        let [replayed, alarm] = &mut self.flags;
        device.run(&GatingForward {
            router,
            rows: scores.len() / router.experts,
            scores: In::new(scores),
            bias: None,
            replay,
            chosen: ChosenOut::narrow(Out::new(&mut self.chosen)),
            gates: Out::new(&mut self.gates),
            group_scores: None,
            row_replayed: Out::new(replayed),
            row_alarm: Out::new(alarm),
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
        let mut buffers = Buffers::new(rows, top_k);
        list.push(Bench::new(name, forward, move |device| {
            buffers.forward(device, router, scores, None)?;
            Ok(bits(&buffers.gates))
        }));
        let mut buffers = Buffers::new(rows, top_k);
        let (mut gradient, mut alarm) = (vec![0.0; rows * experts], vec![0; rows]);
        let coef = &inputs.logp_old[..per_row];
        // Scores, trace, gates and gradients in both directions.
        list.push(Bench::new(backward, 2.0 * forward + 4.0, move |device| {
            buffers.forward(device, router, scores, None)?;
            device.run(&GatingBackward {
                router,
                rows,
                scores: In::new(scores),
                chosen: Trace::narrow(In::new(&buffers.chosen), 1, top_k),
                gates: In::new(&buffers.gates),
                coef: In::new(coef),
                gradient: Out::new(&mut gradient),
                row_alarm: Out::new(&mut alarm),
            })?;
            Ok(bits(&gradient))
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
    let mut buffers = Buffers::new(rows, top_k);
    let record: Vec<u8> = (0..per_row).map(|i| ((i / top_k + 13 * (i % top_k)) % experts) as u8).collect();
    list.push(Bench::new("gating_forward/replay", forward + 8.0 / experts as f64, move |device| {
        let trace = Trace::narrow(In::new(&record), 1, top_k);
        buffers.forward(device, router, scores, Some(Replay { trace, mask: Mask::all() }))?;
        Ok(bits(&buffers.gates))
    }));
    list
}
