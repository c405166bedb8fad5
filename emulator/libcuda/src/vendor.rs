//! CUDA's codes, and the machine that is simulated.

use crate::load::program;
use lockstep_emulator::runtime::{Codes, Settings, Vendor};

/// CUDA.
pub(crate) static VENDOR: Vendor = Vendor {
    api: "CUDA",
    codes: Codes {
        image: 218,
        misaligned: 716,
        instruction: 715,
        sticky: &[4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719],
        ..Codes::COMMON
    },
    settings: || Settings::new("Lockstep emulator (PTX)", "sm_90", 13_000),
    version: |major, minor| (major * 1000 + minor * 10).cast_signed(),
    load: program,
};

/// Returns the name of a code.
pub(crate) fn name(code: i32) -> Option<&'static std::ffi::CStr> {
    Some(match code {
        0 => c"CUDA_SUCCESS",
        1 => c"CUDA_ERROR_INVALID_VALUE",
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        3 => c"CUDA_ERROR_NOT_INITIALIZED",
        4 => c"CUDA_ERROR_DEINITIALIZED",
        100 => c"CUDA_ERROR_NO_DEVICE",
        101 => c"CUDA_ERROR_INVALID_DEVICE",
        200 => c"CUDA_ERROR_INVALID_IMAGE",
        201 => c"CUDA_ERROR_INVALID_CONTEXT",
        209 => c"CUDA_ERROR_NO_BINARY_FOR_GPU",
        214 => c"CUDA_ERROR_ECC_UNCORRECTABLE",
        218 => c"CUDA_ERROR_INVALID_PTX",
        220 => c"CUDA_ERROR_NVLINK_UNCORRECTABLE",
        222 => c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        226 => c"CUDA_ERROR_CONTAINED",
        400 => c"CUDA_ERROR_INVALID_HANDLE",
        500 => c"CUDA_ERROR_NOT_FOUND",
        600 => c"CUDA_ERROR_NOT_READY",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        701 => c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        702 => c"CUDA_ERROR_LAUNCH_TIMEOUT",
        709 => c"CUDA_ERROR_CONTEXT_IS_DESTROYED",
        710 => c"CUDA_ERROR_ASSERT",
        714 => c"CUDA_ERROR_HARDWARE_STACK_ERROR",
        715 => c"CUDA_ERROR_ILLEGAL_INSTRUCTION",
        716 => c"CUDA_ERROR_MISALIGNED_ADDRESS",
        717 => c"CUDA_ERROR_INVALID_ADDRESS_SPACE",
        718 => c"CUDA_ERROR_INVALID_PC",
        719 => c"CUDA_ERROR_LAUNCH_FAILED",
        999 => c"CUDA_ERROR_UNKNOWN",
        _ => return None,
    })
}
