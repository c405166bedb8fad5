//! `v_div_scale`, `v_div_fmas`, `v_div_fixup`: the parts of IEEE division around the reciprocal and the fused
//! steps.
//!
//! They follow the pseudocode of AMD's CDNA3 and RDNA documents, where `x == DENORM` asks whether x is below
//! the normal numbers. Four places are read by their purpose. If the reciprocal and the quotient are both
//! too small, the documents scale the denominator by 2^+64 (2^+128), which overflows: here it is 2^-64, as
//! when only the reciprocal is too small. A quotient that rounds to 0 counts as below the normal numbers. And
//! a quotient that overflowed on its way, which the last step sees as ∞ or NaN, is ∞: the documents ask for
//! the exponent of the denominator there, which cannot be reached. `v_div_fmas` undoes what `v_div_scale`
//! did, 2^±64 (2^±128), in one rounding: the documents multiply by 2^32 (2^64) whatever was scaled. The
//! tests compare the whole sequence with division.

macro_rules! division {
    ($scale:ident, $fixup:ident, $float:ty, $bits:ty, $ldexp:path, $mantissa:literal, $full:literal,
        $by:literal, $near_max:literal, $tiny:literal, $under:literal) => {
        fn $fixup(quotient: $float, denominator: $float, numerator: $float) -> $bits {
            const QUIET: $bits = 1 << ($mantissa - 1);
            let exponent = |x: $float| (x.to_bits() >> $mantissa & $full) as i32;
            let sign = (denominator.to_bits() ^ numerator.to_bits()) & !(<$bits>::MAX >> 1);
            const INFINITY: $bits = <$float>::INFINITY.to_bits();
            if numerator.is_nan() {
                numerator.to_bits() | QUIET
            } else if denominator.is_nan() {
                denominator.to_bits() | QUIET
            } else if denominator == 0.0 && numerator == 0.0
                || denominator.is_infinite() && numerator.is_infinite()
            {
                !(<$bits>::MAX >> 1) | INFINITY | QUIET
            } else if denominator == 0.0 || numerator.is_infinite() {
                sign | INFINITY
            } else if denominator.is_infinite() || numerator == 0.0 {
                sign
            } else if exponent(numerator) - exponent(denominator) < -$under {
                // Rounded to nearest, an underflow is 0.
                sign
            } else if quotient.to_bits() >> $mantissa & $full == $full {
                sign | INFINITY
            } else {
                sign | quotient.abs().to_bits()
            }
        }

        fn $scale(scaled: $float, denominator: $float, numerator: $float) -> ($float, bool) {
            let exponent = |x: $float| (x.to_bits() >> $mantissa & $full) as i32;
            if numerator == 0.0 || denominator == 0.0 {
                return (<$float>::NAN, false);
            }
            let reciprocal_small = (1.0 / denominator).abs() < <$float>::MIN_POSITIVE;
            let quotient_small = (numerator / denominator).abs() < <$float>::MIN_POSITIVE;
            if exponent(numerator) - exponent(denominator) >= $near_max {
                // The quotient is large: only the denominator is scaled now, and the quotient afterwards.
                (if scaled == denominator { $ldexp(scaled, $by) } else { scaled }, true)
            } else if denominator.is_subnormal() {
                ($ldexp(scaled, $by), false)
            } else if reciprocal_small && quotient_small {
                (if scaled == denominator { $ldexp(scaled, -$by) } else { scaled }, true)
            } else if reciprocal_small {
                ($ldexp(scaled, -$by), false)
            } else if quotient_small {
                (if scaled == numerator { $ldexp(scaled, $by) } else { scaled }, true)
            } else if exponent(numerator) <= $tiny {
                ($ldexp(scaled, $by), false)
            } else {
                (scaled, false)
            }
        }
    };
}

division!(scale_32, fixup_32, f32, u32, super::number::ldexp32, 23, 0xff, 64, 96, 23, 150);
division!(scale_64, fixup_64, f64, u64, super::number::ldexp64, 52, 0x7ff, 128, 768, 53, 1075);

/// `v_div_scale_f32`: returns the scaled value, and whether `v_div_fmas` scales.
pub(super) fn scale32(scaled: u32, denominator: u32, numerator: u32) -> (u32, bool) {
    let [a, b, c] = [scaled, denominator, numerator].map(f32::from_bits);
    let (value, later) = scale_32(a, b, c);
    (if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() }, later)
}

/// `v_div_scale_f64`.
pub(super) fn scale64(scaled: u64, denominator: u64, numerator: u64) -> (u64, bool) {
    let [a, b, c] = [scaled, denominator, numerator].map(f64::from_bits);
    let (value, later) = scale_64(a, b, c);
    (if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() }, later)
}

/// `v_div_fixup_f32`.
pub(super) fn fixup32(quotient: u32, denominator: u32, numerator: u32) -> u32 {
    fixup_32(f32::from_bits(quotient), f32::from_bits(denominator), f32::from_bits(numerator))
}

/// `v_div_fixup_f64`.
pub(super) fn fixup64(quotient: u64, denominator: u64, numerator: u64) -> u64 {
    fixup_64(f64::from_bits(quotient), f64::from_bits(denominator), f64::from_bits(numerator))
}

/// `v_div_fmas_f32`: a fused step that also undoes the scaling of the quotient, in one rounding.
pub(super) fn fmas32(a: f32, b: f32, c: f32, scaled: bool) -> f32 {
    if !scaled {
        return a.mul_add(b, c);
    }
    let by = if c.to_bits() >> 23 & 0xff > 127 { 64 } else { -64 };
    // The product is exact in binary64. Rounding the sum to odd preserves what the second rounding needs.
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    if !sum.is_finite() {
        return sum as f32;
    }
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    super::number::ldexp64(to_odd(sum, error), by) as f32
}

/// Rounds a sum to odd: the last bit tells whether anything was lost.
fn to_odd(sum: f64, error: f64) -> f64 {
    if error == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    if (error > 0.0) == (sum > 0.0) {
        f64::from_bits(sum.to_bits() + 1)
    } else {
        f64::from_bits(sum.to_bits() - 1)
    }
}

/// `v_div_fmas_f64`.
pub(super) fn fmas64(a: f64, b: f64, c: f64, scaled: bool) -> f64 {
    let rounded = a.mul_add(b, c);
    if !scaled || !rounded.is_finite() || rounded == 0.0 {
        return rounded;
    }
    let by = if c.to_bits() >> 52 & 0x7ff > 1023 { 128 } else { -128 };
    let result = super::number::ldexp64(rounded, by);
    if !result.is_finite() {
        return result;
    }
    // A second rounding differs from the hardware's only at a tie that the first one created.
    let back = super::number::ldexp64(result, -by);
    let lost = rounded - back;
    if lost == 0.0 {
        return result;
    }
    let neighbour = f64::from_bits(if (lost > 0.0) == (rounded > 0.0) {
        result.to_bits() + 1
    } else {
        result.to_bits() - 1
    });
    let step = super::number::ldexp64(neighbour, -by) - back;
    let error = fma_error(a, b, c, rounded);
    if lost + lost == step && error != 0.0 && (error > 0.0) == (lost > 0.0) { neighbour } else { result }
}

/// Returns a number with the sign of what a fused step lost (Boldo and Muller, 2005).
fn fma_error(a: f64, b: f64, c: f64, rounded: f64) -> f64 {
    let two_sum = |x: f64, y: f64| {
        let sum = x + y;
        let part = sum - x;
        (sum, (x - (sum - part)) + (y - part))
    };
    let product = a * b;
    let low = a.mul_add(b, -product);
    let (high_c, low_c) = two_sum(c, low);
    let (high, middle) = two_sum(product, high_c);
    ((high - rounded) + middle) + low_c
}
