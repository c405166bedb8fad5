//! Devices.

use crate::error::{Refusal, c_string, enter, enter_or, ls_status};
use crate::text::{given, hand_out, take_back, text};
use lockstep::Device;
use std::ffi::{CString, c_char};
use std::ptr::null;

/// The device that a call or plan runs on. Any number of threads may use it at once.
pub struct ls_device {
    pub(crate) own: Device,
    describes: CString,
}

/// Opens a device by name: `cpu`, `cpu:avx2`, `cuda`, `cuda:1`, `rocm:0`. `threads` is for `cpu`; 0: one per
/// core. A GPU's driver library is looked up by this call; building and linking need no vendor library. The
/// choice of device changes the speed, never the bits.
///
/// # Safety
/// `name` is null or a 0-terminated string; `out` is null or points to a pointer, which is null after a
/// failure. Free the device with `ls_device_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_device_open(
    name: *const c_char,
    threads: usize,
    out: *mut *mut ls_device,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        hand_out(out, || {
            let own = match (text(name, "name")?, threads) {
                (name, 0) => Device::open(name)?,
                ("cpu", threads) => Device::cpu_with(None, Some(threads))?,
                (name, _) => {
                    let says = format!("is {threads}: expected 0 for device `{name}`");
                    return Err(Refusal::new(ls_status::Argument, "threads", says));
                }
            };
            Ok(ls_device { describes: c_string(&own.describe()), own })
        })
    })
}

/// A description of the device for logs, valid until the device is freed; null if `device` is null.
///
/// # Safety
/// `device` is null or an open device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_device_describe(device: *const ls_device) -> *const c_char {
    // SAFETY: the caller upholds it.
    enter_or(null(), || Ok(unsafe { given(device, "device")? }.describes.as_ptr()))
}

/// Frees a device; does nothing if it is null.
///
/// # Safety
/// `device` is null, or an open device that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_device_free(device: *mut ls_device) {
    // SAFETY: the caller upholds it.
    unsafe { take_back(device) }
}
