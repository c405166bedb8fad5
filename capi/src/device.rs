//! Devices.

use crate::error::{Refusal, c_string, enter, enter_or, ls_status};
use crate::text::{given, hand_out, take_back, text};
use lockstep::Device;
use std::ffi::{CString, c_char};
use std::ptr::null;

/// Where a call or a plan runs. Any number of threads may use it at once.
pub struct ls_device {
    pub(crate) own: Device,
    describes: CString,
}

/// Opens a device by name: `cpu`, `cpu:avx2`, `cuda`, `cuda:1`, `rocm:0`. `threads` is for `cpu`; 0: one for each core. A GPU's driver
/// library is looked for now; nothing of a vendor is needed to build or link. Which device is chosen changes speed, never bits.
///
/// # Safety
/// `name` is null or ends with a 0; `out` is null or that of a pointer, which is null after a failure. `ls_device_free` frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_device_open(
    name: *const c_char,
    threads: usize,
    out: *mut *mut ls_device,
) -> ls_status {
    // SAFETY: the caller's.
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

/// What it is, for a log, for as long as the device is there; null for a null.
///
/// # Safety
/// `device` is null or an open device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_device_describe(device: *const ls_device) -> *const c_char {
    // SAFETY: the caller's.
    enter_or(null(), || Ok(unsafe { given(device, "device")? }.describes.as_ptr()))
}

/// Frees a device; null is nothing.
///
/// # Safety
/// `device` is null, or an open device that nothing uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_device_free(device: *mut ls_device) {
    // SAFETY: the caller's.
    unsafe { take_back(device) }
}
