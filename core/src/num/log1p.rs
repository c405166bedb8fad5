//! ln(1 + x).
use super::ln::{combine, exponent};
use super::{Arith, canonical_nan, nan::with_sign_of};

/// ln(1 + x).
#[inline(always)]
pub fn log1p<A: Arith>(x: f32) -> f32 {
    let u = 1.0 + x;
    let k = exponent(u);
    // 2^-k; k = 128 would be negative.
    let power = f32::from_bits(0x3f80_0000_i32.wrapping_sub(k.cast_signed()).max(0).cast_unsigned());
    let f = f32::from_bits(x.to_bits().wrapping_sub(k)) + (power - 1.0);
    let y = with_sign_of(x, combine::<A>((k.cast_signed() >> 23) as f32, f));
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == -1.0 { f32::NEG_INFINITY } else { y };
    if x >= -1.0 { y } else { canonical_nan() }
}
