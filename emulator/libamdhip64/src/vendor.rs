//! HIP's codes, and the machine that is simulated.

use crate::load::program;
use lockstep_emulator::runtime::{Codes, Settings, Vendor};
use std::ffi::CStr;

/// HIP.
pub(crate) static VENDOR: Vendor = Vendor {
    api: "HIP",
    codes: Codes {
        value: 1,
        out_of_memory: 2,
        not_initialised: 3,
        no_device: 100,
        no_such_device: 101,
        no_context: 201,
        image: 200,
        handle: 400,
        not_found: 500,
        not_ready: 600,
        // AMD's runtime aborts the process on most kernel faults; this one returns a code.
        address: 700,
        misaligned: 719,
        instruction: 719,
        launch: 719,
        unknown: 999,
        sticky: &[4, 53, 214, 700, 702, 709, 710, 719, 1052, 1053],
    },
    settings: || Settings {
        devices: 1,
        name: "Lockstep emulator (gfx942)".to_owned(),
        arch: "gfx942".to_owned(),
        memory: 1 << 30,
        units: 2,
        threads: 256,
        version: version(6, 4),
        refuse: None,
        lacks: Vec::new(),
        failures: Vec::new(),
        quiet: false,
        approximate: None,
        flip: None,
    },
    version,
    load: program,
};

fn version(major: u32, minor: u32) -> i32 {
    (major * 10_000_000 + minor * 100_000).cast_signed()
}

/// Returns the name of a code; for an unknown one, the name of the unknown error, as HIP does.
pub(crate) fn name(code: i32) -> &'static CStr {
    match code {
        0 => c"hipSuccess",
        1 => c"hipErrorInvalidValue",
        2 => c"hipErrorOutOfMemory",
        3 => c"hipErrorNotInitialized",
        4 => c"hipErrorDeinitialized",
        21 => c"hipErrorInvalidMemcpyDirection",
        53 => c"hipErrorPriorLaunchFailure",
        98 => c"hipErrorInvalidDeviceFunction",
        100 => c"hipErrorNoDevice",
        101 => c"hipErrorInvalidDevice",
        200 => c"hipErrorInvalidImage",
        201 => c"hipErrorInvalidContext",
        209 => c"hipErrorNoBinaryForGpu",
        214 => c"hipErrorECCNotCorrectable",
        400 => c"hipErrorInvalidHandle",
        500 => c"hipErrorNotFound",
        600 => c"hipErrorNotReady",
        700 => c"hipErrorIllegalAddress",
        701 => c"hipErrorLaunchOutOfResources",
        702 => c"hipErrorLaunchTimeOut",
        709 => c"hipErrorContextIsDestroyed",
        710 => c"hipErrorAssert",
        719 => c"hipErrorLaunchFailure",
        1052 => c"hipErrorRuntimeMemory",
        1053 => c"hipErrorRuntimeOther",
        _ => c"hipErrorUnknown",
    }
}
