//! HIP's codes, and the machine that is simulated.

use crate::load::program;
use lockstep_emulator::runtime::{Codes, Settings, Vendor};
use std::ffi::CStr;

/// HIP.
pub(crate) static VENDOR: Vendor = Vendor {
    api: "HIP",
    codes: Codes {
        sticky: &[4, 53, 214, 700, 702, 709, 710, 719, 1052, 1053],
        // AMD's runtime aborts the process on most kernel faults; this one returns a code.
        ..Codes::COMMON
    },
    settings: || Settings::new("Lockstep emulator (gfx942)", "gfx942", version(6, 4)),
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
