//! Floating point as in the PTX ISA and, where it leaves bits open, by our reading of the hardware.
//!
//! binary32: every computed NaN is 0x7fffffff ("an unspecified NaN", says the ISA). binary64: "NaN payloads
//! are supported"; the first NaN operand is returned, quieted, and an invalid operation gives
//! 0xfff8000000000000. Subnormal numbers are ordinary operands and results.

use super::super::op::{Float1, Float2};

/// The binary32 NaN.
pub(crate) const NAN: u32 = 0x7fff_ffff;
/// The result of an invalid operation on binary64.
pub(crate) const INVALID: u64 = 0xfff8_0000_0000_0000;
/// The NaN that `min.f64` and `max.f64` give for two NaNs.
pub(crate) const NAN64: u64 = 0x7fff_ffff_ffff_ffff;
/// The bit that makes a binary64 NaN quiet.
const QUIET: u64 = 1 << 51;

/// Returns a register's binary32 value.
#[inline(always)]
pub(crate) fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Encodes a binary32 result.
#[inline(always)]
pub(crate) fn single_bits(x: f32) -> u64 {
    u64::from(if x.is_nan() { NAN } else { x.to_bits() })
}

/// Encodes a binary64 result, given its operands.
#[inline(always)]
pub(crate) fn double_bits<const N: usize>(x: f64, from: [f64; N]) -> u64 {
    if x.is_nan() { payload(from) } else { x.to_bits() }
}

#[cold]
fn payload<const N: usize>(from: [f64; N]) -> u64 {
    from.iter().find(|x| x.is_nan()).map_or(INVALID, |x| x.to_bits() | QUIET)
}

/// Calls `$run` with a closure over two registers for each binary32 operation.
macro_rules! single2 {
    ($op:expr, $run:expr) => {{
        use $crate::ptx::run::float::{NAN, single, single_bits, single_min};
        match $op {
            Float2::Add => $run(|a: u64, b: u64| single_bits(single(a) + single(b))),
            Float2::Sub => $run(|a: u64, b: u64| single_bits(single(a) - single(b))),
            Float2::Mul => $run(|a: u64, b: u64| single_bits(single(a) * single(b))),
            Float2::Div => $run(|a: u64, b: u64| single_bits(single(a) / single(b))),
            Float2::Min => $run(|a: u64, b: u64| single_min(a, b, true)),
            Float2::Max => $run(|a: u64, b: u64| single_min(a, b, false)),
            Float2::MinNan | Float2::MaxNan => $run(|a: u64, b: u64| {
                let nan = single(a).is_nan() || single(b).is_nan();
                if nan { u64::from(NAN) } else { single_min(a, b, $op == Float2::MinNan) }
            }),
            Float2::CopySign => $run(|a: u64, b: u64| (a & 0x8000_0000) | (b & 0x7fff_ffff)),
        }
    }};
}
pub(crate) use single2;

/// Returns the smaller or larger of two: of a number and a NaN the number, and -0 is below +0.
#[inline(always)]
pub(crate) fn single_min(a: u64, b: u64, min: bool) -> u64 {
    let (x, y) = (single(a), single(b));
    let zeros = if min { a | b } else { a & b };
    let less = if min { x < y } else { x > y };
    let picked = if x == y {
        zeros
    } else if less || y.is_nan() {
        a
    } else {
        b
    };
    if x.is_nan() && y.is_nan() { u64::from(NAN) } else { picked }
}

/// Like `single_min`, in binary64.
#[inline(always)]
fn double_min(a: u64, b: u64, min: bool) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    match (x.is_nan(), y.is_nan()) {
        (true, true) => NAN64,
        (true, false) => b,
        (false, true) => a,
        _ if x == y => {
            if min {
                a | b
            } else {
                a & b
            }
        }
        _ => {
            if (x < y) == min {
                a
            } else {
                b
            }
        }
    }
}

/// Computes an operation on two binary64 numbers.
#[inline(always)]
pub(crate) fn double2(op: Float2, a: u64, b: u64) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    let value = match op {
        Float2::Add => x + y,
        Float2::Sub => x - y,
        Float2::Mul => x * y,
        Float2::Div => x / y,
        Float2::Min | Float2::MinNan => return double_min(a, b, true),
        Float2::Max | Float2::MaxNan => return double_min(a, b, false),
        Float2::CopySign => return (a & 1 << 63) | (b & !(1 << 63)),
    };
    double_bits(value, [x, y])
}

/// Computes an operation on a binary32 number. `neg` and `abs` of a NaN give "an unspecified NaN", the same
/// as above.
#[inline(always)]
pub(crate) fn single1(op: Float1, a: u64) -> u64 {
    let x = single(a);
    single_bits(match op {
        Float1::Neg => -x,
        Float1::Abs => x.abs(),
        Float1::Sqrt => x.sqrt(),
        Float1::Reciprocal => 1.0 / x,
    })
}

/// Computes an operation on a binary64 number. `neg` also changes the sign of a NaN, and keeps its payload;
/// `abs` passes it through unchanged.
#[inline(always)]
pub(crate) fn double1(op: Float1, a: u64) -> u64 {
    let x = f64::from_bits(a);
    let value = match op {
        Float1::Neg => -x,
        Float1::Abs => x.abs(),
        Float1::Sqrt => x.sqrt(),
        Float1::Reciprocal => 1.0 / x,
    };
    match op {
        Float1::Abs if x.is_nan() => a,
        Float1::Neg | Float1::Abs => double_bits(value, [value]),
        _ => double_bits(value, [x]),
    }
}

/// Computes a product plus a sum, rounded once.
#[inline(always)]
pub(crate) fn single_fma(a: u64, b: u64, c: u64) -> u64 {
    single_bits(single(a).mul_add(single(b), single(c)))
}

/// Like `single_fma`, in binary64.
#[inline(always)]
pub(crate) fn double_fma(a: u64, b: u64, c: u64) -> u64 {
    let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
    double_bits(x.mul_add(y, z), [x, y, z])
}
