//! Division, correctly rounded on every machine.
//!
//! Everywhere but on AMD it is the machine's `a / b`. AMD has no such instruction: LLVM makes a quotient of an approximate
//! reciprocal and fused steps, and those cannot tell a quotient from a tie that it lies above by less than 2^-52 of its last
//! bit. Such quotients exist for divisors just below a power of two alone (docs/emulator.md, "Division"). So there such a divisor,
//! one in 2^20, takes the slow way: digit by digit, in integers.
//!
//! Kernels divide with these, never with `/` (`cargo xtask divisions`).

macro_rules! division {
    ($name:ident, $by_digits:ident, $float:ty, $bits:ty, $near:literal, $doc:literal) => {
        #[doc = $doc]
        #[inline(always)]
        pub fn $name(a: $float, b: $float) -> $float {
            let quotient = a / b;
            #[cfg(target_arch = "amdgpu")]
            if b.to_bits() & $near == $near {
                return $by_digits(a, b).unwrap_or(quotient);
            }
            quotient
        }

        /// The quotient of numbers that are neither zero, infinite nor NaN.
        #[cfg(any(target_arch = "amdgpu", test))]
        #[inline(always)]
        fn $by_digits(a: $float, b: $float) -> Option<$float> {
            const DIGITS: i32 = <$float>::MANTISSA_DIGITS as i32;
            const HIDDEN: $bits = 1 << (DIGITS - 1);
            const SIGN: $bits = !(<$bits>::MAX >> 1);
            const INFINITY: $bits = <$float>::INFINITY.to_bits();
            // An integer of all digits, and the exponent that goes with it.
            let parts = |x: $bits| {
                let short = x.leading_zeros() as i32 - (<$bits>::BITS as i32 - DIGITS);
                if x < HIDDEN {
                    (x << short, 1 - short)
                } else {
                    (x & (HIDDEN - 1) | HIDDEN, (x >> (DIGITS - 1)) as i32)
                }
            };
            let (x, y) = (a.to_bits() & !SIGN, b.to_bits() & !SIGN);
            if x == 0 || x >= INFINITY || y == 0 || y >= INFINITY {
                return None;
            }
            let ((mut rest, above), (divisor, below)) = (parts(x), parts(y));
            let mut exponent = above - below + <$float>::MAX_EXP - 1;
            // From here on 1 ≤ rest / divisor < 2.
            if rest < divisor {
                rest <<= 1;
                exponent -= 1;
            }
            let sign = (a.to_bits() ^ b.to_bits()) & SIGN;
            if exponent >= 2 * <$float>::MAX_EXP - 1 {
                return Some(<$float>::from_bits(sign | INFINITY));
            }
            // A subnormal quotient has fewer digits; with -1 it is below half of the least.
            let fewer = if exponent < 1 { 1 - exponent } else { 0 };
            if fewer > DIGITS {
                return Some(<$float>::from_bits(sign));
            }
            let mut quotient: $bits = 0;
            for _ in 0..DIGITS - fewer {
                let one = rest >= divisor;
                quotient = quotient << 1 | <$bits>::from(one);
                rest = (rest - if one { divisor } else { 0 }) << 1;
            }
            // What is left, twice: more than half a unit, or a tie.
            let up = rest > divisor || rest == divisor && quotient & 1 == 1;
            quotient += <$bits>::from(up);
            let binade = ((exponent + fewer - 1) as $bits) << (DIGITS - 1);
            Some(<$float>::from_bits(sign | (binade + quotient)))
        }
    };
}

division!(div, by_digits, f32, u32, 0x007f_fff8, "a / b, rounded once.");
division!(div64, by_digits64, f64, u64, 0x000f_ffff_0000_0000, "a / b in binary64, rounded once.");

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that the hash of `i` makes: any pattern, one of a few exponents, one of few digits, near a power of two, subnormal.
    fn pattern(i: u64, digits: u32) -> u64 {
        let mut z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let fraction = (1u64 << (digits - 1)) - 1;
        let below = (z >> 3) % 300;
        match z % 8 {
            0 => z & !fraction,
            1 => z | fraction,
            2 => z | fraction & !(z >> 40),
            3 => (z & !fraction) + fraction - below,
            4 => (z & !fraction) + below,
            5 => z & (fraction | 1 << 63) & u64::MAX >> (z >> 58),
            _ => z,
        }
    }

    #[test]
    fn digits_give_the_bits_of_the_machine() {
        for i in 0..400_000u64 {
            let (x, y) = (f64::from_bits(pattern(2 * i, 53)), f64::from_bits(pattern(2 * i + 1, 53)));
            if let Some(quotient) = by_digits64(x, y) {
                assert_eq!(quotient.to_bits(), div64(x, y).to_bits(), "{x:e} / {y:e}");
            } else {
                assert!(x == 0.0 || !x.is_finite() || y == 0.0 || !y.is_finite(), "{x:e} / {y:e}");
            }
            let single =
                |i| f32::from_bits((pattern(i, 24) as u32) ^ (pattern(i, 24) >> 32) as u32 & 1 << 31);
            for (x, y) in [
                (single(2 * i), single(2 * i + 1)),
                (
                    f32::from_bits((pattern(2 * i, 53) >> 32) as u32),
                    f32::from_bits((pattern(2 * i + 1, 53) >> 32) as u32),
                ),
            ] {
                if let Some(quotient) = by_digits(x, y) {
                    assert_eq!(quotient.to_bits(), div(x, y).to_bits(), "{x:e} / {y:e}");
                } else {
                    assert!(x == 0.0 || !x.is_finite() || y == 0.0 || !y.is_finite(), "{x:e} / {y:e}");
                }
            }
        }
    }

    /// Quotients that end at the edges: of the subnormal numbers, of the range, of half the least number.
    #[test]
    fn digits_at_the_edges() {
        let near = |x: f64| {
            let bits = x.to_bits();
            [bits.wrapping_sub(2), bits.wrapping_sub(1), bits, bits + 1, bits + 2, bits + 3]
                .map(f64::from_bits)
        };
        let powers = [-1074, -1073, -1024, -1023, -1022, -1021, -970, -53, -1, 0, 1, 52, 970, 1022, 1023];
        let all = powers.map(|n| {
            if n < -1022 {
                f64::from_bits(1 << (n + 1074))
            } else {
                f64::from_bits(((n + 1023) as u64) << 52)
            }
        });
        for x in all.iter().flat_map(|x| near(*x)) {
            for y in all.iter().flat_map(|y| near(*y)) {
                if let Some(quotient) = by_digits64(x, y) {
                    assert_eq!(quotient.to_bits(), (x / y).to_bits(), "{x:e} / {y:e}");
                }
            }
        }
        let powers = [-149, -148, -128, -127, -126, -125, -100, -24, -1, 0, 1, 23, 100, 126, 127];
        let all = powers.map(|n| if n < -126 { 1u32 << (n + 149) } else { ((n + 127) as u32) << 23 });
        let near = |bits: u32| [bits.wrapping_sub(1), bits, bits + 1, bits + 2].map(f32::from_bits);
        for x in all.iter().flat_map(|x| near(*x)) {
            for y in all.iter().flat_map(|y| near(*y)) {
                if let Some(quotient) = by_digits(x, y) {
                    assert_eq!(quotient.to_bits(), (x / y).to_bits(), "{x:e} / {y:e}");
                }
            }
        }
    }
}
