//! The driver's error codes.

use lockstep_gpu::Codes;

/// Codes after which the context is lost and every later call returns the same code.
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

pub(crate) const CODES: Codes = Codes {
    // CUDA_ERROR_NO_DEVICE, CUDA_ERROR_OUT_OF_MEMORY
    no_device: 100,
    out_of_memory: 2,
    sticky: &STICKY,
    unnamed: "a code that this driver has no name for",
};

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_gpu::Kind;

    #[test]
    fn codes_mean_what_the_manual_says() {
        assert_eq!(CODES.kind(100), Kind::NoDevice);
        assert_eq!(CODES.kind(2), Kind::OutOfMemory);
        assert_eq!([700, 719, 716].map(|code| CODES.kind(code)), [Kind::Sticky; 3]);
        // Out of resources, an invalid value and an unknown future code leave the context intact.
        assert_eq!([701, 1, 99_999].map(|code| CODES.kind(code)), [Kind::Call; 3]);
    }
}
