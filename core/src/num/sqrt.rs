//! Square root.
//!
//! Method: [`Arith::sqrt`]; NaN results are made canonical.
//!
//! Special cases: √±0 = ±0, √+∞ = +∞, negative or NaN → NaN.
//!
//! Accuracy: correctly rounded (0.5 ULP) over all 2^32 inputs:
//! `cargo run --release -p lockstep-core --features std --example exhaustive -- sqrt`.
//!
//! Why: IEEE-754 fixes its bits, so any correctly rounded instruction will do, but no approximate one.

use super::{Arith, nan::canonical};

/// Computes √x, correctly rounded. √±0 = ±0, √+∞ = +∞, negative or NaN → NaN.
#[inline(always)]
pub fn sqrt<A: Arith>(x: f32) -> f32 {
    canonical(A::sqrt(x))
}
