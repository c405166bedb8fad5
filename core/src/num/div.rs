//! Division, correctly rounded on every machine. Kernels divide with these functions, never with `/` (checked
//! by `cargo xtask divisions`).
//!
//! On every target but AMD this is the machine's `a / b`. On AMD the last bit of LLVM's quotient may depend
//! on how the hardware rounds a reciprocal (`num/settle.rs`), so a binary64 quotient is corrected by its
//! remainder, and a binary32 one is divided in binary64 and rounded again: the quotient of two 24-bit numbers
//! is either exact there or at least 2^-49 away from a tie, so neither rounding can be wrong.

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
