//! Hyperbolic tangent.
use super::Arith;
use super::exp::clamp;
use super::expm1::unscaled;
use super::nan::{unless_nan, with_sign_of};

/// tanh x.
#[inline(always)]
pub fn tanh<A: Arith>(x: f32) -> f32 {
    let (e, _) = unscaled::<A>(clamp(-2.0 * x.abs(), -26.0, 0.0));
    unless_nan(x, with_sign_of(x, e.abs() / (2.0 + e)))
}
