//! e^x - 1 - x.
use super::Arith;
use super::exp::{clamp, power, reduce};
use super::nan::unless_nan;

/// e^x - 1 - x.
#[inline(always)]
pub fn expm1mx<A: Arith>(x: f32) -> f32 {
    let c = clamp(x, -80.0, 89.0);
    let (scale, n) = power::<A>(c);
    let r = reduce::<A>(c, n);
    let line = A::fma(scale, r.hi, (scale - 1.0) - x);
    let y = A::fma(scale, r.tail, line);
    unless_nan(x, if n > 127.0 { y + y } else { y })
}
