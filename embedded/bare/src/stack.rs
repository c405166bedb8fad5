//! Measures how much of the stack was ever used.

use crate::UNTOUCHED;

unsafe extern "C" {
    /// The first byte of the stack's memory, from the linker script.
    static __stack_bottom: u32;
    /// One past its last byte.
    static __stack_top: u32;
}

/// Returns the size of the stack in bytes.
pub(crate) fn size() -> usize {
    (&raw const __stack_top).addr() - (&raw const __stack_bottom).addr()
}

/// Returns the number of bytes between the lowest word that was ever written and the top.
pub(crate) fn used() -> usize {
    let bottom = &raw const __stack_bottom;
    // SAFETY: the linker script reserves these words for the stack. The reads are volatile, so the compiler
    // assumes nothing about the contents, and words in use are only read.
    let untouched = |word: &usize| unsafe { bottom.add(*word).read_volatile() } == UNTOUCHED;
    size() - 4 * (0..size() / 4).take_while(untouched).count()
}
