//! The hardware interface of a team: the lane index, moving words between lanes, and the memory that the
//! waves of a block share.

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
    /// Returns a word other than 0, which stands for the bytes of a mask that is absent. On NVIDIA no
    /// compiler knows more about it. With a constant they test a byte where it is loaded, which waits for
    /// memory.
    #[inline(always)]
    fn set(self) -> u32 {
        1
    }

    /// Whether several waves, a block, may own a row. All of them then call [`meet`](Wave::meet) together.
    const BLOCK: bool = false;
    /// Number of waves that own the row.
    #[inline(always)]
    fn waves(self) -> u32 {
        1
    }
    /// This wave's number among them.
    #[inline(always)]
    fn wave(self) -> u32 {
        0
    }
    /// Waits for the waves of the block, and makes earlier memory writes of all of them visible to all.
    #[inline(always)]
    fn meet(self) {
        self.settle();
    }
    /// Stores word `at` of the block's memory, below [`SHARED`].
    #[inline(always)]
    fn put(self, at: u32, word: u32) {
        let _ = (at, word);
    }
    /// Word `at` of the block's memory.
    #[inline(always)]
    fn get(self, at: u32) -> u32 {
        let _ = at;
        0
    }
    /// [`put`](Wave::put) of two words from an even place on.
    #[inline(always)]
    fn put64(self, at: u32, words: u64) {
        self.put(at, words as u32);
        self.put(at + 1, (words >> 32) as u32);
    }
    /// [`get`](Wave::get) of two words from an even place on.
    #[inline(always)]
    fn get64(self, at: u32) -> u64 {
        u64::from(self.get(at + 1)) << 32 | u64::from(self.get(at))
    }
}

/// Words of memory that the waves of a block share: what CUDA gives a block that does not ask for more.
pub const SHARED: u32 = 48 * 1024 / 4;
