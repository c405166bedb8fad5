//! Validity of an element as one number, whose maximum over a row gives the validity of the row.
//!
//! An alarm is the bit pattern of a magnitude that must be finite; a value outside its domain has a pattern
//! above all finite ones. For a row with an alarm above [`LIMIT`], the caller searches for the argument and
//! index. Identifying the argument here would cost a compare and a select per argument on every token; this
//! costs one subtraction or mask each and an integer maximum, which every target has.

/// The largest alarm of a valid row: the pattern of the largest finite number.
pub const LIMIT: u32 = 0x7f7f_ffff;

/// Returns an alarm above [`LIMIT`] unless x is a log-probability: finite and at most 0.
#[inline(always)]
pub fn logp(x: f32) -> u32 {
    // 0 − x is at least +0, or has its sign bit set, or is ∞ or NaN.
    (0.0 - x).to_bits()
}

/// Returns an alarm above [`LIMIT`] unless x is finite and at least 0.
#[inline(always)]
pub fn weight(x: f32) -> u32 {
    (x + 0.0).to_bits()
}

/// Returns an alarm above [`LIMIT`] unless x is finite.
#[inline(always)]
pub fn finite(x: f32) -> u32 {
    x.to_bits() & 0x7fff_ffff
}

/// Returns the worse of two alarms.
#[inline(always)]
pub fn worse(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}
