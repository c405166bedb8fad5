//! Lockstep's router inside the model: its gating as a candle op, and what a pass replays and records.

use anyhow::{Context, Result, bail};
use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Shape, Tensor};
use lockstep::core::ragged::Mask;
use lockstep::core::routing::{Replay, Router, RouterKind};
use lockstep::ops::routing::Gating;
use lockstep::ops::{gating_backward, gating_forward};
use lockstep::routing::{Ids, RoutingTrace};
use lockstep::{Device, SimdLevel};

use super::softmax::values;

/// Lockstep's router and its device: a single CPU thread, because a pass is split into shards that run in
/// parallel.
#[derive(Clone)]
pub(super) struct Gate {
    device: Device,
    router: Router,
}

/// The model's gating rule: softmax over the chosen experts; with one, which would always get 1, over all.
pub fn router(experts: usize, top_k: usize) -> Router {
    let kind = if top_k == 1 { RouterKind::SoftmaxAll } else { RouterKind::SoftmaxChosen };
    Router::new(kind, experts, top_k)
}

/// What the routers of a pass replay, and what they did. Rows are the model's: time-major, pass after pass.
#[derive(Default)]
pub struct Routes {
    replay: Option<RoutingTrace>,
    /// What each layer's router did.
    pub layers: Vec<LayerRoutes>,
    /// Number of replayed rows, over all layers.
    pub replayed: usize,
}

/// What one layer's router did.
#[derive(Default)]
pub struct LayerRoutes {
    /// Chosen experts, `[rows, K]`.
    pub chosen: Vec<u32>,
    /// Their gates, `[rows, K]`.
    pub gates: Vec<f32>,
    /// Scores of all experts, `[rows, E]`.
    pub scores: Vec<f32>,
    /// Scores of the last pass, attached to their graph.
    pub attached: Option<Tensor>,
}

impl Routes {
    /// Records a pass, and replays if given a trace of the pass's rows, `[rows, layers, K]`.
    pub fn new(replay: Option<RoutingTrace>) -> Self {
        Self { replay, ..Self::default() }
    }
}

impl Gate {
    pub(super) fn new(experts: usize, top_k: usize) -> Result<Self> {
        let router = router(experts, top_k);
        router.check()?;
        Ok(Self { device: Device::cpu_with(Some(SimdLevel::best()), Some(1))?, router })
    }

    /// Returns the experts `[rows * K]` and gates `[rows, K]` for `scores` `[rows, E]`.
    pub(super) fn apply(
        &self,
        scores: &Tensor,
        layer: usize,
        routes: Option<&mut Routes>,
    ) -> Result<(Vec<u32>, Tensor)> {
        let scores = scores.contiguous()?;
        let flat: Vec<f32> = scores.flatten_all()?.to_vec1()?;
        let replay = routes.as_ref().and_then(|routes| routes.replay.as_ref());
        let replay = match replay {
            None => None,
            Some(trace) => {
                let trace =
                    trace.view().slice(layer, 1).context("the trace has fewer layers than the model")?;
                Some(Replay { trace, mask: Mask::all() })
            }
        };
        let gating = gating_forward(&self.device, &self.router, &flat, None, replay)?;
        let chosen: Vec<u32> = match &gating.chosen {
            Ids::U8(ids) => ids.iter().map(|id| u32::from(*id)).collect(),
            Ids::U16(ids) => ids.iter().map(|id| u32::from(*id)).collect(),
        };
        if let Some(routes) = routes {
            routes.replayed += gating.replayed;
            if routes.layers.len() <= layer {
                routes.layers.resize_with(layer + 1, LayerRoutes::default);
            }
            let record = &mut routes.layers[layer];
            record.chosen.extend(&chosen);
            record.gates.extend(&gating.gates);
            record.scores.extend(&flat);
            record.attached = Some(scores.clone());
        }
        let gates = scores.apply_op1(Gates { gate: self.clone(), gating })?;
        Ok((chosen, gates))
    }
}

/// Maps scores to gates, which were already computed together with the choice of experts.
struct Gates {
    gate: Gate,
    gating: Gating,
}

impl CustomOp1 for Gates {
    fn name(&self) -> &'static str {
        "lockstep-gates"
    }

    fn cpu_fwd(&self, _: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let rows = layout.shape().dims2()?.0;
        Ok((CpuStorage::F32(self.gating.gates.clone()), (rows, self.gate.router.top_k).into()))
    }

    fn bwd(&self, scores: &Tensor, _: &Tensor, grad: &Tensor) -> candle_core::Result<Option<Tensor>> {
        Ok(Some(scores.contiguous()?.apply_op2_no_bwd(&grad.contiguous()?, self)?))
    }
}

/// Maps the gradient of the gates to that of the scores.
impl CustomOp2 for Gates {
    fn name(&self) -> &'static str {
        "lockstep-gates-backward"
    }

    fn cpu_fwd(
        &self,
        scores: &CpuStorage,
        layout: &Layout,
        grad: &CpuStorage,
        grad_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let (flat, grad) = (values(scores, layout)?, values(grad, grad_layout)?);
        match gating_backward(&self.gate.device, &self.gate.router, flat, &self.gating, grad) {
            Ok(gradient) => Ok((CpuStorage::F32(gradient), layout.shape().clone())),
            Err(error) => candle_core::bail!("{error}"),
        }
    }
}

/// The error of a model without Lockstep's router that is asked to record.
pub(super) fn no_router<T>() -> Result<T> {
    bail!("this model has its own router, which neither replays nor records")
}
