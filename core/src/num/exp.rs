//! Exponential, e^x, and the argument reduction that `expm1`, `expm1mx`, `sigmoid` and `tanh` share.
use super::{Arith, nan::unless_nan};

/// 1/ln 2.
const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b); // 1.44269502
/// ln 2 rounded to nearest.
const LN2_HI: f32 = f32::from_bits(0x3f31_7218); // 0.693147182
/// ln 2 - LN2_HI.
const LN2_LO: f32 = f32::from_bits(0xb102_e308); // -1.90465421e-9

/// Q0..Q5.
pub(super) const Q: [f32; 6] = [
    f32::from_bits(0x3f00_0000), // 0.5
    f32::from_bits(0x3e2a_aaac), // 0.166666687
    f32::from_bits(0x3d2a_aa90), // 0.0416665673
    f32::from_bits(0x3c08_842e), // 0.00833229534
    f32::from_bits(0x3ab6_71e4), // 0.00139194401
    f32::from_bits(0x395a_a4c8), // 0.000208514859
];

/// 1.5·2^23: a number added to it is rounded to an integer, which then stands in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;

/// `x` as n·ln 2 + (hi + lo) with an integer n.
pub(super) struct Reduced {
    /// r = hi + lo without its last few bits; exact.
    pub(super) hi: f32,
    /// e^r - 1 - hi.
    pub(super) tail: f32,
}

/// x / ln 2, less 0.085.
#[inline(always)]
pub(super) fn log2<A: Arith>(x: f32) -> f32 {
    A::fma(x, LOG2_E, -0.085)
}

/// The rest of `x` after `n` powers of two, and its exponential.
#[inline(always)]
pub(super) fn reduce<A: Arith>(x: f32, n: f32) -> Reduced {
    let hi = A::fma(n, -LN2_HI, x);
    let lo = n * -LN2_LO;
    let r = hi + lo;
    let q = A::fma(r, Q[5], Q[4]);
    let q = A::fma(r, q, Q[3]);
    let q = A::fma(r, q, Q[2]);
    let q = A::fma(r, q, Q[1]);
    let q = A::fma(r, q, Q[0]);
    Reduced { hi, tail: A::fma(r * r, q, lo) }
}

/// 2^n for an integer n in -126..=127 (above: as 127), and n itself.
#[inline(always)]
pub(super) fn power<A: Arith>(x: f32) -> (f32, f32) {
    const BIASED: f32 = ROUND + 127.0;
    let sum = log2::<A>(x) + BIASED;
    let capped = if sum < BIASED + 127.0 { sum } else { BIASED + 127.0 };
    (f32::from_bits(capped.to_bits() << 23), sum - BIASED)
}

/// `x` between `low` and `high`; NaN becomes `high`.
#[inline(always)]
pub(super) fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let y = if x < high { x } else { high };
    if y > low { y } else { low }
}

/// e^x for x in [-104, 89] without the doubling that n = 128 needs, and n.
#[inline(always)]
pub(super) fn unscaled<A: Arith>(x: f32) -> (f32, f32) {
    const BIASED: f32 = ROUND + 254.0;
    let log2 = log2::<A>(x);
    let sum = (if log2 > -149.0 { log2 } else { -149.0 }) + BIASED;
    let n = sum - BIASED;
    let capped = if sum < BIASED + 127.0 { sum } else { BIASED + 127.0 };
    // 2^n = 2^a·2^b with a = floor(n/2), so that subnormal powers come out too.
    let a = (capped.to_bits() >> 1) << 23;
    let b = (capped.to_bits() << 23).wrapping_sub(a);
    let scale = f32::from_bits(a) * f32::from_bits(b);
    let r = reduce::<A>(x, n);
    (A::fma(r.hi + r.tail, scale, scale), n)
}

/// e^x.
#[inline(always)]
pub fn exp<A: Arith>(x: f32) -> f32 {
    let (y, n) = unscaled::<A>(clamp(x, -104.0, 89.0));
    unless_nan(x, if n > 127.0 { y + y } else { y })
}
