//! e^x and ln x in binary64, for host-side schedules; kernels use the binary32 functions.
//!
//! Method:
//! 1. `exp64`: x = n·ln 2 + r with |r| <= 0.3466 (n·LN2_HI is exact: LN2_HI has 32 bits, n at most 11),
//!    Taylor polynomial of degree 13 (first omitted term below 5e-18), then two multiplications by powers of
//!    two, so that subnormal results round once.
//! 2. `ln64`: x = 2^k·m with m in [2/3, 4/3), f = m - 1, s = f/(2 + f), ln m = f - (f²/2 - s·(f²/2 + R)) with
//!    R the series of 2·atanh(s) beyond its first term, to s^24 (first omitted term below 1e-18).
//!
//! Special cases: exp64: NaN → NaN, +∞ above 709.79, 0 below -745.14. ln64: ln 1 = +0, ln ±0 = -∞, ln +∞ =
//! +∞, x < 0 or NaN → NaN.
//!
//! Accuracy: relative error below 4e-16 at 200,000 points against `libm` (test below); not proven over all
//! inputs, as no kernel uses these functions.
//!
//! Why: only `+ - * /` in a fixed order, so a schedule's decision is the same on every machine.

/// 1/ln 2.
const LOG2_E: f64 = core::f64::consts::LOG2_E;
/// ln 2, first 32 bits.
const LN2_HI: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000); // 0.6931471803691238
/// ln 2 - LN2_HI.
const LN2_LO: f64 = f64::from_bits(0x3dea_39ef_3579_3c76); // 1.9082149292705877e-10
/// Adding a number to this rounds it to an integer.
const ROUND: f64 = f64::from_bits(0x4338_0000_0000_0000); // 1.5·2^52
/// The bits of 2/3.
const TWO_THIRDS: u64 = 0x3fe5_5555_5555_5555; // 0.6666666666666666

/// 2^n for n in -1022..=1023.
#[inline]
fn power_of_two(n: i32) -> f64 {
    f64::from_bits(u64::from((n + 1023).cast_unsigned()) << 52)
}

/// Computes e^x in binary64, to a relative error of about 4e-16. +∞ above 709.79, 0 below -745.14, NaN → NaN.
#[inline]
pub fn exp64(x: f64) -> f64 {
    if x.is_nan() {
        return super::canonical64(x);
    }
    if x > 709.79 {
        return f64::INFINITY;
    }
    if x < -745.14 {
        return 0.0;
    }
    let n = (x * LOG2_E + ROUND) - ROUND;
    let r = (x - n * LN2_HI) - n * LN2_LO;
    let mut sum = 1.0;
    let mut k = 13.0;
    while k >= 1.0 {
        sum = 1.0 + super::div64(sum * r, k);
        k -= 1.0;
    }
    let n = n as i32;
    sum * power_of_two(n / 2) * power_of_two(n - n / 2)
}

/// Computes ln x in binary64, to a relative error of about 4e-16. ln ±0 = -∞, x < 0 or NaN → NaN.
pub fn ln64(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return super::canonical64(f64::NAN);
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x == f64::INFINITY {
        return x;
    }
    let tiny = x < f64::MIN_POSITIVE;
    let bits = if tiny { x * power_of_two(54) } else { x }.to_bits();
    let exponent = bits.wrapping_sub(TWO_THIRDS) & 0xfff0_0000_0000_0000;
    let k = (exponent.cast_signed() >> 52) as f64 - if tiny { 54.0 } else { 0.0 };
    let f = f64::from_bits(bits.wrapping_sub(exponent)) - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let mut series = 0.0;
    let mut odd = 25.0;
    while odd >= 3.0 {
        series = (series + 2.0 / odd) * z;
        odd -= 2.0;
    }
    let half = 0.5 * f * f;
    k * LN2_HI - ((half - (s * (half + series) + k * LN2_LO)) - f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_as_accurate_as_stated() {
        for i in 0..200_000 {
            let x = -700.0 + 0.007 * f64::from(i);
            let (y, exact) = (exp64(x), libm::exp(x));
            assert!(((y - exact) / exact).abs() < 4e-16, "exp {x}: {y} for {exact}");
            let x = libm::exp(x) * (1.0 + f64::from(i % 977) / 977.0);
            let (y, exact) = (ln64(x), libm::log(x));
            assert!((y - exact).abs() <= 4e-16 * exact.abs(), "ln {x}: {y} for {exact}");
        }
    }

    #[test]
    fn special_cases() {
        assert_eq!((exp64(0.0), exp64(f64::INFINITY), exp64(f64::NEG_INFINITY)), (1.0, f64::INFINITY, 0.0));
        assert_eq!(
            (ln64(1.0).to_bits(), ln64(0.0), ln64(f64::INFINITY)),
            (0, f64::NEG_INFINITY, f64::INFINITY)
        );
        assert!(exp64(f64::NAN).is_nan() && ln64(-1.0).is_nan() && ln64(f64::NAN).is_nan());
        assert!(exp64(709.0).is_finite() && exp64(-745.0) > 0.0 && exp64(709.79).is_infinite());
        assert!((ln64(5e-324) - libm::log(5e-324)).abs() < 1e-12);
        assert!((exp64(-740.0) / libm::exp(-740.0) - 1.0).abs() < 1e-2, "subnormal: as fine as its spacing");
    }
}
