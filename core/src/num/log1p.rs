//! ln(1 + x).
//!
//! Method: k is the exponent of the rounded 1 + x; then f = (1 + x)/2^k - 1 = x/2^k + (2^-k - 1) is formed
//! from x, not from the rounded sum. x/2^k is exact (an integer subtraction from the bits); the rounding
//! error of f is exact too, and enters to first order, divided by 1 + f. The rest is as in
//! [`ln`](super::ln()). For k = 0, f is x itself. The sign bit of x is set in the result, for x = -0.
//!
//! Special cases: ±0 → ±0, +∞ → +∞, -1 → -∞, x < -1 or NaN → NaN.
//!
//! Accuracy: at most 0.8215 ULP, at 0x3eabd44f = 0.33560416, over all 2^32 inputs
//! (3.9 million of them not correctly rounded):
//! `cargo run --release -p lockstep-core --features std --example exhaustive -- log1p`.
//!
//! Why: the usual correction (x - (u - 1))/u needs a division and is no more accurate.

use super::ln::{as_number, exponent, sum};
use super::{Arith, canonical_nan, nan::with_sign_of};

/// The bits of 1.
const ONE: i32 = 0x3f80_0000;

/// Computes ln(1 + x) within 0.8215 ULP. ±0 → ±0, +∞ → +∞, -1 → -∞, x < -1 or NaN → NaN.
#[inline(always)]
pub fn log1p<A: Arith>(x: f32) -> f32 {
    let exponent = exponent(1.0 + x);
    let scaled = f32::from_bits(x.to_bits().wrapping_sub(exponent));
    // 2^-k - 1; 2^-127 and 2^-128 are replaced by 0.
    let shift = f32::from_bits(ONE.wrapping_sub(exponent.cast_signed()).max(0).cast_unsigned()) - 1.0;
    let f = scaled + shift;
    // Exact: either |shift| >= |scaled|, or f is exact and this is 0.
    let rest = scaled - (f - shift);
    let y = with_sign_of(x, sum::<A>(as_number(exponent), f, A::fma(-f, rest, rest)));
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == -1.0 { f32::NEG_INFINITY } else { y };
    if x >= -1.0 { y } else { canonical_nan() }
}
