//! Conversion of incoming pointers and outgoing text.

use crate::error::{Refusal, c_string, ls_status};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Returns one of Lockstep's own names as a C string that is never freed. The library has a fixed set of
/// names, so memory is bounded.
pub(crate) fn forever(name: &'static str) -> *const c_char {
    static NAMES: OnceLock<Mutex<HashMap<&'static str, CString>>> = OnceLock::new();
    let mut names = NAMES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    names.entry(name).or_insert_with(|| c_string(name)).as_ptr()
}

/// Returns a shared reference to what a pointer points to.
///
/// # Safety
/// `pointer` is null, misaligned, or points to a `T` that nobody writes during `'a`.
pub(crate) unsafe fn given<'a, T>(pointer: *const T, argument: &str) -> Result<&'a T, Refusal> {
    aligned(pointer, argument)?;
    // SAFETY: the caller upholds it.
    Ok(unsafe { &*pointer })
}

/// Returns a mutable reference to what a pointer points to.
///
/// # Safety
/// `pointer` is null, misaligned, or points to a `T` that nobody else uses during `'a`.
pub(crate) unsafe fn given_mut<'a, T>(pointer: *mut T, argument: &str) -> Result<&'a mut T, Refusal> {
    aligned(pointer, argument)?;
    // SAFETY: the caller upholds it.
    Ok(unsafe { &mut *pointer })
}

pub(crate) fn aligned<T>(pointer: *const T, argument: &str) -> Result<(), Refusal> {
    match (pointer.is_null(), pointer.is_aligned()) {
        (true, _) => Err(Refusal::null(argument)),
        (_, true) => Ok(()),
        _ => {
            let says = format!("is not aligned to {} bytes", align_of::<T>());
            Err(Refusal::new(ls_status::Pointer, argument, says))
        }
    }
}

/// Returns a required array in host memory as a slice.
///
/// # Safety
/// `data` is null, misaligned, or has `len` elements that nobody writes during `'a`.
pub(crate) unsafe fn host<'a, T>(data: *const T, len: usize, argument: &str) -> Result<&'a [T], Refusal> {
    aligned(data, argument)?;
    within::<T>(len, argument)?;
    // SAFETY: the caller upholds it; aligned, and within the largest possible size.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Checks that `len` elements fit into the address space.
pub(crate) fn within<T>(len: usize, argument: &str) -> Result<(), Refusal> {
    if len > isize::MAX as usize / size_of::<T>() {
        return Err(Refusal::new(
            ls_status::Argument,
            argument,
            format!("has {len} entries: more than fit in memory"),
        ));
    }
    Ok(())
}

/// Returns a 0-terminated string.
///
/// # Safety
/// `pointer` is null, or a 0-terminated string that nobody writes during `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, argument: &str) -> Result<&'a str, Refusal> {
    if pointer.is_null() {
        return Err(Refusal::null(argument));
    }
    // SAFETY: the caller upholds it.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|error| {
        Refusal::new(ls_status::Argument, argument, "is not valid UTF-8").at(error.valid_up_to())
    })
}

/// Makes a handle that owns a value.
///
/// # Safety
/// As for [`given_mut`].
pub(crate) unsafe fn hand_out<T>(
    out: *mut *mut T,
    make: impl FnOnce() -> Result<T, Refusal>,
) -> Result<(), Refusal> {
    // SAFETY: the caller upholds it.
    let out = unsafe { given_mut(out, "out")? };
    *out = std::ptr::null_mut();
    *out = Box::into_raw(Box::new(make()?));
    Ok(())
}

/// Frees a handle.
///
/// # Safety
/// `handle` is null, or comes from [`hand_out`] and has not been freed.
pub(crate) unsafe fn take_back<T>(handle: *mut T) {
    if !handle.is_null() {
        crate::error::enter(|| {
            // SAFETY: the caller upholds it.
            drop(unsafe { Box::from_raw(handle) });
            Ok(())
        });
    }
}

/// Writes as many of `values` as fit, and returns how many there are.
///
/// # Safety
/// `out` is null, or has room for `capacity` values.
pub(crate) unsafe fn list<T>(
    values: Vec<T>,
    out: *mut T,
    capacity: usize,
    argument: &str,
) -> Result<usize, Refusal> {
    let count = values.len();
    if capacity > 0 {
        aligned(out, argument)?;
        for (place, value) in values.into_iter().take(capacity).enumerate() {
            // SAFETY: `place` is below the capacity.
            unsafe { out.add(place).write(value) };
        }
    }
    Ok(count)
}

/// A struct that begins with its size in the caller's version of the header.
///
/// # Safety
/// Implementers are `repr(C)`, begin with a `u32` that holds the size, and are valid for any bytes.
pub(crate) unsafe trait Sized32: Copy {}

/// Reads such a struct: fields that an older caller lacks are 0; extra fields of a newer caller must be 0.
///
/// # Safety
/// `from` is null, misaligned, or has as many bytes as its first field states.
pub(crate) unsafe fn sized<T: Sized32>(from: *const T, argument: &str) -> Result<T, Refusal> {
    aligned(from, argument)?;
    let own = size_of::<T>();
    // SAFETY: aligned and not null; the struct begins with its size.
    let size = unsafe { from.cast::<u32>().read() } as usize;
    // Far larger than the struct of any version: the caller did not set the size.
    if !(16..=1 << 16).contains(&size) {
        let says = format!("has size {size}: expected its sizeof, {own} in this version");
        return Err(Refusal::new(ls_status::Argument, argument, says));
    }
    let mut to = MaybeUninit::<T>::zeroed();
    // SAFETY: the caller upholds it; no longer than either struct.
    unsafe { to.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(from.cast(), size.min(own)) };
    for at in own..size {
        // SAFETY: `at` is below the caller's size.
        if unsafe { *from.cast::<u8>().add(at) } != 0 {
            let says = format!("has a field at byte {at} that this version of the library does not know");
            return Err(Refusal::new(ls_status::Argument, argument, says));
        }
    }
    // SAFETY: valid for any bytes.
    Ok(unsafe { to.assume_init() })
}
