//! Conversion of incoming pointers and outgoing text.

use crate::error::{Refusal, c_string, ls_status};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A name of Lockstep's own as C's text, which stays for good; there are as many as the library has names.
pub(crate) fn forever(name: &'static str) -> *const c_char {
    static NAMES: OnceLock<Mutex<HashMap<&'static str, CString>>> = OnceLock::new();
    let mut names = NAMES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    names.entry(name).or_insert_with(|| c_string(name)).as_ptr()
}

/// What a pointer points to.
///
/// # Safety
/// It is null, misaligned, or that of a `T` which nobody writes for `'a`.
pub(crate) unsafe fn given<'a, T>(pointer: *const T, argument: &str) -> Result<&'a T, Refusal> {
    aligned(pointer, argument)?;
    // SAFETY: the caller's.
    Ok(unsafe { &*pointer })
}

/// What a pointer points to, to be written.
///
/// # Safety
/// It is null, misaligned, or that of a `T` which nobody else uses for `'a`.
pub(crate) unsafe fn given_mut<'a, T>(pointer: *mut T, argument: &str) -> Result<&'a mut T, Refusal> {
    aligned(pointer, argument)?;
    // SAFETY: the caller's.
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

/// An array that must be there.
///
/// # Safety
/// It is null, misaligned, or has so many elements, which nobody writes for `'a`.
pub(crate) unsafe fn host<'a, T>(data: *const T, len: usize, argument: &str) -> Result<&'a [T], Refusal> {
    aligned(data, argument)?;
    within::<T>(len, argument)?;
    // SAFETY: the caller's; aligned, and within the largest possible size.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Whether memory can have so many elements.
pub(crate) fn within<T>(len: usize, argument: &str) -> Result<(), Refusal> {
    if len > isize::MAX as usize / size_of::<T>() {
        return Err(Refusal::new(
            ls_status::Argument,
            argument,
            format!("has {len} entries: more than memory"),
        ));
    }
    Ok(())
}

/// A text that ends with 0.
///
/// # Safety
/// It is null, or ends with a 0 and is written by nobody for `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, argument: &str) -> Result<&'a str, Refusal> {
    if pointer.is_null() {
        return Err(Refusal::null(argument));
    }
    // SAFETY: the caller's.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|error| {
        Refusal::new(ls_status::Argument, argument, "is no UTF-8 text").at(error.valid_up_to())
    })
}

/// Makes a handle of a value.
///
/// # Safety
/// As for [`given_mut`].
pub(crate) unsafe fn hand_out<T>(
    out: *mut *mut T,
    make: impl FnOnce() -> Result<T, Refusal>,
) -> Result<(), Refusal> {
    // SAFETY: the caller's.
    let out = unsafe { given_mut(out, "out")? };
    *out = std::ptr::null_mut();
    *out = Box::into_raw(Box::new(make()?));
    Ok(())
}

/// Takes a handle back.
///
/// # Safety
/// It is null, or of [`hand_out`] and not taken back before.
pub(crate) unsafe fn take_back<T>(handle: *mut T) {
    if !handle.is_null() {
        crate::error::enter(|| {
            // SAFETY: the caller's.
            drop(unsafe { Box::from_raw(handle) });
            Ok(())
        });
    }
}

/// Writes as many of `values` as there is room for, and says how many there are.
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
            // SAFETY: below the capacity.
            unsafe { out.add(place).write(value) };
        }
    }
    Ok(count)
}

/// A struct that begins with its size as the caller's header has it.
///
/// # Safety
/// Implementers are `repr(C)`, begin with a `u32` that is the size, and are valid with any bytes.
pub(crate) unsafe trait Sized32: Copy {}

/// Such a struct: what an older caller does not have is 0; what a newer caller has more must be.
///
/// # Safety
/// `from` is null, misaligned, or has as many bytes as its first field says.
pub(crate) unsafe fn sized<T: Sized32>(from: *const T, argument: &str) -> Result<T, Refusal> {
    aligned(from, argument)?;
    let own = size_of::<T>();
    // SAFETY: aligned and not null; it begins with its size.
    let size = unsafe { from.cast::<u32>().read() } as usize;
    // Far larger than any version's struct: its size was not set.
    if !(16..=1 << 16).contains(&size) {
        let says = format!("has size {size}: expected its sizeof, {own} in this version");
        return Err(Refusal::new(ls_status::Argument, argument, says));
    }
    let mut to = MaybeUninit::<T>::zeroed();
    // SAFETY: the caller's; no longer than either struct.
    unsafe { to.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(from.cast(), size.min(own)) };
    for at in own..size {
        // SAFETY: below the caller's size.
        if unsafe { *from.cast::<u8>().add(at) } != 0 {
            let says = format!("has a field at byte {at} that this version of the library does not know");
            return Err(Refusal::new(ls_status::Argument, argument, says));
        }
    }
    // SAFETY: valid with any bytes.
    Ok(unsafe { to.assume_init() })
}
