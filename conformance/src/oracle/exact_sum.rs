//! Digits of exact sums, examining each value bit by bit.

/// Sums of the digits (base 2²⁴, units of 2⁻¹⁰⁸⁸, with the value's sign) from number `first` on, followed by
/// the counts of values that are finite, NaN, +∞ and −∞.
pub fn planes(values: &[f64], first: usize, digits: usize) -> Vec<i64> {
    let mut planes = vec![0; digits + 4];
    for x in values {
        let class = match x {
            x if x.is_nan() => 1,
            x if *x == f64::INFINITY => 2,
            x if *x == f64::NEG_INFINITY => 3,
            _ => 0,
        };
        planes[digits + class] += 1;
        if class > 0 {
            continue;
        }
        let sign = if x.is_sign_negative() { -1 } else { 1 };
        let stored = x.to_bits() % (1 << 63);
        let (exponent, fraction) = (stored / (1 << 52), stored % (1 << 52));
        // The value is mantissa · 2^(scale − 1074).
        let (mantissa, scale) = match exponent {
            0 => (fraction, 0),
            e => (fraction + (1 << 52), e - 1),
        };
        for bit in 0..53 {
            let position = bit + scale as usize + 1088 - 1074;
            let here = (mantissa / (1 << bit) % 2) as i64 * (1 << (position % 24));
            let digit = position / 24;
            if here != 0 {
                assert!((first..first + digits).contains(&digit), "{x:e} has a bit in digit {digit}");
                planes[digit - first] += sign * here;
            }
        }
    }
    planes
}
