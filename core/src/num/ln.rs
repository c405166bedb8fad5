//! Natural logarithm, and the evaluation that it shares with `log1p`.
//!
//! Method:
//! 1. x = 2^k·m with m in [2/3, 4/3), by integer subtraction from the bits; a subnormal x is multiplied by
//!    2^23 first. f = m - 1 is exact, |f| <= 1/3.
//! 2. ln(1 + f) = f + f·w, w = f²·P(f) - f/2, with P of degree 8: error of f³P below 2^-29.8 of ln(1 + f)
//!    (`docs/derivations/num/minimax.py`, recomputed by the test below).
//! 3. k·LN2_HI is exact (LN2_HI has 16 bits) and k·LN2_HI + f is a two-sum hi + lo, so the result hi + (f·w +
//!    (k·LN2_LO + lo)) has only one full-size rounding.
//!
//! Special cases: ln 1 = +0, ln ±0 = -∞, ln +∞ = +∞, x < 0 or NaN → NaN.
//!
//! Accuracy: at most 0.7436 ULP, at 0x3faab053 = 1.333506, over all 2^32 inputs
//! (1.9 million of them not correctly rounded):
//! `cargo run --release -p lockstep-core --features std --example exhaustive -- ln`.
//!
//! Why: [2/3, 4/3) is symmetric about 1, where the polynomial needs the lowest degree. w is formed this way
//! because rounding -1/2 + f·P(f) and f² separately would cost 0.1 ULP more and save only one multiplication.

use super::{Arith, canonical_nan};

/// ln 2, first 16 bits.
const LN2_HI: f32 = f32::from_bits(0x3f31_7200); // 0.693145752
/// ln 2 - LN2_HI.
const LN2_LO: f32 = f32::from_bits(0x35bf_be8e); // 1.42860677e-6
/// The bits of 2/3.
const TWO_THIRDS: u32 = 0x3f2a_aaab; // 0.666666687
/// Makes a subnormal number normal.
const UP: f32 = f32::from_bits(0x4b00_0000); // 2^23

/// P0..P8.
const P: [f32; 9] = [
    f32::from_bits(0x3eaa_aaab), // 0.333333343
    f32::from_bits(0xbe7f_ff82), // -0.249998122
    f32::from_bits(0x3e4c_cc2e), // 0.199997634
    f32::from_bits(0xbe2a_cd8a), // -0.166799694
    f32::from_bits(0x3e12_6c4a), // 0.142991215
    f32::from_bits(0xbdf9_aa5c), // -0.121906966
    f32::from_bits(0x3ddd_8356), // 0.10816066
    f32::from_bits(0xbe03_bc75), // -0.128648594
    f32::from_bits(0x3df1_13bc), // 0.117713422
];

/// k·2^23, as an integer, with x/2^k in [2/3, 4/3), for a positive normal x.
#[inline(always)]
pub(super) fn exponent(x: f32) -> u32 {
    x.to_bits().wrapping_sub(TWO_THIRDS) & 0xff80_0000
}

/// k from the result of `exponent`.
#[inline(always)]
pub(super) fn as_number(exponent: u32) -> f32 {
    (exponent.cast_signed() >> 23) as f32
}

/// k·ln 2 + ln(1 + f) + rest, for an integer k, |f| <= 1/3 and a tiny rest (-0 for none).
#[inline(always)]
pub(super) fn sum<A: Arith>(k: f32, f: f32, rest: f32) -> f32 {
    let hi = A::fma(k, LN2_HI, f);
    let lo = (f - A::fma(k, -LN2_HI, hi)) + rest;
    let p = A::fma(f, P[8], P[7]);
    let p = A::fma(f, p, P[6]);
    let p = A::fma(f, p, P[5]);
    let p = A::fma(f, p, P[4]);
    let p = A::fma(f, p, P[3]);
    let p = A::fma(f, p, P[2]);
    let p = A::fma(f, p, P[1]);
    let p = A::fma(f, p, P[0]);
    let w = A::fma(f * f, p, f * -0.5);
    hi + A::fma(f, w, A::fma(k, LN2_LO, lo))
}

/// ln x for a positive normal number: the bits of [`ln`]. Other arguments give an unspecified number or NaN.
#[inline(always)]
pub fn ln_normal<A: Arith>(x: f32) -> f32 {
    let exponent = exponent(x);
    let m = f32::from_bits(x.to_bits().wrapping_sub(exponent));
    sum::<A>(as_number(exponent), m - 1.0, -0.0)
}

/// Computes ln x within 0.7436 ULP. ln 1 = +0, ln ±0 = -∞, ln +∞ = +∞, x < 0 or NaN → NaN.
#[inline(always)]
pub fn ln<A: Arith>(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let normal = if tiny { x * UP } else { x };
    let exponent = exponent(normal);
    let m = f32::from_bits(normal.to_bits().wrapping_sub(exponent));
    let k = as_number(exponent) - if tiny { 23.0 } else { 0.0 };
    let y = sum::<A>(k, m - 1.0, -0.0);
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { canonical_nan() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_need_less() {
        use super::super::Soft;
        for x in (f32::MIN_POSITIVE.to_bits()..=f32::MAX.to_bits()).step_by(20_011).map(f32::from_bits) {
            assert_eq!(ln_normal::<Soft>(x).to_bits(), ln::<Soft>(x).to_bits(), "ln {x}");
        }
        assert_eq!(ln_normal::<Soft>(1.0).to_bits(), 0);
    }

    #[test]
    fn polynomial_error_is_below_its_bound() {
        let mut worst = 0.0_f64;
        for i in 0..=100_000 {
            let f = -0.33334 + 0.66668 * f64::from(i) / 100_000.0;
            let p = P.iter().rev().fold(0.0, |sum, &c| sum * f + f64::from(c));
            if f.abs() > 1e-3 {
                let exact = libm::log1p(f);
                worst = worst.max(((f + f * f * (f * p - 0.5)) / exact - 1.0).abs());
            }
        }
        assert!(worst < libm::exp2(-29.8), "2^{}", libm::log2(worst));
        assert!(worst > libm::exp2(-30.0), "the bound can be tightened: 2^{}", libm::log2(worst));
    }

    #[test]
    fn ln2_is_split_and_its_first_part_short() {
        let sum = f64::from(LN2_HI) + f64::from(LN2_LO);
        assert!((sum - core::f64::consts::LN_2).abs() < libm::exp2(-44.0));
        assert_eq!(LN2_HI.to_bits() & 0xff, 0, "k of 8 bits times LN2_HI must be exact");
    }
}
