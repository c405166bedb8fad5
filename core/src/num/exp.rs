//! Exponential, e^x, and the argument reduction that `expm1`, `expm1mx`, `sigmoid` and `tanh` share.
//!
//! Method:
//! 1. x = n·ln 2 + r with n = round(x/ln 2 - 0.085), so r in [-0.2877, 0.4055], where -1/4 <= e^r - 1 <= 1/2.
//!    n is rounded by adding 1.5·2^23 and read from the low bits of the sum. r = hi + lo: hi = x - n·LN2_HI
//!    is exact (one fma), lo = -n·LN2_LO is below 2^-21.
//! 2. e^r = 1 + hi + tail, tail = r·(r·Q(r)) + lo, with Q of degree 5. |Q·r²/(e^r - 1 - r) - 1| < 2^-27.8 on
//!    [-0.2880, 0.4060] (`docs/derivations/num/minimax.py`, recomputed by the test below).
//! 3. e^x = fma(hi + tail, 2^n, 2^n): one rounding, for subnormal results too, since 2^n is exact down to
//!    2^-149. n = 128 is computed with 2^127 and doubled. n < -149 is computed with 2^-149; its r is outside
//!    the interval, but that can only affect whether the result rounds to 0 or 2^-149.
//!
//! Special cases: e^±0 = 1, e^+∞ = +∞, e^-∞ = +0, NaN → NaN; overflow to +∞ above 88.72283, 0 below
//! -103.97207.
//!
//! Accuracy: at most 0.8156 ULP, at 0x41e10d05 = 28.131357, over all 2^32 inputs
//! (17.1 million of them not correctly rounded):
//! `cargo run --release -p lockstep-core --features std --example exhaustive -- exp`.
//!
//! Why: the offset 0.085 (not 0) keeps |e^r - 1| below 1/4 where e^x has the finer spacing, so that the
//! rounding of hi + tail costs at most 1/8 ULP on both sides. r·(r·Q) costs as much as r²·Q and is 0.02 ULP
//! better.

use super::{Arith, nan::unless_nan};

/// 1/ln 2.
const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b); // 1.44269502
/// ln 2 rounded to nearest.
const LN2_HI: f32 = f32::from_bits(0x3f31_7218); // 0.693147182
/// ln 2 - LN2_HI.
const LN2_LO: f32 = f32::from_bits(0xb102_e308); // -1.90465421e-9
/// Adding a number to this rounds it to an integer, which is then in the low bits of the sum.
const ROUND: f32 = f32::from_bits(0x4b40_0000); // 1.5·2^23
/// The same, with the integer biased like the exponent of a binary32 number.
const ROUND_1: f32 = ROUND + 127.0;
/// The same, with the integer biased like the sum of two exponents.
pub(super) const ROUND_2: f32 = ROUND + 254.0;

/// Q0..Q5.
const Q: [f32; 6] = [
    f32::from_bits(0x3f00_0000), // 0.5
    f32::from_bits(0x3e2a_aaac), // 0.166666687
    f32::from_bits(0x3d2a_aa90), // 0.0416665673
    f32::from_bits(0x3c08_842e), // 0.00833229534
    f32::from_bits(0x3ab6_71e4), // 0.00139194401
    f32::from_bits(0x395a_a4c8), // 0.000208514859
];

/// e^r for the remainder r of an argument, as 1 + `hi` + `tail`.
pub(super) struct Remainder {
    /// r without its last bits; exact.
    pub(super) hi: f32,
    /// e^r - 1 - hi.
    pub(super) tail: f32,
}

/// The remainder of `x` after `n` powers of two.
#[inline(always)]
pub(super) fn remainder<A: Arith>(x: f32, n: f32) -> Remainder {
    let hi = A::fma(n, -LN2_HI, x);
    let lo = n * -LN2_LO;
    let r = hi + lo;
    let q = A::fma(r, Q[5], Q[4]);
    let q = A::fma(r, q, Q[3]);
    let q = A::fma(r, q, Q[2]);
    let q = A::fma(r, q, Q[1]);
    let q = A::fma(r, q, Q[0]);
    Remainder { hi, tail: A::fma(r, r * q, lo) }
}

/// x / ln 2 minus the offset; rounds to n.
#[inline(always)]
pub(super) fn log2<A: Arith>(x: f32) -> f32 {
    A::fma(x, LOG2_E, -0.085)
}

/// n, and the number whose low bits are n + 127.
#[inline(always)]
pub(super) fn integer<A: Arith>(x: f32) -> (f32, f32) {
    let biased = log2::<A>(x) + ROUND_1;
    (biased - ROUND_1, biased)
}

/// 2^n from the second result of `integer`, for n >= -126; 2^127 for larger n.
#[inline(always)]
pub(super) fn power(biased: f32) -> f32 {
    f32::from_bits(at_most(biased, ROUND_1 + 127.0).to_bits() << 23)
}

/// 2^n for n in -149..=127 from n + ROUND_2, as 2^a·2^b with a = floor(n/2), so that subnormal powers are
/// covered.
#[inline(always)]
pub(super) fn wide_power(biased: f32) -> f32 {
    let a = (biased.to_bits() >> 1) << 23;
    let b = (biased.to_bits() << 23).wrapping_sub(a);
    f32::from_bits(a) * f32::from_bits(b)
}

/// The smaller of `x` and `high`; NaN becomes `high`.
#[inline(always)]
pub(super) fn at_most(x: f32, high: f32) -> f32 {
    if x < high { x } else { high }
}

/// The larger of `x` and `low`; NaN becomes `low`.
#[inline(always)]
pub(super) fn at_least(x: f32, low: f32) -> f32 {
    if x > low { x } else { low }
}

/// n + ROUND_2, at least -149 + ROUND_2.
#[inline(always)]
fn wide_integer<A: Arith>(x: f32) -> f32 {
    at_least(log2::<A>(x), -149.0) + ROUND_2
}

/// e^x for x <= 0: the bits of [`exp`], without the work that only larger arguments need. NaN gives 0; a
/// positive x gives an unspecified number.
#[inline(always)]
pub fn exp_nonpositive<A: Arith>(x: f32) -> f32 {
    let x = at_least(x, -104.0);
    let biased = wide_integer::<A>(x);
    let r = remainder::<A>(x, biased - ROUND_2);
    let scale = wide_power(biased);
    A::fma(r.hi + r.tail, scale, scale)
}

/// An argument of [`exp_normal`] that gives exactly 0: the bits of its power of two are 0.
pub const EXP_IS_ZERO: f32 = -88.0;

/// e^x for |x| <= 87, where e^x and its power of two are normal: the bits of [`exp`] in half the operations.
/// Other arguments, including NaN, give an unspecified number or NaN.
#[inline(always)]
pub fn exp_normal<A: Arith>(x: f32) -> f32 {
    let biased = log2::<A>(x) + ROUND_2;
    let r = remainder::<A>(x, biased - ROUND_2);
    let scale = f32::from_bits(biased.to_bits().wrapping_sub(127) << 23);
    A::fma(r.hi + r.tail, scale, scale)
}

/// Computes e^x within 0.8156 ULP. e^±0 = 1, e^+∞ = +∞, e^-∞ = +0, NaN → NaN.
#[inline(always)]
pub fn exp<A: Arith>(x: f32) -> f32 {
    let c = at_least(at_most(x, 89.0), -104.0);
    let biased = wide_integer::<A>(c);
    let n = biased - ROUND_2;
    let r = remainder::<A>(c, n);
    let scale = wide_power(at_most(biased, ROUND_2 + 127.0));
    let y = A::fma(r.hi + r.tail, scale, scale);
    unless_nan(x, if n > 127.0 { y + y } else { y })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polynomial_error_is_below_its_bound() {
        let mut worst = 0.0_f64;
        for i in 0..=100_000 {
            let r = -0.2880 + 0.6940 * f64::from(i) / 100_000.0;
            let q = Q.iter().rev().fold(0.0, |sum, &c| sum * r + f64::from(c));
            // (e^r - 1 - r)/r² by its series, so that the oracle has no cancellation.
            let exact =
                (2..24).rev().fold(0.0, |sum, k| (1.0 + sum) / f64::from(k) * if k > 2 { r } else { 1.0 });
            worst = worst.max((q / exact - 1.0).abs());
        }
        assert!(worst < libm::exp2(-27.8), "2^{}", libm::log2(worst));
        assert!(worst > libm::exp2(-28.0), "the bound can be tightened: 2^{}", libm::log2(worst));
    }

    #[test]
    fn narrow_variants_have_the_bits_of_exp() {
        use super::super::Soft;
        let same = |a: f32, b: f32, x: f32| assert_eq!(a.to_bits(), b.to_bits(), "e^{x}");
        for bits in (0..=u32::MAX).step_by(40_009) {
            let x = f32::from_bits(bits);
            if x.abs() <= 87.0 {
                same(exp_normal::<Soft>(x), exp::<Soft>(x), x);
            }
            if x <= 0.0 {
                same(exp_nonpositive::<Soft>(x), exp::<Soft>(x), x);
            }
        }
        // Around the changes of n, and at both ends.
        for k in -125..=125 {
            let edge = ((f64::from(k) + 0.585) * core::f64::consts::LN_2) as f32;
            for bits in edge.to_bits() - 200..=edge.to_bits() + 200 {
                let x = f32::from_bits(bits);
                if x.abs() <= 87.0 {
                    same(exp_normal::<Soft>(x), exp::<Soft>(x), x);
                }
            }
        }
        same(exp_normal::<Soft>(-87.0), exp::<Soft>(-87.0), -87.0);
        same(exp_normal::<Soft>(EXP_IS_ZERO), 0.0, EXP_IS_ZERO);
        same(exp_normal::<Soft>(87.0), exp::<Soft>(87.0), 87.0);
    }

    #[test]
    fn ln2_is_split_to_52_bits() {
        let sum = f64::from(LN2_HI) + f64::from(LN2_LO);
        assert!((sum - core::f64::consts::LN_2).abs() < libm::exp2(-52.0));
        assert_eq!(LOG2_E, core::f32::consts::LOG2_E);
    }
}
