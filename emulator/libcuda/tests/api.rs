//! The functions as C sees them: errors are codes, and results are written where they belong.

use lockstep_emulated_cuda::devices::*;
use lockstep_emulated_cuda::memory::*;
use lockstep_emulated_cuda::modules::*;
use lockstep_emulated_cuda::streams::*;
use lockstep_emulated_cuda::{lockstep_emulator_live, lockstep_emulator_reset};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Resets to a fresh, initialised machine.
fn machine(settings: &str) -> MutexGuard<'static, ()> {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let settings = CString::new(settings).unwrap();
    // SAFETY: a C string.
    assert_eq!(unsafe { lockstep_emulator_reset(settings.as_ptr()) }, 0);
    // SAFETY: no pointers.
    unsafe { cuInit(0) };
    guard
}

/// Makes a device's context current and returns it.
fn enter(device: c_int) -> *mut c_void {
    let mut context = null_mut();
    // SAFETY: results go to locals.
    unsafe {
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, device), 0);
        assert_eq!(cuCtxPushCurrent_v2(context), 0);
    }
    context
}

fn leave(device: c_int) {
    let mut context = null_mut();
    // SAFETY: results go to locals.
    unsafe {
        assert_eq!(cuCtxPopCurrent_v2(&mut context), 0);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(device), 0);
    }
}

#[test]
fn nothing_may_be_null() {
    let _machine = machine("");
    enter(0);
    // SAFETY: null is what is tested.
    let codes = unsafe {
        [
            cuDriverGetVersion(null_mut()),
            cuGetErrorName(1, null_mut()),
            cuDeviceGetCount(null_mut()),
            cuDeviceGet(null_mut(), 0),
            cuDeviceGetName(null_mut(), 9, 0),
            cuDeviceGetAttribute(null_mut(), 16, 0),
            cuDeviceTotalMem_v2(null_mut(), 0),
            cuDevicePrimaryCtxRetain(null_mut(), 0),
            cuModuleLoadDataEx(null_mut(), c"".as_ptr().cast(), 0, null_mut(), null_mut()),
            cuMemGetInfo_v2(null_mut(), null_mut()),
            cuMemAlloc_v2(null_mut(), 8),
            cuMemFree_v2(0),
            cuMemHostAlloc(null_mut(), 8, 0),
            cuMemFreeHost(null_mut()),
            cuMemcpyHtoDAsync_v2(0, null(), 8, null_mut()),
            cuMemcpyDtoHAsync_v2(null_mut(), 0, 8, null_mut()),
            cuStreamCreate(null_mut(), 0),
            cuEventCreate(null_mut(), 0),
        ]
    };
    assert_eq!(codes, [1; 18]);
    // SAFETY: as above.
    let handles = unsafe {
        let mut milliseconds = 0.0;
        [
            cuModuleUnload(null_mut()),
            cuStreamDestroy_v2(null_mut()),
            cuEventDestroy_v2(null_mut()),
            cuEventSynchronize(null_mut()),
            cuEventRecord(null_mut(), null_mut()),
            cuStreamWaitEvent(null_mut(), null_mut(), 0),
            cuEventElapsedTime(&mut milliseconds, null_mut(), null_mut()),
            cuLaunchKernel(null_mut(), 1, 1, 1, 32, 1, 1, 0, null_mut(), null_mut(), null_mut()),
        ]
    };
    assert_eq!(handles, [400; 8]);
    leave(0);
}

#[test]
fn there_is_a_context_or_a_code() {
    let _machine = machine("devices=2");
    let mut address = 0;
    // SAFETY: results go to locals.
    unsafe {
        let mut current = null_mut();
        assert_eq!((cuCtxGetCurrent(&mut current), cuCtxGetCurrent(null_mut()), current), (0, 1, null_mut()));
        assert_eq!((cuCtxSetCurrent(null_mut()), cuCtxSynchronize()), (0, 201));
        assert_eq!(cuMemAlloc_v2(&mut address, 8), 201);
        assert_eq!(cuCtxPopCurrent_v2(&mut null_mut()), 201);
        assert_eq!(cuCtxPushCurrent_v2(null_mut()), 201);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 201);
        assert_eq!(cuDeviceGet(&mut 0, 2), 101);
        assert_eq!(cuDeviceGet(&mut 0, -1), 101);
        assert_eq!(cuInit(1), 1);
        let (first, second) = (enter(0), enter(1));
        assert_ne!(first, second);
        // Replaces the current context, and back.
        assert_eq!((cuCtxSetCurrent(first), cuCtxGetCurrent(&mut current), current), (0, 0, first));
        assert_eq!((cuCtxSetCurrent(second), cuCtxGetCurrent(&mut current), current), (0, 0, second));
        assert_eq!((cuCtxSetCurrent(9 as *mut c_void), cuCtxSynchronize()), (201, 0));
        assert_eq!(cuMemAlloc_v2(&mut address, 8), 0);
        let (mut ordinal, mut of) = (-1, null_mut::<c_void>());
        assert_eq!(cuPointerGetAttribute((&raw mut ordinal).cast(), 9, address + 7), 0);
        assert_eq!(cuPointerGetAttribute((&raw mut of).cast(), 1, address), 0);
        assert_eq!((ordinal, of), (1, second));
        assert_eq!(cuPointerGetAttribute((&raw mut ordinal).cast(), 9, address + 8), 1);
        leave(1);
        assert_eq!(cuPointerGetAttribute((&raw mut ordinal).cast(), 9, address), 1, "gone with its context");
        leave(0);
        let mut live = [9; 6];
        lockstep_emulator_live(live.as_mut_ptr());
        assert_eq!(live, [0; 6]);
    }
}

#[test]
fn codes_have_their_names() {
    let _machine = machine("");
    let name = |code| {
        let mut name = null();
        // SAFETY: the result goes to a local; a name is a C string.
        unsafe { (cuGetErrorName(code, &mut name) == 0).then(|| CStr::from_ptr(name).to_str().unwrap()) }
    };
    assert_eq!(name(0), Some("CUDA_SUCCESS"));
    assert_eq!(name(700), Some("CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_eq!(name(98_765), None);
}

#[test]
fn a_text_is_cut_at_the_end_of_its_buffer() {
    let _machine = machine("name=1234567890;refuse=abcdefgh");
    let mut name = [0x7fu8; 6];
    let (mut log, mut module) = ([0x7fu8; 8], null_mut());
    enter(0);
    // SAFETY: the buffers are as long as stated.
    unsafe {
        assert_eq!(cuDeviceGetName(name.as_mut_ptr().cast(), 5, 0), 0);
        assert_eq!(cuDeviceGetName(name.as_mut_ptr().cast::<c_char>(), 0, 0), 1);
        let mut options = [5, 6];
        let mut values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut::<c_void>(4)];
        let image = c"anything".as_ptr().cast();
        let code = cuModuleLoadDataEx(&mut module, image, 2, options.as_mut_ptr(), values.as_mut_ptr());
        assert_eq!(code, 218);
        assert_eq!(cuModuleLoadDataEx(&mut module, image, 0, null_mut(), null_mut()), 218);
    }
    assert_eq!(&name, b"1234\0\x7f");
    assert_eq!(&log[..5], b"abc\0\x7f");
    leave(0);
}

#[test]
fn what_is_misspelt_is_said() {
    let _machine = machine("");
    // SAFETY: C strings, or null.
    unsafe {
        assert_eq!(lockstep_emulator_reset(c"devises=2".as_ptr()), 999);
        assert_eq!(lockstep_emulator_reset(null()), -1);
        assert_eq!(lockstep_emulated_cuda::lockstep_emulator_inject(c"cuInit".as_ptr()), -1);
    }
}
