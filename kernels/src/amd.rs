//! A wave of AMD's CDNA: 64 lanes.

use crate::entry::Own;
use crate::wave::Wave;
use core::sync::atomic::{Ordering, compiler_fence};

#[allow(unsafe_code)]
unsafe extern "C" {
    #[link_name = "llvm.amdgcn.workitem.id.x"]
    safe fn workitem_x() -> u32;
    #[link_name = "llvm.amdgcn.workgroup.id.x"]
    safe fn workgroup_x() -> u32;
    #[link_name = "llvm.amdgcn.workgroup.id.y"]
    safe fn workgroup_y() -> u32;
    #[link_name = "llvm.amdgcn.ds.bpermute"]
    fn bpermute(address: u32, word: u32) -> u32;
    #[link_name = "llvm.amdgcn.readfirstlane.i32"]
    fn readfirstlane(word: u32) -> u32;
    #[link_name = "llvm.amdgcn.ballot.i64"]
    fn ballot(condition: bool) -> u64;
    #[link_name = "llvm.amdgcn.wave.barrier"]
    fn wave_barrier();
}

/// This thread's wave. A workgroup is one wave, so its row is the workgroup's, a scalar.
#[derive(Clone, Copy)]
pub(crate) struct Warp;

impl Own for Warp {
    /// A wave computes one row. In a loop over rows LLVM keeps everything that does not depend on the row in
    /// scalar registers: the kernels with metrics spilled up to 32 of them, and the smallest kernels needed
    /// 50 % more vector registers.
    const ONE_ROW: bool = true;

    #[inline(always)]
    fn own() -> Self {
        Warp
    }

    /// The row of this wave, in a grid that is `teams` workgroups wide.
    #[inline(always)]
    fn first_row(teams: u32) -> usize {
        workgroup_y() as usize * teams as usize + workgroup_x() as usize
    }
}

#[allow(unsafe_code)]
impl Wave for Warp {
    const WIDTH: usize = 64;

    #[inline(always)]
    fn lane(self) -> usize {
        workitem_x() as usize
    }

    #[inline(always)]
    fn xor(self, word: u32, mask: u32) -> u32 {
        self.read(word, workitem_x() ^ mask)
    }

    #[inline(always)]
    fn read(self, word: u32, from: u32) -> u32 {
        // SAFETY: all lanes call this together (Wave's contract); an address is four times a lane.
        unsafe { bpermute(from * 4, word) }
    }

    #[inline(always)]
    fn first(self, word: u32) -> u32 {
        // SAFETY: as above.
        unsafe { readfirstlane(word) }
    }

    #[inline(always)]
    fn votes(self, condition: bool) -> u32 {
        // SAFETY: as above.
        unsafe { ballot(condition) as u32 }
    }

    /// No instruction: the memory accesses of a wave happen in order (LLVM's memory model for gfx942,
    /// wavefront fences), so only the compiler has to be kept from reordering them.
    #[inline(always)]
    fn settle(self) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: all lanes call this together (Wave's contract).
        unsafe { wave_barrier() }
        compiler_fence(Ordering::SeqCst);
    }
}
