//! What is measured, as TOML spells it.

use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsChoice {
    /// Ratios of `in_band_fraction`, both ends included.
    pub band: [f32; 2],
}

impl Default for MetricsChoice {
    fn default() -> Self {
        MetricsChoice { band: [0.8, 1.2] }
    }
}
