//! Division, correctly rounded on every machine.
//!
//! Everywhere but on AMD it is the machine's `a / b`. AMD has no such instruction: LLVM makes a quotient of an approximate
//! reciprocal and fused steps. That is the correctly rounded one but where the exact quotient lies above a tie by 2^-53 of its
//! last bit or less: then the reciprocal decides, and with some that the manual allows the result is one unit too small
//! (docs/emulator.md, "Division"). So there:
//!
//! * binary32: divided in binary64 and rounded again. Quotients of 24 digits over 24 are exact or 2^-49 away from a tie, so
//!   neither rounding can be wrong.
//! * binary64: what is left of a, exactly, after a quotient of half a unit more says whether the quotient is one unit too small.
//!   This holds for |a| and quotients from 2^-900 on; smaller ones stay as they are.
//!
//! Kernels divide with these, never with `/` (`cargo xtask divisions`).

/// a / b, rounded once.
#[inline(always)]
pub fn div(a: f32, b: f32) -> f32 {
    if cfg!(target_arch = "amdgpu") {
        // Doubled: LLVM knows the theorem too, and makes a binary32 division of a rounded quotient of extended numbers.
        (2.0 * f64::from(a) / (2.0 * f64::from(b))) as f32
    } else {
        a / b
    }
}

/// a / b in binary64, rounded once.
#[inline(always)]
pub fn div64(a: f64, b: f64) -> f64 {
    #[cfg(target_arch = "amdgpu")]
    return settled(a, b, a / b);
    #[cfg(not(target_arch = "amdgpu"))]
    return a / b;
}

/// a / b of a quotient that is a / b or one unit less in magnitude.
#[cfg(any(target_arch = "amdgpu", test))]
#[inline(always)]
fn settled(a: f64, b: f64, quotient: f64) -> f64 {
    #[cfg(target_arch = "amdgpu")]
    use core::f64::math::mul_add;
    #[cfg(not(target_arch = "amdgpu"))]
    use libm::fma as mul_add;
    // Exact, if nothing underflows.
    let rest = mul_add(-quotient.abs(), b.abs(), a.abs());
    // Half a unit of the quotient; more than that for the least quotients, which stay. What underflows is no more than 0 in the end.
    let exponent = (quotient.to_bits() >> 32) as i32 & 0x7ff0_0000;
    let (half, least) = (exponent - (53 << 20), 1 << 20);
    let half = f64::from_bits(((if half > least { half } else { least }) as u64) << 32);
    let small = mul_add(-half, b.abs(), rest) > 0.0;
    f64::from_bits(quotient.to_bits() + u64::from(small))
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

    /// Any pattern, a power of two, near one from either side, subnormal, of a moderate exponent, special.
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
            6 => [0, 1, 0x7ff0_0000_0000_0000, 0x7fef_ffff_ffff_ffff, 0x0010_0000_0000_0000, 0x7ff8_0000_0000_0000]
                [(z % 6) as usize],
            _ => z,
        })
    }

    #[test]
    fn a_right_quotient_stays_and_one_that_is_a_unit_small_is_raised() {
        let mut raised = 0;
        for i in 0..1_000_000 {
            let (a, b) = (pattern(2 * i), pattern(2 * i + 1));
            let right = a / b;
            if right.is_nan() {
                assert!(settled(a, b, right).is_nan(), "{a:e} / {b:e}");
                continue;
            }
            assert_eq!(settled(a, b, right).to_bits(), right.to_bits(), "{a:e} / {b:e}");
            let promised = a.is_finite() && a.abs() >= 2f64.powi(-900);
            let less = f64::from_bits(right.to_bits().wrapping_sub(1));
            if promised && right.is_normal() && less.abs() >= 2f64.powi(-1022 + 53) {
                assert_eq!(settled(a, b, less).to_bits(), right.to_bits(), "{a:e} / {b:e}, from below");
                raised += 1;
            }
        }
        assert!(raised > 200_000, "{raised}");
    }
}
