//! Cortex-M4F: vector table, reset, semihosting.

use crate::UNTOUCHED;
use core::arch::{asm, global_asm};

pub(crate) const NAME: &str = "cortex-m4f";

/// Mask of the FPSCR modes: default NaN (bit 25), flush to zero (24), alternative half precision (26) and the
/// rounding mode (23, 22).
const MODES: u32 = 0x07c0_0000;
/// Required modes: subnormals kept, NaN payloads propagated, round to nearest.
const WANTED: u32 = 0;
/// The modes of the second run: subnormals flushed to zero, default NaN.
const FLUSHED: u32 = 0x0300_0000;

// The first word is the stack pointer and the second the entry point; the rest are the architecture's
// exceptions.
global_asm!(
    // The assembler of a unit without functions knows of no floating-point unit.
    ".fpu fpv4-sp-d16",
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
    "movs r3, #0",
    "ldr r2, ={wanted}",
    "b 2f",
    // The second run starts over, with other modes and an empty stack.
    ".thumb_func",
    "run_flushed:",
    "movs r3, #1",
    "ldr r2, ={flushed}",
    "ldr r0, =__stack_top",
    "mov sp, r0",
    // CPACR: full access to coprocessors 10 and 11, the floating-point unit.
    "2: ldr r0, =0xe000ed88",
    "ldr r1, [r0]",
    "orr r1, r1, #0x00f00000",
    "str r1, [r0]",
    "dsb",
    "isb",
    "vmsr fpscr, r2",
    // Fills the whole stack, which is still empty.
    "ldr r0, =__stack_bottom",
    "mov r1, sp",
    "ldr r2, ={untouched}",
    "1: str r2, [r0], #4",
    "cmp r0, r1",
    "blo 1b",
    "mov r0, r3",
    "b main",
    ".ltorg",
    wanted = const WANTED,
    flushed = const FLUSHED,
    untouched = const UNTOUCHED,
);

/// Makes one semihosting call.
pub(crate) fn semihosting(operation: u32, argument: usize) {
    // SAFETY: the call reads memory at `argument`, which the callers keep alive, and changes only r0.
    unsafe {
        asm!("bkpt 0xab", inout("r0") operation => _, in("r1") argument, options(nostack, preserves_flags))
    }
}

/// Describes the modes of the floating-point unit; an error if they are not those of this run.
pub(crate) fn float_modes(flushed: bool) -> Result<&'static str, &'static str> {
    let fpscr: u32;
    // SAFETY: reads a register.
    unsafe { asm!("vmrs {}, fpscr", out(reg) fpscr, options(nomem, nostack, preserves_flags)) };
    match (fpscr & MODES, flushed) {
        (WANTED, false) => Ok("FPU, subnormals kept, default NaN off, round to nearest"),
        (FLUSHED, true) => Ok("FPU, subnormals flushed to zero: for a test"),
        _ => Err("the modes in FPSCR are not those that reset wrote"),
    }
}

unsafe extern "C" {
    safe fn run_flushed() -> !;
}

/// Starts the program over with subnormals flushed to zero.
pub(crate) const RUN_FLUSHED: Option<extern "C" fn() -> !> = Some({
    extern "C" fn again() -> ! {
        run_flushed()
    }
    again
});
