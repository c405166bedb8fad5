//! The runtime's error codes.

use lockstep_gpu::Codes;

/// Codes after which the device is lost to this process. Most kernel faults do not get here, because the
/// runtime aborts the process ("Memory access fault by GPU node").
const STICKY: [i32; 10] = [
    4,    // hipErrorDeinitialized: the process is shutting down
    214,  // hipErrorECCNotCorrectable
    700,  // hipErrorIllegalAddress
    702,  // hipErrorLaunchTimeOut
    709,  // hipErrorContextIsDestroyed
    710,  // hipErrorAssert
    719,  // hipErrorLaunchFailure
    1052, // hipErrorRuntimeMemory
    1053, // hipErrorRuntimeOther
    53,   // hipErrorPriorLaunchFailure
];

pub(crate) const CODES: Codes = Codes {
    // hipErrorNoDevice, hipErrorOutOfMemory
    no_device: 100,
    out_of_memory: 2,
    sticky: &STICKY,
    unnamed: "a code that this runtime has no name for",
};

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_gpu::Kind;

    #[test]
    fn codes_mean_what_the_manual_says() {
        assert_eq!(CODES.kind(100), Kind::NoDevice);
        assert_eq!(CODES.kind(2), Kind::OutOfMemory);
        assert_eq!([700, 719, 1053].map(|code| CODES.kind(code)), [Kind::Sticky; 3]);
        // Out of resources, an invalid value and an unknown future code leave the device intact.
        assert_eq!([701, 1, 99_999].map(|code| CODES.kind(code)), [Kind::Call; 3]);
    }
}
