//! Statuses, the thread's last error, and the wrapper that every entry point goes through.

use lockstep::Error;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;

/// How a call ended.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ls_status {
    /// It did what it says.
    Ok = 0,
    /// A pointer that must not be null is, or a pointer is not aligned for what it points to.
    Pointer = 1,
    /// A length, offset or value is wrong; `ls_last_error_argument` and `ls_last_error_index` say where.
    Argument = 2,
    /// Columns that the recipe reads are missing; the message names all of them.
    Columns = 3,
    /// A recipe that is not known, or cannot be read, or whose choices do not go together.
    Recipe = 4,
    /// A device that is not there, or that failed.
    Device = 5,
    /// A plan that cannot be made, or that met what it cannot take.
    Plan = 6,
    /// A name or number under which there is nothing.
    Absent = 7,
    /// A fault of Lockstep's own, which was caught: please report it.
    Panic = 8,
}

/// Why a call was refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: ls_status,
    message: String,
    argument: Option<String>,
    index: Option<usize>,
}

impl Refusal {
    /// Of an argument.
    pub(crate) fn new(status: ls_status, argument: &str, says: impl std::fmt::Display) -> Refusal {
        let message = format!("`{argument}` {says}");
        Refusal { status, message, argument: Some(argument.into()), index: None }
    }

    /// A null.
    pub(crate) fn null(argument: &str) -> Refusal {
        Refusal::new(ls_status::Pointer, argument, "is null")
    }

    /// Where in the argument.
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

/// What every entry with a status goes through.
pub(crate) fn enter(body: impl FnOnce() -> Result<(), Refusal>) -> ls_status {
    let caught = catch_unwind(AssertUnwindSafe(body));
    let Err(refusal) = caught.unwrap_or_else(|panic| Err(panicked(&*panic))) else { return ls_status::Ok };
    let Refusal { status, message, argument, index } = refusal;
    let last = Last { message: c_string(&message), argument: argument.as_deref().map(c_string), index };
    // Nothing can be reported from a thread that is shutting down.
    _ = LAST.try_with(|own| own.replace(last));
    status
}

/// The same for entries that return a number or an address: what they return where something is wrong.
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

/// The text, without what C cannot hold.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// The message of the thread's last call that failed, until its next one that fails; empty before.
#[unsafe(no_mangle)]
pub extern "C" fn ls_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().message.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The name of the argument or column that it refused; null where it was none's fault.
#[unsafe(no_mangle)]
pub extern "C" fn ls_last_error_argument() -> *const c_char {
    LAST.try_with(|last| last.borrow().argument.as_ref().map_or(null(), |name| name.as_ptr()))
        .unwrap_or(null())
}

/// The index in that argument; -1 where it is no entry of an array.
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
            // SAFETY: the thread's own, until its next failure.
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
