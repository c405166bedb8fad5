//! An NVIDIA warp.

use crate::wave::Wave;

/// All 32 lanes take part in a shuffle.
const ALL: u32 = u32::MAX;

// Intrinsics rather than inline assembly: LLVM moved an `asm!` shuffle into a branch on a lane, while these
// are convergent (docs/decisions/0005-gpu-launch.md).
#[allow(unsafe_code)]
unsafe extern "C" {
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.x"]
    safe fn tid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.y"]
    safe fn tid_y() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.y"]
    safe fn ntid_y() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.x"]
    safe fn ctaid_x() -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shfl_bfly(members: u32, word: u32, mask: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_idx(members: u32, word: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot(members: u32, condition: bool) -> u32;
    #[link_name = "llvm.nvvm.fmax.nan.f"]
    safe fn fmax_nan(a: f32, b: f32) -> f32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(members: u32);
}

/// This thread's warp: blocks are 32 × n threads, so a warp is one value of `tid.y`.
#[derive(Clone, Copy)]
pub(crate) struct Warp;

impl Warp {
    /// A warp computes several rows, one after the other.
    pub(crate) const ONE_ROW: bool = false;

    /// The first row of this warp: its index in the grid.
    #[inline(always)]
    pub(crate) fn first_row(_teams: u32) -> usize {
        (ctaid_x() * ntid_y() + tid_y()) as usize
    }
}

#[allow(unsafe_code)]
impl Wave for Warp {
    const WIDTH: usize = 32;

    #[inline(always)]
    fn lane(self) -> usize {
        tid_x() as usize
    }

    #[inline(always)]
    fn xor(self, word: u32, mask: u32) -> u32 {
        // SAFETY: all lanes call this together (Wave's contract).
        unsafe { shfl_bfly(ALL, word, mask, 31) }
    }

    #[inline(always)]
    fn read(self, word: u32, from: u32) -> u32 {
        // SAFETY: as above.
        unsafe { shfl_idx(ALL, word, from, 31) }
    }

    #[inline(always)]
    fn first(self, word: u32) -> u32 {
        // After a butterfly all lanes agree already. The shuffle makes that visible to the PTX check: a row
        // program may branch on a sum.
        self.read(word, 0)
    }

    #[inline(always)]
    fn votes(self, condition: bool) -> u32 {
        // SAFETY: as above.
        unsafe { vote_ballot(ALL, condition) }
    }

    #[inline(always)]
    fn larger(self, a: f32, b: f32) -> f32 {
        fmax_nan(a, b)
    }

    #[inline(always)]
    fn settle(self) {
        // SAFETY: as above. It orders memory accesses between the participating lanes.
        unsafe { bar_warp_sync(ALL) }
    }
}
