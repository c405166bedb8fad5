//! The context that is current on a thread.

use crate::vendor::VENDOR;
use lockstep_emulator::runtime::Machine;
use std::cell::RefCell;

thread_local! {
    /// Contexts pushed on this thread.
    static PUSHED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Returns the device of the current context, or the code for not having one.
pub(crate) fn device(machine: &Machine) -> Result<usize, i32> {
    machine.context(get().ok_or(VENDOR.codes.no_context)?)
}

/// Returns the device of the current context, if there is one.
pub(crate) fn maybe(machine: &Machine) -> Option<usize> {
    device(machine).ok()
}

/// Makes a context current.
pub(crate) fn push(machine: &Machine, context: u64) -> Result<(), i32> {
    machine.context(context)?;
    PUSHED.with_borrow_mut(|stack| stack.push(context));
    Ok(())
}

/// The current context, if there is one.
pub(crate) fn get() -> Option<u64> {
    PUSHED.with_borrow(|stack| stack.last().copied())
}

/// Replaces the current context; 0 removes it.
pub(crate) fn set(machine: &Machine, context: u64) -> Result<(), i32> {
    if context != 0 {
        machine.context(context)?;
    }
    PUSHED.with_borrow_mut(|stack| {
        stack.pop();
        stack.extend((context != 0).then_some(context));
    });
    Ok(())
}

/// Pops the current context; the previous one becomes current.
pub(crate) fn pop() -> Result<u64, i32> {
    PUSHED.with_borrow_mut(Vec::pop).ok_or(VENDOR.codes.no_context)
}
