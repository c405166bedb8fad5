//! RV32IMAC: reset and semihosting. There is no floating-point unit: every operation is a function of
//! compiler-builtins.

use crate::UNTOUCHED;
use core::arch::{asm, global_asm};

pub(crate) const NAME: &str = "riscv32imac";

global_asm!(
    ".section .reset, \"ax\"",
    ".global reset",
    "reset:",
    "la sp, __stack_top",
    "la t0, trap",
    "csrw mtvec, t0",
    "la t0, __stack_bottom",
    "li t1, {untouched}",
    "1: sw t1, 0(t0)",
    "addi t0, t0, 4",
    "bltu t0, sp, 1b",
    "li a0, 0",
    "tail main",
    // The low two bits of mtvec select its mode.
    ".balign 4",
    "trap: tail fault",
    untouched = const UNTOUCHED,
);

/// Makes one semihosting call.
pub(crate) fn semihosting(operation: u32, argument: usize) {
    // SAFETY: the call reads memory at `argument`, which the callers keep alive, and changes only a0. The
    // three instructions, uncompressed and in one page, are the sequence that marks a semihosting call.
    unsafe {
        asm!(
            ".option push",
            ".option norvc",
            ".balign 16",
            "slli x0, x0, 0x1f",
            "ebreak",
            "srai x0, x0, 7",
            ".option pop",
            inout("a0") operation => _,
            in("a1") argument,
            options(nostack, preserves_flags),
        );
    }
}

/// There are no modes here.
pub(crate) fn float_modes(_flushed: bool) -> Result<&'static str, &'static str> {
    Ok("soft, no floating-point unit")
}

/// There are no modes to start over with.
pub(crate) const RUN_FLUSHED: Option<fn() -> !> = None;
