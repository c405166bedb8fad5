//! Every allowed error.

/// Against golden files.
pub const GOLDEN: f64 = 2e-6;
