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
};

#[test]
fn a_clean_session() {
    LIBRARY.run("a_clean_session", "", |controls| common::a_clean_session(&HIP, controls));
}

#[test]
fn every_call_may_fail() {
    LIBRARY.run("every_call_may_fail", "", |controls| common::sweep::every_call_may_fail(&HIP, controls));
}

#[test]
fn every_function_may_fail_for_good() {
    LIBRARY.run("every_function_may_fail_for_good", "", |controls| {
        common::sweep::every_function_may_fail_for_good(&HIP, controls);
    });
}

#[test]
fn no_device() {
    LIBRARY.run("no_device", "devices=0", |controls| {
        common::no_device(&HIP, controls, (100, "hipErrorNoDevice"));
    });
}

#[test]
fn no_such_device() {
    LIBRARY.run("no_such_device", "devices=2", |controls| common::no_such_device(&HIP, controls));
}

#[test]
fn a_driver_that_is_too_old() {
    LIBRARY.run("a_driver_that_is_too_old", "version=5.7", |controls| {
        common::too_old(&HIP, controls, (Version::new(5, 7), Version::new(6, 0)));
    });
}

#[test]
fn a_device_that_the_kernels_are_not_for() {
    LIBRARY.run("a_device_that_the_kernels_are_not_for", "arch=gfx90a", |controls| {
        common::unsupported(&HIP, controls, "gfx90a");
    });
}

#[test]
fn kernels_that_the_driver_refuses() {
    let log = "ptxas fatal: line 12: as you asked";
    LIBRARY.run("kernels_that_the_driver_refuses", &format!("refuse={log}"), |controls| {
        common::refused_module(&HIP, controls, (200, "hipErrorInvalidImage"), "");
    });
}

#[test]
fn an_entry_point_that_is_missing() {
    LIBRARY.run("an_entry_point_that_is_missing", "lacks=check_offsets", |controls| {
        common::missing_entry(&HIP, controls, "check_offsets");
    });
}

#[test]
fn memory_that_runs_out() {
    LIBRARY.run("memory_that_runs_out", "memory=4M", |controls| common::out_of_memory(&HIP, controls));
}

#[test]
fn a_launch_that_fails() {
    LIBRARY.run("a_launch_that_fails", "", |controls| {
        common::a_launch_that_fails(&HIP, controls, "hipModuleLaunchKernel");
    });
}

#[test]
fn a_kernel_that_takes_the_device() {
    LIBRARY.run("a_kernel_that_takes_the_device", "", |controls| {
        common::a_kernel_that_takes_the_device(&HIP, controls);
    });
}

#[test]
fn pointers_of_others() {
    LIBRARY.run("pointers_of_others", "devices=2", |controls| {
        common::pointers_of_others(&HIP, controls, "hipModuleLaunchKernel");
    });
}

#[test]
fn streams_of_others() {
    LIBRARY.run("streams_of_others", "devices=2", |controls| common::streams_of_others(&HIP, controls));
}

#[test]
fn arguments_that_only_the_device_can_see() {
    LIBRARY.run("arguments_that_only_the_device_can_see", "", |controls| common::arguments(&HIP, controls));
}

#[test]
fn a_code_without_a_name() {
    LIBRARY.run("a_code_without_a_name", "", |controls| {
        let name = "hipErrorUnknown";
        common::a_code_without_a_name(&HIP, controls, "hipMalloc", name);
    });
}

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

#[test]
fn several_threads_at_once() {
    LIBRARY.run("several_threads_at_once", "", |controls| common::several_threads(&HIP, controls));
}
