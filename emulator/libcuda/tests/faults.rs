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
};

#[test]
fn a_clean_session() {
    LIBRARY.run("a_clean_session", "", |controls| common::a_clean_session(&CUDA, controls));
}

#[test]
fn every_call_may_fail() {
    LIBRARY.run("every_call_may_fail", "", |controls| common::sweep::every_call_may_fail(&CUDA, controls));
}

#[test]
fn every_function_may_fail_for_good() {
    LIBRARY.run("every_function_may_fail_for_good", "", |controls| {
        common::sweep::every_function_may_fail_for_good(&CUDA, controls);
    });
}

#[test]
fn no_device() {
    LIBRARY.run("no_device", "devices=0", |controls| {
        common::no_device(&CUDA, controls, (100, "CUDA_ERROR_NO_DEVICE"));
    });
}

#[test]
fn no_such_device() {
    LIBRARY.run("no_such_device", "devices=2", |controls| common::no_such_device(&CUDA, controls));
}

#[test]
fn a_driver_that_is_too_old() {
    LIBRARY.run("a_driver_that_is_too_old", "version=10.2", |controls| {
        common::too_old(&CUDA, controls, (Version::new(10, 2), Version::new(11, 0)));
    });
}

#[test]
fn a_device_that_the_kernels_are_not_for() {
    LIBRARY.run("a_device_that_the_kernels_are_not_for", "arch=sm_75", |controls| {
        common::unsupported(&CUDA, controls, "sm_75");
    });
}

#[test]
fn kernels_that_the_driver_refuses() {
    let log = "ptxas fatal: line 12: as you asked";
    LIBRARY.run("kernels_that_the_driver_refuses", &format!("refuse={log}"), |controls| {
        common::refused_module(&CUDA, controls, (218, "CUDA_ERROR_INVALID_PTX"), log);
    });
}

#[test]
fn an_entry_point_that_is_missing() {
    LIBRARY.run("an_entry_point_that_is_missing", "lacks=check_offsets", |controls| {
        common::missing_entry(&CUDA, controls, "check_offsets");
    });
}

#[test]
fn memory_that_runs_out() {
    LIBRARY.run("memory_that_runs_out", "memory=4M", |controls| common::out_of_memory(&CUDA, controls));
}

#[test]
fn a_launch_that_fails() {
    LIBRARY.run("a_launch_that_fails", "", |controls| {
        common::a_launch_that_fails(&CUDA, controls, "cuLaunchKernel");
    });
}

#[test]
fn a_kernel_that_takes_the_device() {
    LIBRARY.run("a_kernel_that_takes_the_device", "", |controls| {
        common::a_kernel_that_takes_the_device(&CUDA, controls);
    });
}

#[test]
fn pointers_of_others() {
    LIBRARY.run("pointers_of_others", "devices=2", |controls| {
        common::pointers_of_others(&CUDA, controls, "cuLaunchKernel");
    });
}

#[test]
fn streams_of_others() {
    LIBRARY.run("streams_of_others", "devices=2", |controls| common::streams_of_others(&CUDA, controls));
}

#[test]
fn arguments_that_only_the_device_can_see() {
    LIBRARY.run("arguments_that_only_the_device_can_see", "", |controls| common::arguments(&CUDA, controls));
}

#[test]
fn a_code_without_a_name() {
    LIBRARY.run("a_code_without_a_name", "", |controls| {
        let name = "a code that this driver has no name for";
        common::a_code_without_a_name(&CUDA, controls, "cuMemAlloc_v2", name);
    });
}

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

#[test]
fn several_threads_at_once() {
    LIBRARY.run("several_threads_at_once", "", |controls| common::several_threads(&CUDA, controls));
}
