//! The hardware interface of a team: the lane index, and moving words between lanes.

/// The threads that own a row: a warp of 32 on NVIDIA, a wave of 64 on AMD.
///
/// All lanes of a wave call each method together; a team never calls one under a condition on the lane.
pub trait Wave: Copy {
    /// Number of lanes, 32 or 64.
    const WIDTH: usize;
    /// This thread's lane, below [`WIDTH`](Wave::WIDTH).
    fn lane(self) -> usize;
    /// Returns `word` of lane `lane ^ mask`.
    fn xor(self, word: u32, mask: u32) -> u32;
    /// Returns `word` of lane `from`, which may differ between lanes.
    fn read(self, word: u32, from: u32) -> u32;
    /// Returns `word` of the first lane, as a value that the compiler knows to be uniform.
    fn first(self, word: u32) -> u32;
    /// Returns the lanes below 32 for which `condition` holds, as bits.
    fn votes(self, condition: bool) -> u32;
    /// The larger of two numbers, as [`num::max`](lockstep_core::num::max); a NaN may be any.
    #[inline(always)]
    fn larger(self, a: f32, b: f32) -> f32 {
        lockstep_core::num::max(a, b)
    }
    /// Makes earlier memory writes of all lanes visible to all lanes.
    fn settle(self);
}
