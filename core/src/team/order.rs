//! `f32` as integers of the same order, so that a largest element is an integer maximum.

/// Maps `x` to an integer that orders as the number does: −0 as +0, every NaN as one value above +∞.
/// [`LEAST`] stands for no number.
#[inline(always)]
pub fn ordered(x: f32) -> i32 {
    let order = signed_order(x + 0.0);
    if x.is_nan() { i32::MAX } else { order }
}

/// As [`ordered`], but with −0 below +0.
#[inline(always)]
pub fn signed_order(x: f32) -> i32 {
    let bits = x.to_bits().cast_signed();
    let order = bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed();
    if x.is_nan() { i32::MAX } else { order }
}

/// Inverse of [`ordered`].
#[inline(always)]
pub fn unordered(order: i32) -> f32 {
    f32::from_bits((order ^ ((order >> 31).cast_unsigned() >> 1).cast_signed()).cast_unsigned())
}

/// An integer below the image of every number.
pub const LEAST: i32 = i32::MIN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_as_numbers_do() {
        let rising = [f32::NEG_INFINITY, -1e30, -1.0, -1e-42, 0.0, 1e-42, 1.0, 1e30, f32::INFINITY];
        assert!(rising.windows(2).all(|w| ordered(w[0]) < ordered(w[1])));
        assert!(rising.iter().all(|x| unordered(ordered(*x)).to_bits() == x.to_bits()));
        assert_eq!(ordered(-0.0), ordered(0.0));
        assert!(signed_order(-1e-45) < signed_order(-0.0) && signed_order(-0.0) < signed_order(0.0));
        assert!(rising.windows(2).all(|w| signed_order(w[0]) < signed_order(w[1])));
        assert_eq!([f32::from_bits(u32::MAX), f32::NAN].map(signed_order), [i32::MAX; 2]);
        assert_eq!(ordered(f32::from_bits(u32::MAX)), ordered(f32::NAN));
        assert!(ordered(f32::NAN) > ordered(f32::INFINITY) && ordered(f32::NEG_INFINITY) > LEAST);
    }
}
