//! Whether an element is fit to be used, as one number whose maximum over a row tells of the whole row.
//!
//! An alarm is the bit pattern of a magnitude that must be finite; a value outside its domain has a pattern
//! above all finite ones. The caller of a row with an alarm above [`LIMIT`] looks for the argument and index.
//! Naming the argument here would cost a compare and a select for each, on every token; this is one
//! subtraction or mask each and an integer maximum, which every target has.

/// The largest alarm of a row without fault: the pattern of the largest finite number.
pub const LIMIT: u32 = 0x7f7f_ffff;

/// Above [`LIMIT`] unless x is a log-probability: finite and at most 0.
#[inline(always)]
pub fn logp(x: f32) -> u32 {
    // 0 − x is at least +0, or has the sign bit, or is ∞ or NaN.
    (0.0 - x).to_bits()
}

/// Above [`LIMIT`] unless x is finite and at least 0.
#[inline(always)]
pub fn weight(x: f32) -> u32 {
    (x + 0.0).to_bits()
}

/// Above [`LIMIT`] unless x is finite.
#[inline(always)]
pub fn finite(x: f32) -> u32 {
    x.to_bits() & 0x7fff_ffff
}

/// The worse of two alarms.
#[inline(always)]
pub fn worse(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}
