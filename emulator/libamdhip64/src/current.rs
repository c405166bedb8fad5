//! The device that is current on a thread, and the error that HIP remembers there.

use lockstep_emulator::runtime::Machine;
use std::cell::Cell;

thread_local! {
    static DEVICE: Cell<usize> = const { Cell::new(0) };
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
}

/// Returns the current device.
pub(crate) fn device() -> usize {
    DEVICE.get()
}

/// Returns the current device in the form that a library queries.
pub(crate) fn maybe(_machine: &Machine) -> Option<usize> {
    Some(device())
}

/// Makes a device current.
pub(crate) fn set_device(device: usize) {
    DEVICE.set(device);
}

/// Remembers a failure.
pub(crate) fn remember(code: i32) -> i32 {
    if code != 0 {
        LAST_ERROR.set(code);
    }
    code
}

/// Returns the remembered failure, once.
pub(crate) fn last_error() -> i32 {
    LAST_ERROR.take()
}
