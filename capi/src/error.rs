//! Statuses, the thread's last error, and the wrapper that every entry point goes through.

use lockstep::Error;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;

/// The outcome of a call.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ls_status {
    /// Success.
    Ok = 0,
    /// A required pointer is null, or a pointer is not aligned for its type.
    Pointer = 1,
    /// A length, offset or value is invalid; `ls_last_error_argument` and `ls_last_error_index` locate it.
    Argument = 2,
    /// Columns that the recipe reads are missing; the message lists all of them.
    Columns = 3,
    /// The recipe is unknown, cannot be parsed, or combines incompatible choices.
    Recipe = 4,
    /// The device does not exist, or failed.
    Device = 5,
    /// The plan cannot be made, or cannot run on the given input.
    Plan = 6,
    /// Nothing has the given name or number, or the result was not computed.
    Absent = 7,
    /// A bug in Lockstep: a panic that was caught. Please report it.
    Panic = 8,
}

/// The reason for a failed call.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: ls_status,
    message: String,
    argument: Option<String>,
    index: Option<usize>,
}

impl Refusal {
    /// A refusal of one argument.
    pub(crate) fn new(status: ls_status, argument: &str, says: impl std::fmt::Display) -> Refusal {
        let message = format!("`{argument}` {says}");
        Refusal { status, message, argument: Some(argument.into()), index: None }
    }

    /// A refusal of a null pointer.
    pub(crate) fn null(argument: &str) -> Refusal {
        Refusal::new(ls_status::Pointer, argument, "is null")
    }

    /// Adds the index in the argument.
    pub(crate) fn at(self, index: usize) -> Refusal {
        Refusal { index: Some(index), ..self }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let (argument, index) = match &error {
            Error::Argument(argument) => (Some(argument.argument().to_owned()), argument.index()),
            _ => (None, None),
        };
        let status = match error {
            Error::Device(_) | Error::Gpu(_) | Error::NoSuchDevice { .. } => ls_status::Device,
            Error::Recipe(_) => ls_status::Recipe,
            Error::Plan(_) => ls_status::Plan,
            Error::Columns { .. } => ls_status::Columns,
            _ => ls_status::Argument,
        };
        Refusal { status, message: error.to_string(), argument, index }
    }
}

impl From<lockstep::core::Error> for Refusal {
    fn from(error: lockstep::core::Error) -> Refusal {
        Error::from(error).into()
    }
}

#[derive(Default)]
struct Last {
    message: CString,
    argument: Option<CString>,
    index: Option<usize>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Runs the body of an entry point that returns a status: catches panics and records the thread's last error.
pub(crate) fn enter(body: impl FnOnce() -> Result<(), Refusal>) -> ls_status {
    let caught = catch_unwind(AssertUnwindSafe(body));
    let Err(refusal) = caught.unwrap_or_else(|panic| Err(panicked(&*panic))) else { return ls_status::Ok };
    let Refusal { status, message, argument, index } = refusal;
    let last = Last { message: c_string(&message), argument: argument.as_deref().map(c_string), index };
    // Nothing can be reported from a thread that is shutting down.
    _ = LAST.try_with(|own| own.replace(last));
    status
}

/// Like [`enter`], for entry points that return a number or an address; returns `otherwise` on failure.
pub(crate) fn enter_or<T>(otherwise: T, body: impl FnOnce() -> Result<T, Refusal>) -> T {
    let mut value = otherwise;
    enter(|| body().map(|own| value = own));
    value
}

fn panicked(panic: &(dyn Any + Send)) -> Refusal {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message");
    Refusal { status: ls_status::Panic, message: format!("panic: {text}"), argument: None, index: None }
}

/// Converts text to a C string; NUL characters become U+FFFD.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// The message of the thread's last failed call; empty if none has failed. Valid until the thread's next
/// failure.
#[unsafe(no_mangle)]
pub extern "C" fn ls_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().message.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The name of the argument or column that the thread's last failed call refused; null if none was at fault.
#[unsafe(no_mangle)]
pub extern "C" fn ls_last_error_argument() -> *const c_char {
    LAST.try_with(|last| last.borrow().argument.as_ref().map_or(null(), |name| name.as_ptr()))
        .unwrap_or(null())
}

/// The index of the bad entry in that argument; -1 if the fault is not in an array's entry.
#[unsafe(no_mangle)]
pub extern "C" fn ls_last_error_index() -> i64 {
    LAST.try_with(|last| last.borrow().index.and_then(|at| at.try_into().ok())).ok().flatten().unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn a_panic_is_a_status() {
        std::thread::spawn(|| {
            assert_eq!(enter(|| panic!("row {}", 3)), ls_status::Panic);
            // SAFETY: the thread's own message, valid until its next failure.
            assert_eq!(unsafe { CStr::from_ptr(ls_last_error()) }, c"panic: row 3");
            assert!(ls_last_error_argument().is_null() && ls_last_error_index() == -1);
            assert_eq!(enter_or(7, || Err(Refusal::null("x").at(2))), 7);
            // SAFETY: as above.
            assert_eq!(unsafe { CStr::from_ptr(ls_last_error_argument()) }, c"x");
            assert_eq!(ls_last_error_index(), 2);
        })
        .join()
        .unwrap();
    }
}
