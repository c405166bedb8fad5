//! `lockstep-cuda`, unchanged, on a library that fails on request. Each test runs in its own process, whose
//! loader finds the emulated `libcuda.so.1`.
#![cfg(target_os = "linux")]

mod common;

use common::Backend;
use lockstep_cuda::Driver;
use lockstep_emulated_abi::testing::Emulated;
use lockstep_gpu::{Error, Version};

const LIBRARY: Emulated = Emulated { built: "liblockstep_emulated_cuda.so", name: "libcuda.so.1" };

const CUDA: Backend<Driver> = Backend {
    open: lockstep_cuda::open,
    devices: lockstep_cuda::devices,
    symbols: include_str!("../../../cuda/src/symbols.rs"),
    unused: &["cuGetErrorName"],
    givers: &[
        "cuMemFree_v2",
        "cuMemFreeHost",
        "cuStreamDestroy_v2",
        "cuEventDestroy_v2",
        "cuModuleUnload",
        "cuDevicePrimaryCtxRelease_v2",
        // Nothing can be released without a current context.
        "cuCtxPushCurrent_v2",
        // Called again with a device's number, to release its context.
        "cuDeviceGet",
    ],
    names: ("CUDA", "Lockstep emulator (PTX)"),
    prefixes: ("cu", "CUDA_"),
    launch: "cuLaunchKernel",
    alloc: "cuMemAlloc_v2",
    no_device: (100, "CUDA_ERROR_NO_DEVICE"),
    too_old: (Version::new(10, 2), Version::new(11, 0)),
    other_arch: "sm_75",
    refused: (218, "CUDA_ERROR_INVALID_PTX", "ptxas fatal: line 12: as you asked"),
    nameless: "a code that this driver has no name for",
};

common::of_both!(LIBRARY, CUDA);

#[test]
fn a_library_that_lacks_a_function() {
    let lacks = ["cuEventElapsedTime"];
    LIBRARY.run_without("a_library_that_lacks_a_function", "", &lacks, |controls| {
        let error = lockstep_cuda::open(0).unwrap_err();
        let Error::MissingSymbol { library, symbol: "cuEventElapsedTime", loader } = &error else {
            panic!("{error}")
        };
        assert_eq!(library, "libcuda.so.1");
        assert!(loader.contains("cuEventElapsedTime") && error.usable(), "{error}");
        assert_eq!(lockstep_cuda::devices().missing, Some(error));
        common::nothing_left(controls, "a function is missing");
    });
}

#[test]
fn a_driver_that_cannot_name_its_codes() {
    LIBRARY.run("a_driver_that_cannot_name_its_codes", "fail=cuGetErrorName@1+:1", |controls| {
        let gpu = lockstep_cuda::open(0).unwrap();
        controls.inject("cuMemAlloc_v2@1:1");
        let error = gpu.alloc::<u8>(8).unwrap_err().to_string();
        assert_eq!(error, "cuMemAlloc_v2 returned a code that this driver has no name for (1)");
        drop(gpu);
        common::nothing_left(controls, "no names");
    });
}

/// The caller's context is current again after every call, and nothing of ours remains on the thread.
#[test]
fn the_callers_context_comes_back() {
    LIBRARY.run("the_callers_context_comes_back", "devices=2", |controls| {
        let [gpu, other] = [0, 1].map(|ordinal| lockstep_cuda::open(ordinal).unwrap());
        let (stream, there) = (gpu.stream().unwrap(), other.stream().unwrap());
        let one = gpu.upload(&stream, &[1u8, 2]).unwrap();
        let two = other.upload(&there, &[3u8]).unwrap();
        let pushes = controls.calls("cuCtxPushCurrent_v2");
        assert!(pushes > 4 && pushes == controls.calls("cuCtxPopCurrent_v2"));
        // Dropped in the wrong order, from another thread.
        std::thread::spawn(move || drop((gpu, two, other, there, one, stream))).join().unwrap();
        assert_eq!(controls.calls("cuCtxPushCurrent_v2"), controls.calls("cuCtxPopCurrent_v2"));
        common::nothing_left(controls, "two devices");
    });
}
