//! Cortex-M4F: vector table, reset, semihosting.

use crate::UNTOUCHED;
use core::arch::{asm, global_asm};

pub(crate) const NAME: &str = "cortex-m4f";

/// Mask of the FPSCR modes: default NaN (bit 25), flush to zero (24), alternative half precision (26) and the
/// rounding mode (23, 22).
const MODES: u32 = 0x07c0_0000;
/// Required modes: subnormals kept, NaN payloads propagated, round to nearest.
const WANTED: u32 = if cfg!(feature = "flush-to-zero") { 0x0300_0000 } else { 0 };

// The first word is the stack pointer and the second the entry point; the rest are the architecture's
// exceptions.
global_asm!(
    ".section .vectors, \"a\"",
    ".word __stack_top",
    ".word reset",
    ".rept 14",
    ".word fault",
    ".endr",
    ".section .text.reset, \"ax\"",
    ".global reset",
    ".thumb_func",
    "reset:",
    // CPACR: full access to coprocessors 10 and 11, the floating-point unit.
    "ldr r0, =0xe000ed88",
    "ldr r1, [r0]",
    "orr r1, r1, #0x00f00000",
    "str r1, [r0]",
    "dsb",
    "isb",
    "ldr r1, ={wanted}",
    "vmsr fpscr, r1",
    // Fills the whole stack, which is still empty.
    "ldr r0, =__stack_bottom",
    "mov r1, sp",
    "ldr r2, ={untouched}",
    "1: str r2, [r0], #4",
    "cmp r0, r1",
    "blo 1b",
    "b main",
    ".ltorg",
    wanted = const WANTED,
    untouched = const UNTOUCHED,
);

/// Makes one semihosting call.
pub(crate) fn semihosting(operation: u32, argument: usize) {
    // SAFETY: the call reads memory at `argument`, which the callers keep alive, and changes only r0.
    unsafe {
        asm!("bkpt 0xab", inout("r0") operation => _, in("r1") argument, options(nostack, preserves_flags))
    }
}

/// Describes the modes of the floating-point unit; an error if they are wrong.
pub(crate) fn float_modes() -> Result<&'static str, &'static str> {
    let fpscr: u32;
    // SAFETY: reads a register.
    unsafe { asm!("vmrs {}, fpscr", out(reg) fpscr, options(nomem, nostack, preserves_flags)) };
    match fpscr & MODES {
        WANTED if cfg!(feature = "flush-to-zero") => Ok("FPU, subnormals flushed to zero: for a test"),
        WANTED => Ok("FPU, subnormals kept, default NaN off, round to nearest"),
        _ => Err("the modes in FPSCR are not those that reset wrote"),
    }
}
