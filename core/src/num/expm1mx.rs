//! e^x - 1 - x, the shape of the k3 estimator of a KL divergence.
//!
//! Method: e^x = 2^n·(1 + hi + tail) as in [`exp`](super::exp()). For n = 0, that is, x in [-0.2877, 0.4055],
//! hi = x and the result is `tail` = x·(x·Q(x)), accurate in relative terms however small x is. Elsewhere the
//! linear part 2^n·hi + (2^n - 1) - x is added, -x first for x < 0 and last for x >= 0, so that both of its
//! roundings are exact for n = ±1, where it nearly cancels. (-x first for all x was 5 ULP wrong at 0.4614,
//! where 1 - x, below 1/2, is not exact.)
//!
//! Special cases: ±0 → +0, ±∞ → +∞, NaN → NaN; never negative; overflow to +∞ above 88.72283.
//!
//! Accuracy: at most 2.4811 ULP, at 0x3affe204 = 0.0019522314, over all 2^32 inputs
//! (160.4 million of them not correctly rounded):
//! `cargo run --release -p lockstep-core --features std --example exhaustive -- expm1mx`.
//!
//! Why: computed literally, e^x - 1 - x loses all its digits for small x: at x = 1e-4 only noise is left of
//! 5e-9.

use super::Arith;
use super::exp::{at_least, at_most, integer, power, remainder};
use super::nan::unless_nan;

/// Computes e^x - 1 - x within 2.4811 ULP; never negative. ±0 → +0, ±∞ → +∞, NaN → NaN.
#[inline(always)]
pub fn expm1mx<A: Arith>(x: f32) -> f32 {
    let top = at_most(x, 89.0);
    let c = at_least(top, -80.0);
    let (n, biased) = integer::<A>(c);
    let r = remainder::<A>(c, n);
    let scale = power(biased);
    // Of scale - 1, scale·hi and -x, the two whose sum is exact come first.
    let (below, above) = if top < 0.0 { (top, 0.0) } else { (0.0, top) };
    let line = A::fma(scale, r.hi, (scale - 1.0) - below) - above;
    let y = A::fma(scale, r.tail, line);
    unless_nan(x, if n > 127.0 { y + y } else { y })
}
