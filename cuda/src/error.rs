//! The driver's codes.

use lockstep_gpu::{Fault, Kind};

/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: i32 = 100;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i32 = 2;

/// After these the context is lost: every later call returns the same.
pub(crate) const STICKY: [i32; 14] = [
    4,   // CUDA_ERROR_DEINITIALIZED: the process is shutting down
    214, // CUDA_ERROR_ECC_UNCORRECTABLE
    220, // CUDA_ERROR_NVLINK_UNCORRECTABLE
    226, // CUDA_ERROR_CONTAINED: a memory fault that took this context only
    700, // CUDA_ERROR_ILLEGAL_ADDRESS
    702, // CUDA_ERROR_LAUNCH_TIMEOUT
    709, // CUDA_ERROR_CONTEXT_IS_DESTROYED
    710, // CUDA_ERROR_ASSERT
    714, // CUDA_ERROR_HARDWARE_STACK_ERROR
    715, // CUDA_ERROR_ILLEGAL_INSTRUCTION
    716, // CUDA_ERROR_MISALIGNED_ADDRESS
    717, // CUDA_ERROR_INVALID_ADDRESS_SPACE
    718, // CUDA_ERROR_INVALID_PC
    719, // CUDA_ERROR_LAUNCH_FAILED
];

/// What a code means.
fn kind(code: i32) -> Kind {
    match code {
        NO_DEVICE => Kind::NoDevice,
        OUT_OF_MEMORY => Kind::OutOfMemory,
        _ if STICKY.contains(&code) => Kind::Sticky,
        _ => Kind::Call,
    }
}

/// The fault for a code.
pub(crate) fn fault(function: &'static str, code: i32, name: Option<String>) -> Fault {
    let name = name.unwrap_or_else(|| "a code that this driver has no name for".to_owned());
    Fault { function, code, name, kind: kind(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_the_manual_says() {
        assert_eq!(kind(100), Kind::NoDevice);
        assert_eq!(kind(2), Kind::OutOfMemory);
        assert_eq!([700, 719, 716].map(kind), [Kind::Sticky; 3]);
        // Out of resources, an invalid value and a code of the future leave the context alone.
        assert_eq!([701, 1, 99_999].map(kind), [Kind::Call; 3]);
    }
}
