//! The functions as C sees them: errors are codes, and results are written where they belong.

use lockstep_emulated_hip::devices::*;
use lockstep_emulated_hip::lockstep_emulator_reset;
use lockstep_emulated_hip::memory::*;
use lockstep_emulated_hip::modules::*;
use lockstep_emulated_hip::streams::*;
use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Resets to a fresh machine, with device 0 current and no error remembered.
fn machine(settings: &str) -> MutexGuard<'static, ()> {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let settings = CString::new(settings).unwrap();
    // SAFETY: a C string.
    unsafe {
        assert_eq!(lockstep_emulator_reset(settings.as_ptr()), 0);
        hipSetDevice(0);
        hipGetLastError();
    }
    guard
}

#[test]
fn nothing_may_be_null() {
    let _machine = machine("");
    // SAFETY: null is what is tested.
    let codes = unsafe {
        [
            hipDriverGetVersion(null_mut()),
            hipGetDeviceCount(null_mut()),
            hipDeviceGetName(null_mut(), 9, 0),
            hipDeviceGetAttribute(null_mut(), 63, 0),
            hipDeviceTotalMem(null_mut(), 0),
            hipGetDevicePropertiesR0600(null_mut(), 0),
            hipGetDeviceProperties(null_mut(), 0),
            hipGetDevice(null_mut()),
            hipModuleLoadData(null_mut(), null()),
            hipMemGetInfo(null_mut(), null_mut()),
            hipMalloc(null_mut(), 8),
            hipHostMalloc(null_mut(), 8, 0),
            hipMemcpyAsync(null_mut(), null(), 8, 1, null_mut()),
            hipMemsetAsync(null_mut(), 0, 8, null_mut()),
            hipStreamCreateWithFlags(null_mut(), 0),
            hipEventCreateWithFlags(null_mut(), 0),
        ]
    };
    assert_eq!(codes, [1; 16]);
    // SAFETY: as above.
    unsafe {
        assert_eq!([hipFree(null_mut()), hipHostFree(null_mut())], [0; 2], "as the manual says");
        assert_eq!(
            hipModuleLaunchKernel(null_mut(), 1, 1, 1, 64, 1, 1, 0, null_mut(), null_mut(), null_mut()),
            400
        );
        assert_eq!([hipModuleUnload(null_mut()), hipEventDestroy(null_mut())], [400; 2]);
        assert_eq!(hipModuleLoadData(&mut null_mut(), c"no ELF file".as_ptr().cast()), 200);
    }
}

#[test]
fn the_last_error_is_remembered_once() {
    let _machine = machine("");
    // SAFETY: results go to locals.
    unsafe {
        assert_eq!(hipSetDevice(7), 101);
        assert_eq!(hipGetDevice(&mut 0), 0);
        assert_eq!([hipGetLastError(), hipGetLastError()], [101, 0]);
        assert_eq!(CStr::from_ptr(hipGetErrorName(101)), c"hipErrorInvalidDevice");
        assert_eq!(CStr::from_ptr(hipGetErrorName(98_765)), c"hipErrorUnknown");
    }
}

#[test]
fn memory_is_named_as_its_version_does() {
    for (version, unregistered, host, device) in [("6.4", (0, Some(0)), 1, 2), ("5.7", (1, None), 0, 1)] {
        let _machine = machine(&format!("version={version}"));
        let (mut memory, mut pinned) = (null_mut(), null_mut());
        let kind = |address: *const c_void| {
            // `hipPointerAttribute_t`, with spare space: its first field is the type.
            let mut found = [-1i32; 32];
            // SAFETY: larger than the structure.
            let code = unsafe { hipPointerGetAttributes(found.as_mut_ptr().cast(), address) };
            (code, found[0])
        };
        // SAFETY: results go to locals.
        unsafe {
            assert_eq!(hipMalloc(&mut memory, 8), 0);
            assert_eq!(hipHostMalloc(&mut pinned, 8, 0), 0);
        }
        assert_eq!([kind(memory), kind(pinned)], [(0, device), (0, host)]);
        let (code, name) = unregistered;
        assert_eq!(kind((&raw const version).cast()), (code, name.unwrap_or(-1)));
        // SAFETY: just allocated.
        unsafe { assert_eq!([hipFree(memory), hipHostFree(pinned), hipFree(memory)], [0, 0, 1]) };
    }
}

#[test]
fn directions_are_those_of_the_manual() {
    let _machine = machine("");
    let (mut memory, mut other, values, mut back) = (null_mut(), null_mut(), [1u8, 2, 3], [0u8; 3]);
    // SAFETY: as long as stated.
    unsafe {
        assert_eq!([hipMalloc(&mut memory, 3), hipMalloc(&mut other, 3)], [0; 2]);
        assert_eq!(hipMemcpyAsync(memory, values.as_ptr().cast(), 3, 1, null_mut()), 0);
        assert_eq!(hipMemcpyAsync(other, memory, 3, 3, null_mut()), 0);
        assert_eq!(hipMemcpyAsync(back.as_mut_ptr().cast(), other, 3, 2, null_mut()), 0);
        assert_eq!(back, values, "pageable memory is there when the copy returns");
        assert_eq!(hipMemcpyAsync(back.as_mut_ptr().cast(), other, 3, 0, null_mut()), 21);
        assert_eq!(hipMemcpyAsync(memory, values.as_ptr().cast(), 4, 1, null_mut()), 1, "one byte too many");
        assert_eq!([hipFree(memory), hipFree(other)], [0; 2]);
    }
}
