//! Branch-free selections.

/// Whether this is code for a GPU.
pub(super) const GPU: bool = cfg!(any(target_arch = "nvptx64", target_arch = "amdgpu"));

/// `yes` if `condition` holds, else `no`, without a branch.
///
/// For a GPU, LLVM makes a branch of the plain condition around an exponential, and the four elements of a
/// lane wait for each other. A vector loop is faster with the plain condition.
#[inline(always)]
pub(crate) fn select(condition: bool, yes: f32, no: f32) -> f32 {
    if GPU {
        return core::hint::select_unpredictable(condition, yes, no);
    }
    if condition { yes } else { no }
}

/// 1 if `condition` holds, else 0: a condition as a term of a sum.
#[inline(always)]
pub fn count(condition: bool) -> f32 {
    if condition { 1.0 } else { 0.0 }
}
