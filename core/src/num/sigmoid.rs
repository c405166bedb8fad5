//! Logistic function, σ(x) = 1 / (1 + e^-x).
//!
//! Method: with e = e^-|x| as [`exp`](super::exp()) computes it, σ(x) = 1/(1 + e) for x >= 0 and e/(1 + e)
//! for x < 0.
//!
//! Special cases: σ(±0) = 1/2, σ(+∞) = 1, σ(-∞) = +0, NaN → NaN; subnormal results for x < -87.33655, 0 below
//! -103.97207.
//!
//! Accuracy: at most 2.4019 ULP, at 0xc085088d = -4.157294, over all 2^32 inputs
//! (125.2 million of them not correctly rounded):
//! `cargo run --release -p lockstep-core --features std --example exhaustive -- sigmoid`.
//!
//! Why: both forms keep small results accurate in relative terms; there is one division, with a divisor in
//! [1, 2].

use super::Arith;
use super::div::div;
use super::exp::exp_nonpositive;
use super::nan::unless_nan;

/// Computes 1 / (1 + e^-x) within 2.4019 ULP. σ(±0) = 1/2, σ(+∞) = 1, σ(-∞) = +0, NaN → NaN.
#[inline(always)]
pub fn sigmoid<A: Arith>(x: f32) -> f32 {
    let e = exp_nonpositive::<A>(-x.abs());
    let top = if x < 0.0 { e } else { 1.0 };
    unless_nan(x, div(top, 1.0 + e))
}
