//! Routing replay in the training loop: recording, replaying, and measuring how far rollout and update are
//! apart. The maths is Lockstep's.

mod balance;
mod metrics;
mod record;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub use balance::{Balance, balance};
pub use metrics::{Mismatches, compare};
pub use record::Record;
pub(crate) use record::time_major;

/// What the update replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing: routing is recorded and compared, but each pass routes for itself
    None,
    /// The old policy's routing, recorded in training precision before the updates (R2)
    R2,
    /// The rollout's routing (R3), also in the old policy's pass
    R3,
}

/// Routing through Lockstep's router. Without it the model uses its own router, and nothing is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routing {
    /// What the update replays.
    pub mode: Mode,
    /// Coefficient of the load-balance loss in the RL phase; 0 disables it.
    pub balance: f32,
}
