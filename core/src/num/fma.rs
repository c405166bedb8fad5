//! Fused multiply-add, `fma(a, b, c)` = a·b + c with one rounding.
//!
//! Method: [`Arith::fma`]; NaN results are made canonical.
//!
//! Special cases: 0·∞ and ∞ - ∞ give the canonical NaN; an exact zero has the sign IEEE-754 gives the sum.
//!
//! Accuracy: correctly rounded (0.5 ULP). `Soft` equals `Hard` and `libm::fmaf`:
//! `cargo run --release -p lockstep-core --features std --example exhaustive -- fma`.
//!
//! Why: explicit, so that no compiler decides where a product is contracted.

use super::{Arith, nan::canonical};

/// a·b + c with one rounding.
#[inline(always)]
pub fn fma<A: Arith>(a: f32, b: f32, c: f32) -> f32 {
    canonical(A::fma(a, b, c))
}
