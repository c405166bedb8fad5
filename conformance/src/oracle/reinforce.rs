//! REINFORCE without importance weight (GPG), maths.md §2.7: l = −A logp.

/// The weight of every token.
pub const WEIGHT: f64 = 1.0;
