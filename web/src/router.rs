//! A small router whose scores drift between the engine and the trainer: its own choice, and replay.

use crate::Error;
use lockstep::Device;
use lockstep::core::ragged::Mask;
use lockstep::core::routing::{Replay, Router, RouterKind};
use lockstep::ops::gating_forward;
use lockstep::ops::routing::Gating;
use lockstep::routing::{RoutingTrace, mismatch};
use lockstep::schedules::random::{Purpose, Stream};
use serde::{Deserialize, Serialize};

const EXPERTS: usize = 8;
const ROWS: usize = 12;
/// Callers' purposes start at 256.
const SCORES: Purpose = Purpose(8193);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// Standard deviation of the trainer's scores around the engine's.
    noise: f32,
    /// Experts of a token.
    top_k: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct Routed {
    experts: usize,
    engine: Choice,
    /// The trainer, choosing for itself.
    free: Choice,
    /// The trainer, with the engine's experts.
    replayed: Choice,
    /// Fraction of tokens whose experts differ between engine and trainer, without replay and with it.
    differing: [f64; 2],
}

/// Experts and gates of each token.
#[derive(Debug, Serialize)]
struct Choice {
    chosen: Vec<u32>,
    gates: Vec<f32>,
}

pub(crate) fn router(device: &Device, request: &Request) -> Result<Routed, Error> {
    let router = Router::new(RouterKind::SoftmaxChosen, EXPERTS, request.top_k);
    let mut stream = Stream::new(1, SCORES, 0, 0);
    let engine: Vec<f32> = (0..ROWS * EXPERTS).map(|_| 1.5 * stream.normal() as f32).collect();
    let trainer: Vec<f32> =
        engine.iter().map(|score| score + request.noise * stream.normal() as f32).collect();
    let gates = |scores: &[f32], replay| gating_forward(device, &router, scores, None, replay);
    let engine = gates(&engine, None)?;
    let traced = |gating: &Gating| RoutingTrace::from_ids(&experts(gating), ROWS, EXPERTS, 1, request.top_k);
    let record = traced(&engine)?;
    let free = gates(&trainer, None)?;
    let replayed = gates(&trainer, Some(Replay { trace: record.view(), mask: Mask::all() }))?;
    let mut differing = [0.0; 2];
    for (fraction, gating) in differing.iter_mut().zip([&free, &replayed]) {
        *fraction = mismatch(&record.view(), &traced(gating)?.view())?.router_fraction();
    }
    let choice = |gating: Gating| Choice { chosen: experts(&gating), gates: gating.gates };
    Ok(Routed {
        experts: EXPERTS,
        engine: choice(engine),
        free: choice(free),
        replayed: choice(replayed),
        differing,
    })
}

fn experts(gating: &Gating) -> Vec<u32> {
    let chosen = gating.chosen.view(1, 1);
    (0..chosen.rows()).map(|entry| chosen.at(entry)).collect()
}
