//! e^x - 1.
use super::Arith;
use super::exp::{clamp, power, reduce};
use super::nan::{unless_nan, with_sign_of};

/// e^x - 1 for x in [-80, 88].
#[inline(always)]
pub(super) fn unscaled<A: Arith>(x: f32) -> (f32, f32) {
    let (scale, n) = power::<A>(x);
    let r = reduce::<A>(x, n);
    (A::fma(r.hi + r.tail, scale, scale - 1.0), n)
}

/// e^x - 1.
#[inline(always)]
pub fn expm1<A: Arith>(x: f32) -> f32 {
    let (y, n) = unscaled::<A>(clamp(x, -26.0, 89.0));
    let y = if n > 127.0 { y + y } else { y };
    unless_nan(x, with_sign_of(x, y))
}
