//! Entry points: one for each op and variant, all with the same signature.
//!
//! ```text
//! name(teams: u32, p0 … p23: *mut u8, w0 … w63: u64)
//! ```
//!
//! Team t of `teams` takes rows t, t + teams, …. On NVIDIA it takes them one after the other, so a grid of
//! any size is correct. On AMD the grid has one layer for each of these rows: it is `teams` workgroups wide
//! (x) and ⌈rows / teams⌉ high (y), one row per workgroup, because the values that a loop over rows keeps in
//! scalar registers do not fit into them.
//!
//! `name_block`, on NVIDIA, is the same for few long rows: block b takes rows b, b + teams, …, and its warps
//! share each of them. AMD has none: its compiler has neither memory of a workgroup nor assembly yet.
//!
//! Pointers are separate parameters, because only then are accesses known to be global. Words are, because
//! the calling convention of an aggregate is not settled: amdgpu passes a pointer
//! (docs/decisions/0005-gpu-launch.md).

// Entry points are called by name, from outside Rust.
#![allow(unreachable_pub)]

#[cfg(target_arch = "amdgpu")]
use crate::amd::Warp;
#[cfg(target_arch = "nvptx64")]
use crate::nvidia::Thread;
#[cfg(target_arch = "nvptx64")]
use crate::nvidia::Warp;
use crate::team::GpuTeam;
use crate::wave::Wave;
#[cfg(target_arch = "amdgpu")]
use lockstep_core::num::Hard as Thread;
use lockstep_core::op::{Decoder, Kernel, MAX_POINTERS, MAX_WORDS};

/// What runs an entry point: this thread's wave, or its block of waves.
pub(crate) trait Own: Wave {
    /// Whether a grid has a team for each row, so that none takes a second.
    const ONE_ROW: bool;
    /// This thread's wave.
    fn own() -> Self;
    /// The first row of this thread, in a grid of `teams`.
    fn first_row(teams: u32) -> usize;
}

/// Runs the rows of this wave or block.
///
/// # Safety
/// `pointers` and `words` must come from [`lockstep_core::op::Arg::encode`] of a kernel `K` whose memory this
/// device may access.
#[allow(unsafe_code)]
#[inline(always)]
unsafe fn run<K: Kernel, const V: usize, O: Own>(
    teams: u32,
    pointers: [*mut u8; MAX_POINTERS],
    words: [u64; MAX_WORDS],
) {
    // SAFETY: guaranteed by the caller.
    let kernel = unsafe { K::decode(&mut Decoder::new(pointers, words)) };
    let team = GpuTeam::<_, Thread>::new(O::own());
    let rows = kernel.rows();
    let mut row = O::first_row(teams);
    while row < rows {
        kernel.row_as::<V, _>(&team, row);
        if O::ONE_ROW {
            break;
        }
        row += teams as usize;
    }
}

/// An entry point of the table, for one wave or block type.
#[rustfmt::skip]
macro_rules! entry {
    ($own:ty, $kernel:ty, $variant:literal, $export:expr, $entry:ident) => {
        /// An entry point of the table.
        ///
        /// # Safety
        /// See [`run`].
        #[allow(unsafe_code)]
        #[unsafe(export_name = $export)]
        pub unsafe extern "gpu-kernel" fn $entry(
            teams: u32,
            p0: *mut u8, p1: *mut u8, p2: *mut u8, p3: *mut u8, p4: *mut u8, p5: *mut u8,
            p6: *mut u8, p7: *mut u8, p8: *mut u8, p9: *mut u8, p10: *mut u8, p11: *mut u8,
            p12: *mut u8, p13: *mut u8, p14: *mut u8, p15: *mut u8, p16: *mut u8, p17: *mut u8,
            p18: *mut u8, p19: *mut u8, p20: *mut u8, p21: *mut u8, p22: *mut u8, p23: *mut u8,
            w0: u64, w1: u64, w2: u64, w3: u64, w4: u64, w5: u64, w6: u64, w7: u64,
            w8: u64, w9: u64, w10: u64, w11: u64, w12: u64, w13: u64, w14: u64, w15: u64,
            w16: u64, w17: u64, w18: u64, w19: u64, w20: u64, w21: u64, w22: u64, w23: u64,
            w24: u64, w25: u64, w26: u64, w27: u64, w28: u64, w29: u64, w30: u64, w31: u64,
            w32: u64, w33: u64, w34: u64, w35: u64, w36: u64, w37: u64, w38: u64, w39: u64,
            w40: u64, w41: u64, w42: u64, w43: u64, w44: u64, w45: u64, w46: u64, w47: u64,
            w48: u64, w49: u64, w50: u64, w51: u64, w52: u64, w53: u64, w54: u64, w55: u64,
            w56: u64, w57: u64, w58: u64, w59: u64, w60: u64, w61: u64, w62: u64, w63: u64,
        ) {
            let pointers = [
                p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16, p17, p18, p19,
                p20, p21, p22, p23,
            ];
            let words = [
                w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15, w16, w17, w18, w19,
                w20, w21, w22, w23, w24, w25, w26, w27, w28, w29, w30, w31, w32, w33, w34, w35, w36, w37,
                w38, w39, w40, w41, w42, w43, w44, w45, w46, w47, w48, w49, w50, w51, w52, w53, w54, w55,
                w56, w57, w58, w59, w60, w61, w62, w63,
            ];
            // SAFETY: guaranteed by the launcher.
            unsafe { run::<$kernel, $variant, $own>(teams, pointers, words) }
        }
    };
}

/// The entry points of an op with a block for a row.
macro_rules! blocks {
    ($kernel:ty, [$($variant:literal $entry:ident),*]) => {};
    ($kernel:ty, [$($variant:literal $entry:ident),*] block) => {
        #[cfg(target_arch = "nvptx64")]
        mod block {
            use super::*;
            $(entry!(Warp<true>, $kernel, $variant, concat!(stringify!($entry), "_block"), $entry);)*
        }
    };
}

macro_rules! stamp {
    ($($name:ident: $kernel:ty, $file:literal, $row:literal, $summary:literal,
        [$($variant:literal $entry:ident),*] $($block:ident)?;)*) => {$(
        mod $name {
            use super::*;
            $(entry!(Warp, $kernel, $variant, stringify!($entry), $entry);)*
            blocks!($kernel, [$($variant $entry),*] $($block)?);
        }
    )*};
}
lockstep_core::for_each_op!(stamp);

/// No kernel panics: `cargo xtask artifacts` fails if an artifact contains this function's trap.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::intrinsics::abort()
}
