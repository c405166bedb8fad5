//! `lockstep-rocm`, unchanged, on a library that fails on request. Each test runs in its own process, whose
//! loader finds the emulated `libamdhip64.so`.
#![cfg(target_os = "linux")]

#[path = "../../libcuda/tests/common/mod.rs"]
mod common;

use common::Backend;
use lockstep_emulated_abi::testing::Emulated;
use lockstep_gpu::{Error, Version};
use lockstep_rocm::Driver;

const LIBRARY: Emulated = Emulated { built: "liblockstep_emulated_hip.so", name: "libamdhip64.so" };

const HIP: Backend<Driver> = Backend {
    open: lockstep_rocm::open,
    devices: lockstep_rocm::devices,
    symbols: include_str!("../../../rocm/src/symbols.rs"),
    // The older layout of the properties is requested only if there is no newer one; names and the last error
    // only after failures.
    unused: &["hipGetErrorName", "hipGetLastError", "hipGetDeviceProperties", "hipSetDevice"],
    givers: &[
        "hipFree",
        "hipHostFree",
        "hipStreamDestroy",
        "hipEventDestroy",
        "hipModuleUnload",
        // Nothing can be released unless the device is current.
        "hipGetDevice",
    ],
    names: ("HIP", "Lockstep emulator (gfx942)"),
    prefixes: ("hip", "hip"),
    launch: "hipModuleLaunchKernel",
    alloc: "hipMalloc",
    no_device: (100, "hipErrorNoDevice"),
    too_old: (Version::new(5, 7), Version::new(6, 0)),
    other_arch: "gfx90a",
    refused: (200, "hipErrorInvalidImage", ""),
    nameless: "hipErrorUnknown",
};

common::of_both!(LIBRARY, HIP);

#[test]
fn a_library_that_lacks_a_function() {
    let lacks = ["hipEventElapsedTime"];
    LIBRARY.run_without("a_library_that_lacks_a_function", "", &lacks, |controls| {
        let error = lockstep_rocm::open(0).unwrap_err();
        let Error::MissingSymbol { library, symbol: "hipEventElapsedTime", loader } = &error else {
            panic!("{error}")
        };
        assert_eq!(library, "libamdhip64.so");
        assert!(loader.contains("hipEventElapsedTime") && error.usable(), "{error}");
        assert_eq!(lockstep_rocm::devices().missing, Some(error));
        common::nothing_left(controls, "a function is missing");
    });
}

/// The caller's program does not find failures that we caused.
#[test]
fn the_last_error_is_taken_away() {
    LIBRARY.run("the_last_error_is_taken_away", "", |controls| {
        let gpu = lockstep_rocm::open(0).unwrap();
        controls.inject("hipMalloc@1:1");
        gpu.alloc::<u8>(8).unwrap_err();
        assert_eq!(controls.calls("hipGetLastError"), 1);
        drop(gpu);
        common::nothing_left(controls, "the last error");
    });
}

/// Without the newer layout of the properties, the older one is read.
#[test]
fn a_library_that_lacks_what_is_optional() {
    let lacks = ["hipGetDevicePropertiesR0600", "hipStreamGetDevice"];
    LIBRARY.run_without("a_library_that_lacks_what_is_optional", "", &lacks, |controls| {
        common::session::everything(lockstep_rocm::open(0)).unwrap();
        assert_eq!(controls.calls("hipStreamGetDevice"), 0);
        assert!(controls.calls("hipGetDeviceProperties") > 0);
        common::nothing_left(controls, "what is optional");
    });
}

#[test]
fn a_library_that_cannot_tell_the_architecture() {
    let lacks = ["hipGetDevicePropertiesR0600", "hipGetDeviceProperties"];
    LIBRARY.run_without("a_library_that_cannot_tell_the_architecture", "", &lacks, |controls| {
        common::unsupported(&HIP, controls, "unknown");
    });
}

/// The caller's device is current again after every call; if it cannot be changed, that is an error.
#[test]
fn the_callers_device_comes_back() {
    LIBRARY.run("the_callers_device_comes_back", "devices=2", |controls| {
        let other = lockstep_rocm::open(1).unwrap();
        let changes = controls.calls("hipSetDevice");
        assert!(changes > 0 && changes.is_multiple_of(2), "there and back, {changes}");
        controls.inject("hipSetDevice@1:101");
        let error = other.alloc::<u8>(8).unwrap_err();
        assert_eq!(error.to_string(), "hipSetDevice returned hipErrorInvalidDevice (101)");
        common::session::everything(Ok(other)).unwrap();
        common::nothing_left(controls, "two devices");
    });
}
