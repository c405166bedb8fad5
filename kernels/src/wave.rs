//! What a team asks of the hardware: to know its lane, and to move words between lanes.

/// The threads that own a row: a warp of 32 on NVIDIA, a wave of 64 on AMD.
///
/// All lanes of a wave call each method together; a team calls none of them inside a condition on a lane.
pub trait Wave: Copy {
    /// Number of lanes, 32 or 64.
    const WIDTH: usize;
    /// This thread's lane, below [`WIDTH`](Wave::WIDTH).
    fn lane(self) -> usize;
    /// `word` of lane `lane ^ mask`.
    fn xor(self, word: u32, mask: u32) -> u32;
    /// `word` of lane `from`, which may differ between lanes.
    fn read(self, word: u32, from: u32) -> u32;
    /// `word` of the first lane, as a value that the compiler knows to be the same in all.
    fn first(self, word: u32) -> u32;
    /// What any lane wrote to memory before, all lanes read after.
    fn settle(self);
}
