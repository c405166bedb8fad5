//! Logistic function.
use super::Arith;
use super::exp::{clamp, unscaled};
use super::nan::unless_nan;

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid<A: Arith>(x: f32) -> f32 {
    let (e, _) = unscaled::<A>(clamp(-x.abs(), -104.0, 0.0));
    let top = if x < 0.0 { e } else { 1.0 };
    unless_nan(x, top / (1.0 + e))
}
