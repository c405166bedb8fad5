//! Reciprocal of a number from 1 to 2, without a division.
//!
//! Method: a quadratic polynomial (error below 1.17 %), two Newton steps, and a last one of third order, y + y·(e + e²) with
//! e = 1 - x·y: where the significand of x is all ones, the true result lies 2^-49 above the middle of two numbers, and e alone would stop at
//! the middle.
//!
//! Special cases: 1 → 1, 2 → 1/2. Arguments outside of [1, 2], NaN among them, give an unspecified number or NaN.
//!
//! Accuracy: correctly rounded, the bits of `1.0 / x` for every x in [1, 2] (all of them are tried by the test below).
//!
//! Why: AMD divides by an approximate reciprocal, on which the last bit of 1/x can hang (`docs/emulator.md`, gfx942). A CPU divides:
//! nine operations in its place made SAPO 8 % slower with AVX-512.

use super::Arith;

/// The polynomial whose relative error is that of the third Chebyshev polynomial, 0 at x = 2.
const P: [f32; 3] = [2.084_097_4, -1.399_519_1, 0.303_735_17];

/// 1/x for 1 ≤ x ≤ 2: by the division itself where the processor's is exact.
#[inline(always)]
pub fn reciprocal<A: Arith>(x: f32) -> f32 {
    if cfg!(target_arch = "amdgpu") { steps::<A>(x) } else { 1.0 / x }
}

#[inline(always)]
fn steps<A: Arith>(x: f32) -> f32 {
    let y = A::fma(A::fma(P[2], x, P[1]), x, P[0]);
    let y = A::fma(y, A::fma(-x, y, 1.0), y);
    let y = A::fma(y, A::fma(-x, y, 1.0), y);
    let e = A::fma(-x, y, 1.0);
    A::fma(y, A::fma(e, e, e), y)
}

#[cfg(test)]
mod tests {
    use super::super::Soft;
    use super::*;

    #[test]
    fn every_number_from_1_to_2_is_divided_exactly() {
        for bits in 1.0f32.to_bits()..=2.0f32.to_bits() {
            let x = f32::from_bits(bits);
            assert_eq!(steps::<Soft>(x).to_bits(), (1.0 / x).to_bits(), "1/{x}");
        }
    }
}
