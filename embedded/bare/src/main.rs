//! Runs the embedded corpus without an operating system, from the launches in `launches.bin`: prints the
//! digest and ends the emulator with a status, 0 if the digest is the published one.
//!
//! A floating-point unit runs it a second time with subnormals flushed to zero: the digest must then differ.
//!
//! Every architecture provides, in `cortex_m.rs` and `riscv.rs`: the code from reset to [`main`], which fills
//! the stack with [`UNTOUCHED`]; `NAME`; `semihosting(operation, argument)`; `float_modes(flushed)`, which
//! describes the modes of the floating-point unit, or how they are wrong; and `RUN_FLUSHED`, which starts the
//! program over.
#![no_std]
#![no_main]

#[cfg_attr(target_arch = "arm", path = "cortex_m.rs")]
#[cfg_attr(target_arch = "riscv32", path = "riscv.rs")]
mod machine;
mod semihosting;
mod stack;

use core::fmt::Write;
use core::panic::PanicInfo;
use lockstep_cpu::plain::Plain;
use lockstep_embedded::launches::Launches;
use lockstep_embedded::{Trace, corpus, digest};
use semihosting::{Console, exit};

/// The value of a stack word that nobody has written.
const UNTOUCHED: u32 = 0xa5a5_5a5a;

/// The emulator's exit statuses.
mod status {
    pub(crate) const PASSED: u32 = 0;
    pub(crate) const DIFFERS: u32 = 1;
    pub(crate) const FAILED: u32 = 2;
}

#[unsafe(no_mangle)]
extern "C" fn main(flushed: u32) -> ! {
    let status = run(flushed != 0).unwrap_or(status::FAILED);
    match machine::RUN_FLUSHED {
        Some(run_flushed) if flushed == 0 && status == status::PASSED => run_flushed(),
        _ => exit(status),
    }
}

/// Errors only if the console fails, which it cannot.
fn run(flushed: bool) -> Result<u32, core::fmt::Error> {
    let mut console = Console;
    writeln!(console, "machine {}", machine::NAME)?;
    let Some(launches) = Launches::published(launches()) else {
        writeln!(console, "error: launches.bin is not what embedded/LAUNCHES says")?;
        return Ok(status::FAILED);
    };
    if cfg!(feature = "trace") && !flushed {
        corpus(&Plain, launches, &mut Trace::new(Console));
        writeln!(console)?;
    }
    let digest = digest(&Plain, launches);
    writeln!(console, "{digest}")?;
    let (used, size) = (stack::used(), stack::size());
    writeln!(console, "stack {used} of {size} bytes")?;
    if used == size {
        writeln!(console, "error: the stack is too small, and something else may have been overwritten")?;
        return Ok(status::FAILED);
    }
    // Checked after the run, so that it holds for the whole run: only reset writes the modes.
    match machine::float_modes(flushed) {
        Ok(modes) => writeln!(console, "floats {modes}")?,
        Err(wrong) => {
            writeln!(console, "error: {wrong}")?;
            return Ok(status::FAILED);
        }
    }
    // A comparison that could not fail would prove nothing: with subnormals flushed, it must.
    Ok(if digest.is_published() != flushed { status::PASSED } else { status::DIFFERS })
}

/// The words of the launches, in the program's read-only memory.
fn launches() -> &'static [u64] {
    #[repr(C, align(8))]
    struct Aligned<T>(T);
    #[unsafe(link_section = ".launches")]
    static BYTES: Aligned<[u8; include_bytes!("../launches.bin").len()]> =
        Aligned(*include_bytes!("../launches.bin"));
    // SAFETY: all bits are words.
    let (_, words, _) = unsafe { BYTES.0.align_to::<u64>() };
    words
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let _ = writeln!(Console, "error: {info}");
    exit(status::FAILED)
}

/// Entered on any exception: an access outside of memory, or an instruction that the processor lacks.
#[unsafe(no_mangle)]
extern "C" fn fault() -> ! {
    let _ = writeln!(Console, "error: processor fault");
    exit(status::FAILED)
}
