//! What is measured, as TOML spells it.

use serde::{Deserialize, Serialize};

/// How whole-batch scalars (loss, metrics) are summed over sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// In the fixed tree of `fold_rows`, on the device: the same bits on every backend, others for another sharding.
    #[default]
    Tree,
    /// Exactly, rounded once, on the host: the same bits for any sharding; see [`PolicyTotals`](crate::ops::exact::PolicyTotals).
    Exact,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsChoice {
    /// Ratios of `in_band_fraction`, both ends included.
    pub band: [f32; 2],
    /// How loss and metrics are summed over sequences.
    pub reduction: Reduction,
}

impl Default for MetricsChoice {
    fn default() -> Self {
        MetricsChoice { band: [0.8, 1.2], reduction: Reduction::Tree }
    }
}
