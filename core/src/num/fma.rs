//! Fused multiply-add, `fma(a, b, c)` = a·b + c with one rounding.
//!
//! Method: [`Arith::fma`]; NaN results are made canonical.
//!
//! Special cases: 0·∞ and ∞ - ∞ give the canonical NaN; an exact zero has the sign that IEEE-754 specifies
//! for the sum.
//!
//! Accuracy: correctly rounded (0.5 ULP). `Soft` equals `Hard` and `libm::fmaf`:
//! `cargo run --release -p lockstep-core --features std --example exhaustive -- fma`.
//!
//! Why: explicit calls, so that no compiler decides which products are contracted.

use super::{Arith, nan::canonical};

/// Computes a·b + c with one rounding. NaN results are canonical.
#[inline(always)]
pub fn fma<A: Arith>(a: f32, b: f32, c: f32) -> f32 {
    canonical(A::fma(a, b, c))
}
