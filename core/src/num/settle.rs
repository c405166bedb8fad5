//! Binary64 quotients and square roots on AMD, corrected by their exact remainders.
//!
//! LLVM computes both from an approximation and fused steps. The result is correctly rounded unless the exact
//! value lies just above a tie: then the approximation decides, and with some approximations that the manual
//! allows the result is one unit too small (docs/emulator.md, "Division"). The remainder tells which: it is
//! exact, and so is the sign of what remains after subtracting a further half unit.
//!
//! This holds if nothing underflows: for numerators, radicands and results of at least 2^-900. Smaller
//! results are left unchanged.

#[cfg(target_arch = "amdgpu")]
use core::f64::math::mul_add;
#[cfg(not(target_arch = "amdgpu"))]
use libm::fma as mul_add;

/// a / b, given a `quotient` that is correct or one unit too small in magnitude.
#[inline(always)]
pub(super) fn quotient(a: f64, b: f64, quotient: f64) -> f64 {
    let rest = mul_add(-quotient.abs(), b.abs(), a.abs());
    settle(quotient, rest, b.abs())
}

/// √x, given a `root` that is correct or one unit too small.
#[inline(always)]
pub(super) fn root(x: f64, root: f64) -> f64 {
    // A further half unit takes root·unit and a quarter of unit². The remainder is a multiple of unit², so
    // the quarter does not affect the comparison.
    let rest = mul_add(-root, root, x);
    settle(root, rest, 2.0 * root)
}

/// The next number in magnitude, if half a unit of `value` times `slope` is less than `rest`.
#[inline(always)]
fn settle(value: f64, rest: f64, slope: f64) -> f64 {
    // For the smallest values, more than half a unit, so that they are left unchanged. A remainder that
    // underflowed contributes at most 0 in the end.
    let (half, least) = (((value.to_bits() >> 32) as i32 & 0x7ff0_0000) - (53 << 20), 1 << 20);
    let half = f64::from_bits(((if half > least { half } else { least }) as u64) << 32);
    f64::from_bits(value.to_bits() + u64::from(mul_add(-half, slope, rest) > 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(i: u64) -> u64 {
        let mut z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Any bit pattern, a power of two, near one from either side, subnormal, of moderate exponent, special.
    fn pattern(i: u64) -> f64 {
        const FRACTION: u64 = (1 << 52) - 1;
        let z = hash(i);
        f64::from_bits(match z >> 40 & 7 {
            0 => z & !FRACTION,
            1 => (z | FRACTION) - (hash(z) & 0xff),
            2 => z & !FRACTION | hash(z) & 0xff,
            3 => z & (FRACTION | 1 << 63),
            4 => z & 0x800f_ffff_ffff_ffff | 0x3ff0_0000_0000_0000,
            5 => z & 0x80ff_ffff_ffff_ffff,
            6 => [
                0,
                1,
                f64::INFINITY.to_bits(),
                f64::MAX.to_bits(),
                f64::MIN_POSITIVE.to_bits(),
                f64::NAN.to_bits(),
            ][(z % 6) as usize],
            _ => z,
        })
    }

    /// A correct result is always kept; a result one unit too small is corrected within the promised range.
    fn held(name: &str, result: impl Fn(u64) -> (f64, f64, f64), settled: impl Fn(f64, f64, f64) -> f64) {
        const LEAST: f64 = f64::from_bits((1023 - 900) << 52);
        let mut raised = 0;
        for i in 0..1_000_000 {
            let (a, b, right) = result(i);
            if right.is_nan() {
                assert!(settled(a, b, right).is_nan(), "{name} {a:e} {b:e}");
                continue;
            }
            assert_eq!(settled(a, b, right).to_bits(), right.to_bits(), "{name} {a:e} {b:e}");
            let less = f64::from_bits(right.to_bits().wrapping_sub(1));
            if a.is_finite() && right.is_finite() && a.abs() >= LEAST && less.abs() >= LEAST {
                assert_eq!(settled(a, b, less).to_bits(), right.to_bits(), "{name} {a:e} {b:e}, from below");
                raised += 1;
            }
        }
        assert!(raised > 200_000, "{name}: {raised}");
    }

    #[test]
    fn quotients() {
        let draw = |i| (pattern(2 * i), pattern(2 * i + 1));
        held("/", |i| (draw(i).0, draw(i).1, draw(i).0 / draw(i).1), quotient);
    }

    #[test]
    fn roots() {
        let draw = |i| if i % 8 == 0 { pattern(i) } else { pattern(i).abs() };
        held("√", |i| (draw(i), 0.0, libm::sqrt(draw(i))), |x, _, value| root(x, value));
    }
}
