//! The canonical NaN, and the maximum and minimum that propagate it.
//!
//! Method: two selects for the order, and a bitwise operation on equal operands, which differ at most in the
//! sign of zero: AND of the signs for the maximum, OR for the minimum.
//!
//! Special cases: any NaN operand gives the canonical NaN; -0 < +0.
//!
//! Why: IEEE 754-2008 `maxNum`, x86 `maxps`, PTX `max.f32` and `f32::max` differ in both cases, and NaN
//! payloads differ between vendors; here no target's instruction is trusted with either. NaN is detected by
//! its bits, because LLVM treats NaN payloads as arbitrary: it folded `if y.is_nan() { NAN } else { y }` with
//! y = √x to `y`, and √-1 was 0xffc0_0000 on x86.

/// The NaN of the contract: quiet, positive, empty payload (`0x7fc0_0000`).
#[inline(always)]
pub const fn canonical_nan() -> f32 {
    f32::from_bits(0x7fc0_0000)
}

/// The larger of two numbers; NaN if either is NaN; `max(-0, +0) = +0`.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    let equal = f32::from_bits(a.to_bits() & b.to_bits());
    let larger = if a < b { b } else { equal };
    let larger = if a > b { a } else { larger };
    f32::from_bits(if is_nan(a) | is_nan(b) { canonical_nan().to_bits() } else { larger.to_bits() })
}

/// The smaller of two numbers; NaN if either is NaN; `min(-0, +0) = -0`.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    let equal = f32::from_bits(a.to_bits() | b.to_bits());
    let smaller = if a < b { a } else { equal };
    let smaller = if a > b { b } else { smaller };
    f32::from_bits(if is_nan(a) | is_nan(b) { canonical_nan().to_bits() } else { smaller.to_bits() })
}

/// `y`, or the canonical NaN if `x` is NaN; `y` itself is never NaN, so there is nothing for LLVM to fold.
#[inline(always)]
pub(super) fn unless_nan(x: f32, y: f32) -> f32 {
    if x.is_nan() { canonical_nan() } else { y }
}

/// `y`, or the canonical NaN if `y` is NaN.
#[inline(always)]
pub fn canonical(y: f32) -> f32 {
    f32::from_bits(if is_nan(y) { canonical_nan().to_bits() } else { y.to_bits() })
}

/// `y`, or the canonical NaN of binary64 (`0x7ff8_0000_0000_0000`) if `y` is NaN.
#[inline(always)]
pub fn canonical64(y: f64) -> f64 {
    let nan = (y.to_bits() << 1) > 0xffe0_0000_0000_0000;
    f64::from_bits(if nan { 0x7ff8_0000_0000_0000 } else { y.to_bits() })
}

/// Whether `x` is NaN, by its bits.
#[inline(always)]
fn is_nan(x: f32) -> bool {
    (x.to_bits() << 1) > 0xff00_0000
}

/// `y` with the sign bit of `x` set: for odd functions, where `y` has the sign of `x` or is +0.
#[inline(always)]
pub(super) fn with_sign_of(x: f32, y: f32) -> f32 {
    f32::from_bits(y.to_bits() | (x.to_bits() & 0x8000_0000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: [f32; 7] = [f32::NEG_INFINITY, -1.5, -0.0, 0.0, 1e-45, 2.0, f32::INFINITY];

    #[test]
    fn order_is_total_on_numbers() {
        for (i, &a) in VALUES.iter().enumerate() {
            for (j, &b) in VALUES.iter().enumerate() {
                assert_eq!(max(a, b).to_bits(), VALUES[i.max(j)].to_bits(), "max({a}, {b})");
                assert_eq!(min(a, b).to_bits(), VALUES[i.min(j)].to_bits(), "min({a}, {b})");
            }
        }
    }

    #[test]
    fn every_nan_becomes_the_canonical_one() {
        for nan in [0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xffff_ffff].map(f32::from_bits) {
            assert_eq!(canonical64(f64::from(nan)).to_bits(), 0x7ff8_0000_0000_0000);
            for a in VALUES {
                assert_eq!(canonical64(f64::from(a)).to_bits(), f64::from(a).to_bits());
                for y in [max(a, nan), max(nan, a), min(a, nan), min(nan, a), max(nan, nan)] {
                    assert_eq!(y.to_bits(), 0x7fc0_0000);
                }
            }
        }
    }
}
