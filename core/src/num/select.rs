//! Small selections that results pass through on their way out.

/// 1 or 0: a condition as a term of a sum.
#[inline(always)]
pub fn count(condition: bool) -> f32 {
    if condition { 1.0 } else { 0.0 }
}
