//! Devices and names of error codes.

use crate::vendor::{VENDOR, name};
use crate::{LIBRARY, api, current};
use lockstep_emulated_abi::pointers::{put, put_text};
use lockstep_emulator::runtime::{Machine, Settings};
use std::ffi::{c_char, c_int, c_void};

const NULL: i32 = VENDOR.codes.value;

// hipDeviceAttribute_t.
const MULTIPROCESSORS: c_int = 63;
const WARP_SIZE: c_int = 87;

/// Offset of `gcnArchName` in `hipDeviceProp_t`, and the size of the structure, in ROCm 6 and before.
const SIX: (usize, usize) = (1160, 1472);
const FIVE: (usize, usize) = (396, 792);

/// Returns a device of the machine.
fn device(machine: &Machine, device: c_int) -> Result<usize, i32> {
    let device = usize::try_from(device).map_err(|_| VENDOR.codes.no_such_device)?;
    machine.has(device).map(|()| device)
}

/// Writes a `hipDeviceProp_t`: the fields that this project reads, and zeros elsewhere.
///
/// # Safety
/// `to` is null or a structure of this layout.
unsafe fn put_properties(
    to: *mut c_void,
    (arch, size): (usize, usize),
    settings: &Settings,
) -> Result<(), i32> {
    let mut properties = vec![0u8; size];
    let mut field = |at: usize, room: usize, text: &str| {
        let bytes = &text.as_bytes()[..text.len().min(room - 1)];
        properties[at..at + bytes.len()].copy_from_slice(bytes);
    };
    field(0, 256, &settings.name);
    field(arch, 256, &format!("{}:sramecc+:xnack-", settings.arch));
    if to.is_null() {
        return Err(NULL);
    }
    // SAFETY: the caller's.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(properties.as_ptr(), size) };
    Ok(())
}

/// See AMD's manual.
///
/// # Safety
/// None is asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetErrorName(code: c_int) -> *const c_char {
    // It can be made to fail in only one way: by not knowing the name.
    if LIBRARY.call("hipGetErrorName", |_| Ok(())) != 0 {
        return std::ptr::null();
    }
    name(code).as_ptr()
}

/// See AMD's manual.
///
/// # Safety
/// None is asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipGetLastError() -> c_int {
    match LIBRARY.call("hipGetLastError", |_| Ok(())) {
        0 => current::last_error(),
        code => code,
    }
}

api! {
    fn hipDriverGetVersion(version: *mut c_int) |machine| {
        // SAFETY: the caller's.
        unsafe { put(version, machine.settings().version, NULL) }
    }

    fn hipGetDeviceCount(count: *mut c_int) |machine| {
        // SAFETY: the caller's.
        unsafe { put(count, machine.settings().devices as c_int, NULL) }?;
        if machine.settings().devices == 0 { Err(VENDOR.codes.no_device) } else { Ok(()) }
    }

    fn hipDeviceGetName(to: *mut c_char, len: c_int, of: c_int) |machine| {
        device(machine, of)?;
        // SAFETY: the caller's.
        unsafe { put_text(to, usize::try_from(len).unwrap_or(0), &machine.settings().name, NULL) }
    }

    fn hipDeviceGetAttribute(to: *mut c_int, attribute: c_int, of: c_int) |machine| {
        device(machine, of)?;
        let value = match attribute {
            MULTIPROCESSORS => machine.settings().units.cast_signed(),
            WARP_SIZE => 64,
            _ => return Err(VENDOR.codes.value),
        };
        // SAFETY: the caller's.
        unsafe { put(to, value, NULL) }
    }

    fn hipDeviceTotalMem(bytes: *mut usize, of: c_int) |machine| {
        device(machine, of)?;
        // SAFETY: the caller's.
        unsafe { put(bytes, machine.settings().memory as usize, NULL) }
    }

    fn hipGetDevicePropertiesR0600(properties: *mut c_void, of: c_int) |machine| {
        device(machine, of)?;
        // SAFETY: the caller's.
        unsafe { put_properties(properties, SIX, machine.settings()) }
    }

    fn hipGetDeviceProperties(properties: *mut c_void, of: c_int) |machine| {
        device(machine, of)?;
        // SAFETY: the caller's.
        unsafe { put_properties(properties, FIVE, machine.settings()) }
    }

    fn hipGetDevice(to: *mut c_int) |machine| {
        machine.has(current::device()).map_err(|_| VENDOR.codes.no_device)?;
        // SAFETY: the caller's.
        unsafe { put(to, current::device() as c_int, NULL) }
    }

    fn hipSetDevice(of: c_int) |machine| {
        current::set_device(device(machine, of)?);
        Ok(())
    }
}
