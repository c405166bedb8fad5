//! e^x - 1.
//!
//! Method: e^x = 2^n·(1 + hi + tail) as in [`exp`](super::exp()); e^x - 1 = fma(hi + tail, 2^n, 2^n - 1), where 2^n - 1 is
//! exact for -24 <= n <= 24 and, for n = 0, nothing is left but hi + tail with hi = x. The sign bit of x is then set
//! in the result, for x = -0.
//!
//! Special cases: ±0 → ±0, +∞ → +∞, -∞ → -1, NaN → NaN; overflow to +∞ above 88.72283; -1 below -17.4.
//!
//! Accuracy: at most 1.3086 ULP, at 0xbe9349e5 = -0.28767315, over all 2^32 inputs
//! (12.0 million of them not correctly rounded):
//! `cargo run --release -p lockstep-core --features std --example exhaustive -- expm1`.
//!
//! Why: the polynomial of `exp` once more, instead of one of its own, for half an ULP at the ends of n = ±1.

use super::Arith;
use super::exp::{at_least, at_most, integer, power, remainder};
use super::nan::{unless_nan, with_sign_of};

/// e^x - 1 for x <= 0, a number; x = -0 gives +0.
#[inline(always)]
pub(super) fn expm1_nonpositive<A: Arith>(x: f32) -> f32 {
    let c = at_least(x, -26.0);
    let (n, biased) = integer::<A>(c);
    let r = remainder::<A>(c, n);
    let scale = f32::from_bits(biased.to_bits() << 23);
    A::fma(r.hi + r.tail, scale, scale - 1.0)
}

/// e^x - 1.
#[inline(always)]
pub fn expm1<A: Arith>(x: f32) -> f32 {
    let c = at_least(at_most(x, 89.0), -26.0);
    let (n, biased) = integer::<A>(c);
    let r = remainder::<A>(c, n);
    let scale = power(biased);
    let y = A::fma(r.hi + r.tail, scale, scale - 1.0);
    let y = if n > 127.0 { y + y } else { y };
    unless_nan(x, with_sign_of(x, y))
}
