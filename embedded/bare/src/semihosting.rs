//! Console and exit through semihosting: the program stops at an agreed instruction, and the emulator (or a
//! debugger) serves it. The operations are Arm's; RISC-V uses the same ones.

use crate::machine::semihosting;
use core::fmt;

const SYS_WRITEC: u32 = 0x03;
const SYS_EXIT_EXTENDED: u32 = 0x20;
/// "The application ends", as opposed to a breakpoint or an error.
const APPLICATION_EXIT: u32 = 0x2_0026;

/// The emulator's console.
pub(crate) struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            semihosting(SYS_WRITEC, (&raw const byte).addr());
        }
        Ok(())
    }
}

/// Ends the emulator with this status.
pub(crate) fn exit(status: u32) -> ! {
    let block = [APPLICATION_EXIT, status];
    loop {
        semihosting(SYS_EXIT_EXTENDED, (&raw const block).addr());
    }
}
