//! Small selections that results pass through on their way out.

use super::canonical_nan;

/// `x`, or the canonical NaN.
#[inline(always)]
pub fn canonical(x: f32) -> f32 {
    if x.is_nan() { canonical_nan() } else { x }
}

/// `x`, or the canonical NaN of binary64 (`0x7ff8_0000_0000_0000`).
#[inline(always)]
pub fn canonical64(x: f64) -> f64 {
    if x.is_nan() { f64::from_bits(0x7ff8_0000_0000_0000) } else { x }
}

/// 1 or 0: a condition as a term of a sum.
#[inline(always)]
pub fn count(condition: bool) -> f32 {
    if condition { 1.0 } else { 0.0 }
}
