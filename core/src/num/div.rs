//! Division, correctly rounded on every machine. Kernels divide with these functions, never with `/` (checked
//! by `cargo xtask divisions`).
//!
//! On every target but AMD this is the machine's `a / b`. On AMD the last bit of LLVM's quotient may depend
//! on how the hardware rounds a reciprocal (`num/settle.rs`), so a binary64 quotient is corrected by its
//! remainder, and a binary32 one is divided in binary64 and rounded again: the quotient of two 24-bit numbers
//! is either exact there or at least 2^-49 away from a tie, so neither rounding can be wrong.

use super::{Arith, select::GPU};

/// Computes a / b in binary32, rounded once.
#[inline(always)]
pub fn div(a: f32, b: f32) -> f32 {
    if cfg!(target_arch = "amdgpu") {
        // Both operands are doubled because LLVM knows this theorem too and would otherwise emit a binary32
        // division.
        (2.0 * f64::from(a) / (2.0 * f64::from(b))) as f32
    } else {
        a / b
    }
}

/// Computes a / b in binary64, rounded once.
#[inline(always)]
pub fn div64(a: f64, b: f64) -> f64 {
    #[cfg(target_arch = "amdgpu")]
    return super::settle::quotient(a, b, a / b);
    #[cfg(not(target_arch = "amdgpu"))]
    return a / b;
}

/// The starting value of [`reciprocal`]: a cubic for 1/x with an error of at most 0.0039.
const START: [f32; 4] = [
    f32::from_bits(0x4035_6542), // 2.83430529
    f32::from_bits(0xc03c_8253), // -2.94545436
    f32::from_bits(0x3faa_b9a7), // 1.33379066
    f32::from_bits(0xbe63_a234), // -0.222298443
];

/// Computes 1 / x, rounded once, for 1 <= x <= 2: the bits of [`div`], on a GPU without a branch, a special
/// unit or binary64.
#[inline(always)]
pub(crate) fn reciprocal<A: Arith>(x: f32) -> f32 {
    if GPU { iterated::<A>(x) } else { div(1.0, x) }
}

/// Two corrections by the remainder 1 - x·y, which is exact in the second. The first, of third order, ends
/// within a unit of 1/x, and from there the second rounds correctly, except where all bits of x are set:
/// there it does from above. The test below tries every x, and fails with [`START`] of the least error.
#[inline(always)]
fn iterated<A: Arith>(x: f32) -> f32 {
    let y = A::fma(START[3], x, START[2]);
    let y = A::fma(y, x, START[1]);
    let y = A::fma(y, x, START[0]);
    let rest = A::fma(-x, y, 1.0);
    let y = A::fma(y, A::fma(rest, rest, rest), y);
    A::fma(y, A::fma(-x, y, 1.0), y)
}

#[cfg(test)]
mod tests {
    use super::super::Soft;
    use super::*;

    fn reciprocals(step: usize) {
        for bits in (1.0_f32.to_bits()..=2.0_f32.to_bits()).step_by(step) {
            let x = f32::from_bits(bits);
            assert_eq!(iterated::<Soft>(x).to_bits(), (1.0 / x).to_bits(), "1 / {x}");
        }
    }

    #[test]
    fn reciprocals_from_1_to_2() {
        reciprocals(1);
    }

    /// Quick enough to run for every mutant.
    #[test]
    fn some_reciprocals() {
        reciprocals(61);
    }
}
