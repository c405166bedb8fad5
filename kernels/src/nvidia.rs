//! An NVIDIA warp.

use crate::entry::Own;
use crate::wave::{SHARED, Wave};
use core::arch::asm;
use core::hint::select_unpredictable;
use lockstep_core::num::{Arith, Hard};

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
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    fn barrier(number: u32);
}

/// [`Hard`], with bounds in one instruction: LLVM takes a comparison and a selection, for it cannot know that
/// either of two zeros will do.
#[derive(Clone, Copy)]
pub(crate) struct Thread;

impl Arith for Thread {
    const BOUNDS: bool = true;

    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        Hard::fma(a, b, c)
    }

    #[inline(always)]
    fn sqrt(x: f32) -> f32 {
        Hard::sqrt(x)
    }

    #[inline(always)]
    fn sqrt64(x: f64) -> f64 {
        Hard::sqrt64(x)
    }

    #[inline(always)]
    fn at_least(x: f32, low: f32) -> f32 {
        fmax_nan(x, low)
    }

    #[inline(always)]
    fn at_most(x: f32, high: f32) -> f32 {
        // The signs are operands' modifiers.
        -fmax_nan(-x, -high)
    }

    #[inline(always)]
    fn choose(condition: bool, yes: f32, no: f32) -> f32 {
        // LLVM would bound by each of the two, and select one of the results.
        select_unpredictable(condition, yes, no)
    }
}

/// This thread's warp: blocks are 32 × n threads, so a warp is one value of `tid.y`. The warps of a `BLOCK`
/// own a row together.
#[derive(Clone, Copy)]
pub(crate) struct Warp<const BLOCK: bool = false> {
    /// Where the block's memory is.
    shared: u32,
}

impl<const BLOCK: bool> Own for Warp<BLOCK> {
    /// A warp or block computes several rows, one after the other.
    const ONE_ROW: bool = false;

    #[inline(always)]
    #[allow(unsafe_code)]
    fn own() -> Self {
        let mut shared = 0;
        if BLOCK {
            // SAFETY: declares memory and takes its address. Rust has no type for this memory.
            unsafe {
                asm!(
                    "{{ .shared .align 16 .b8 lockstep_shared[{bytes}]; mov.u32 {at}, lockstep_shared; }}",
                    bytes = const SHARED * 4,
                    at = out(reg32) shared,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
        }
        Warp { shared }
    }

    /// The index of the warp or block in the grid.
    #[inline(always)]
    fn first_row(_teams: u32) -> usize {
        (if BLOCK { ctaid_x() } else { ctaid_x() * ntid_y() + tid_y() }) as usize
    }
}

#[allow(unsafe_code)]
impl<const BLOCK: bool> Wave for Warp<BLOCK> {
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

    #[inline(always)]
    fn set(self) -> u32 {
        let lanes;
        // SAFETY: reads a register, the width of a warp.
        unsafe {
            asm!("mov.u32 {}, %ntid.x;", out(reg32) lanes, options(pure, nomem, nostack, preserves_flags));
        }
        lanes
    }

    const BLOCK: bool = BLOCK;

    #[inline(always)]
    fn waves(self) -> u32 {
        if BLOCK { ntid_y() } else { 1 }
    }

    #[inline(always)]
    fn wave(self) -> u32 {
        if BLOCK { tid_y() } else { 0 }
    }

    #[inline(always)]
    fn meet(self) {
        if !BLOCK {
            return self.settle();
        }
        // SAFETY: all lanes of all warps call this together (Wave's contract).
        unsafe { barrier(0) }
    }

    // Plain stores and loads for the assembler, which orders them by the barriers; the compiler keeps them in
    // order because they are not `nomem`.
    #[inline(always)]
    fn put(self, at: u32, word: u32) {
        let at = self.shared + at * 4;
        // SAFETY: inside the block's memory, aligned (Wave's contract).
        unsafe { asm!("st.shared.b32 [{}], {};", in(reg32) at, in(reg32) word, options(nostack)) }
    }

    #[inline(always)]
    fn get(self, at: u32) -> u32 {
        let at = self.shared + at * 4;
        let word;
        // SAFETY: as above.
        unsafe { asm!("ld.shared.b32 {}, [{}];", out(reg32) word, in(reg32) at, options(nostack, readonly)) }
        word
    }

    #[inline(always)]
    fn put64(self, at: u32, words: u64) {
        let at = self.shared + at * 4;
        // SAFETY: as above.
        unsafe { asm!("st.shared.b64 [{}], {};", in(reg32) at, in(reg64) words, options(nostack)) }
    }

    #[inline(always)]
    fn get64(self, at: u32) -> u64 {
        let at = self.shared + at * 4;
        let words;
        // SAFETY: as above.
        unsafe { asm!("ld.shared.b64 {}, [{}];", out(reg64) words, in(reg32) at, options(nostack, readonly)) }
        words
    }
}
