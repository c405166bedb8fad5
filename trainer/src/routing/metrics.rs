//! How far apart the routing of rollout, old policy and update is: one set of numbers per step.

use anyhow::Result;
use lockstep::Device;
use lockstep::routing::{RoutingTrace, gate_kl, mismatch, replay_kl};
use serde::{Deserialize, Serialize};

use super::Record;
use crate::model::{Shape, router};
use crate::train::bits::with_nan;

with_nan! {
    /// Routing differences in a step, over every token fed to the model, prompts included. Unless stated
    /// otherwise, the experts that ran in the update are compared with those that ran in the rollout.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Mismatches {
        /// Routers (token and layer) compared.
        pub routers: u64,
        /// Rows replayed in the old policy's pass and in the updates.
        pub replayed: u64,
        /// Fraction of routers that ran different experts.
        pub differ: f64,
        /// The same per layer.
        pub differ_layers: Vec<f64>,
        /// Fraction of tokens with at least one such router.
        pub tokens_differ: f64,
        /// Mean number of such layers per token.
        pub layers_per_token: f64,
        /// Overlap of the two expert sets, as a fraction.
        pub overlap: f64,
        /// Fraction of routers that ran different experts from those of the old policy in the trainer.
        pub differ_old: f64,
        /// Fraction of the update's routers that would have run different experts from the rollout's without
        /// replay.
        pub differ_live: f64,
        /// Mean KL(rollout's gates ‖ update's gates), nats, over routers that ran the same experts.
        pub gate_kl: f64,
        /// The same per layer.
        pub gate_kl_layers: Vec<f64>,
        /// Mean of KL(g* ‖ p) − KL(g ‖ p) in nats: the gates imposed by the rollout's trace against the
        /// update's own.
        pub replay_kl: f64,
        /// The same per layer.
        pub replay_kl_layers: Vec<f64>,
        /// Mean |log-probability in the rollout − of the old policy in the trainer|, nats.
        pub gap_old: f64,
        /// Mean |log-probability in the rollout − in the update|, nats.
        pub gap_update: f64,
        /// Load-balance loss, mean over updates.
        pub balance: f64,
    }
}

/// Computes everything but `replayed`, the gaps and the loss, from packed records of the same tokens.
pub fn compare(shape: &Shape, rollout: &Record, old: &Record, update: &Record) -> Result<Mismatches> {
    let device = Device::cpu();
    let router = router(shape.experts, shape.top_k);
    let live = RoutingTrace::live(&device, &router, shape.layers, &update.scores, None)?;
    let [rollouts, olds, updates] = [rollout, old, update].map(|record| record.trace.view());
    let ran = mismatch(&updates, &rollouts)?;
    let gates = gate_kl((&rollouts, &rollout.gates), (&updates, &update.gates))?;
    let imposed = replay_kl(&device, &router, &update.scores, None, &rollouts)?;
    let fraction = |&(routers, differing): &(usize, usize)| differing as f64 / routers.max(1) as f64;
    Ok(Mismatches {
        routers: ran.routers as u64,
        differ: ran.router_fraction(),
        differ_layers: ran.layers.iter().map(fraction).collect(),
        tokens_differ: ran.token_fraction(),
        layers_per_token: ran.layers_per_token(),
        overlap: ran.overlap(),
        differ_old: mismatch(&updates, &olds)?.router_fraction(),
        differ_live: mismatch(&live.view(), &rollouts)?.router_fraction(),
        gate_kl: gates.mean(),
        gate_kl_layers: gates.layer_means(),
        replay_kl: imposed.mean(),
        replay_kl_layers: imposed.layer_means(),
        ..Mismatches::default()
    })
}
