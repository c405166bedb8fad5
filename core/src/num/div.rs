//! Division, correctly rounded on every machine. Kernels divide with these, never with `/`
//! (`cargo xtask divisions`).
//!
//! Everywhere but on AMD it is the machine's `a / b`. There the last bit of LLVM's quotient may rest on how
//! the hardware rounds a reciprocal (`num/settle.rs`), so a binary64 quotient is settled by its remainder,
//! and a binary32 one is divided in binary64 and rounded again: quotients of 24 digits over 24 are exact
//! there or 2^-49 away from a tie, so neither rounding can be wrong.

/// a / b, rounded once.
#[inline(always)]
pub fn div(a: f32, b: f32) -> f32 {
    if cfg!(target_arch = "amdgpu") {
        // Doubled: LLVM knows the theorem too, and would make a binary32 division of it.
        (2.0 * f64::from(a) / (2.0 * f64::from(b))) as f32
    } else {
        a / b
    }
}

/// a / b in binary64, rounded once.
#[inline(always)]
pub fn div64(a: f64, b: f64) -> f64 {
    #[cfg(target_arch = "amdgpu")]
    return super::settle::quotient(a, b, a / b);
    #[cfg(not(target_arch = "amdgpu"))]
    return a / b;
}
