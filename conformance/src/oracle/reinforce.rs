//! REINFORCE without an importance weight (GPG), docs/maths/gates.md: l = −A logp.

/// The weight of every token.
pub const WEIGHT: f64 = 1.0;
