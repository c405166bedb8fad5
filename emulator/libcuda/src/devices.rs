//! Initialisation, devices, contexts, names of error codes.

use crate::vendor::{VENDOR, name};
use crate::{api, current};
use lockstep_emulated_abi::pointers::{handle, object, put, put_text};
use lockstep_emulator::runtime::Machine;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

const NULL: i32 = VENDOR.codes.value;

// CUdevice_attribute.
const WARP_SIZE: c_int = 10;
const MULTIPROCESSORS: c_int = 16;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;
const MEMORY_POOLS: c_int = 115;

static INITIALISED: AtomicBool = AtomicBool::new(false);

/// Returns an error if `cuInit` was not called.
fn initialised() -> Result<(), i32> {
    if INITIALISED.load(Ordering::Relaxed) { Ok(()) } else { Err(VENDOR.codes.not_initialised) }
}

/// Returns a device of the machine.
fn device(machine: &Machine, device: c_int) -> Result<usize, i32> {
    initialised()?;
    let device = usize::try_from(device).map_err(|_| VENDOR.codes.no_such_device)?;
    machine.has(device).map(|()| device)
}

/// Returns 9 and 0 for `sm_90`.
fn capability(arch: &str) -> (i32, i32) {
    let digits: String = arch.chars().filter(char::is_ascii_digit).collect();
    let number: i32 = digits.parse().unwrap_or(0);
    (number / 10, number % 10)
}

api! {
    fn cuInit(flags: c_uint) |machine| {
        if flags != 0 {
            return Err(VENDOR.codes.value);
        }
        if machine.settings().devices == 0 {
            return Err(VENDOR.codes.no_device);
        }
        INITIALISED.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn cuDriverGetVersion(version: *mut c_int) |machine| {
        // SAFETY: the caller's.
        unsafe { put(version, machine.settings().version, NULL) }
    }

    fn cuGetErrorName(code: c_int, to: *mut *const c_char) |_machine| {
        let name = name(code);
        // SAFETY: the caller's.
        unsafe { put(to, name.map_or(std::ptr::null(), std::ffi::CStr::as_ptr), NULL) }?;
        name.map(drop).ok_or(VENDOR.codes.value)
    }

    fn cuDeviceGetCount(count: *mut c_int) |machine| {
        initialised()?;
        // SAFETY: the caller's.
        unsafe { put(count, machine.settings().devices as c_int, NULL) }
    }

    fn cuDeviceGet(to: *mut c_int, ordinal: c_int) |machine| {
        device(machine, ordinal)?;
        // SAFETY: the caller's.
        unsafe { put(to, ordinal, NULL) }
    }

    fn cuDeviceGetName(to: *mut c_char, len: c_int, of: c_int) |machine| {
        device(machine, of)?;
        // SAFETY: the caller's.
        unsafe { put_text(to, usize::try_from(len).unwrap_or(0), &machine.settings().name, NULL) }
    }

    fn cuDeviceGetAttribute(to: *mut c_int, attribute: c_int, of: c_int) |machine| {
        device(machine, of)?;
        let (major, minor) = capability(&machine.settings().arch);
        let value = match attribute {
            WARP_SIZE => 32,
            MULTIPROCESSORS => machine.settings().units.cast_signed(),
            CAPABILITY_MAJOR => major,
            CAPABILITY_MINOR => minor,
            // None, so that callers allocate with cuMemAlloc.
            MEMORY_POOLS => 0,
            _ => return Err(VENDOR.codes.value),
        };
        // SAFETY: the caller's.
        unsafe { put(to, value, NULL) }
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, of: c_int) |machine| {
        device(machine, of)?;
        // SAFETY: the caller's.
        unsafe { put(bytes, machine.settings().memory as usize, NULL) }
    }

    fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, of: c_int) |machine| {
        let of = device(machine, of)?;
        if context.is_null() {
            return Err(NULL);
        }
        let retained = machine.retain(of)?;
        // SAFETY: the caller's.
        unsafe { put(context, object(retained), NULL) }
    }

    fn cuDevicePrimaryCtxRelease_v2(of: c_int) |machine| {
        machine.release(device(machine, of)?)
    }

    fn cuCtxPushCurrent_v2(context: *mut c_void) |machine| {
        initialised()?;
        current::push(machine, handle(context))
    }

    fn cuCtxPopCurrent_v2(context: *mut *mut c_void) |_machine| {
        initialised()?;
        let popped = current::pop()?;
        if context.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe { put(context, object(popped), NULL) }
    }

    fn cuCtxGetCurrent(context: *mut *mut c_void) |_machine| {
        initialised()?;
        // SAFETY: the caller's.
        unsafe { put(context, current::get().map_or(std::ptr::null_mut(), object), NULL) }
    }

    fn cuCtxSetCurrent(context: *mut c_void) |machine| {
        initialised()?;
        current::set(machine, handle(context))
    }

    fn cuCtxSynchronize() |machine| {
        machine.synchronize_device(current::device(machine)?)
    }
}
