//! Branch-free selections.

/// 1 if `condition` holds, else 0: a condition as a term of a sum.
#[inline(always)]
pub fn count(condition: bool) -> f32 {
    if condition { 1.0 } else { 0.0 }
}
