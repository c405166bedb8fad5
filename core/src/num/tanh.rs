//! Hyperbolic tangent.
//!
//! Method: with m = e^(-2|x|) - 1 as in [`expm1`](super::expm1()), tanh |x| = -m / (2 + m); the sign bit is
//! x's.
//!
//! Special cases: ±0 → ±0, ±∞ → ±1, NaN → NaN; ±1 from |x| = 9.01 on.
//!
//! Accuracy: at most 2.4984 ULP, at 0x409029b4 = 4.5050907, over all 2^32 inputs
//! (149.1 million of them not correctly rounded):
//! `cargo run --release -p lockstep-core --features std --example exhaustive -- tanh`.
//!
//! Why: one formula for all x; m is accurate in relative terms, so small x need no branch.

use super::Arith;
use super::div::div;
use super::expm1::expm1_nonpositive;
use super::nan::{unless_nan, with_sign_of};

/// Computes tanh x within 2.4984 ULP. ±0 → ±0, ±∞ → ±1, NaN → NaN.
#[inline(always)]
pub fn tanh<A: Arith>(x: f32) -> f32 {
    let m = expm1_nonpositive::<A>(-2.0 * x.abs());
    unless_nan(x, with_sign_of(x, div(m.abs(), 2.0 + m)))
}
