//! The runtime's codes.

use lockstep_gpu::{Fault, Kind};

/// `hipErrorNoDevice`.
const NO_DEVICE: i32 = 100;
/// `hipErrorOutOfMemory`.
const OUT_OF_MEMORY: i32 = 2;

/// After these the device is lost to this process. Most faults of a kernel do not get here: the runtime aborts the process
/// ("Memory access fault by GPU node").
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
    let name = name.unwrap_or_else(|| "a code that this runtime has no name for".to_owned());
    Fault { function, code, name, kind: kind(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_the_manual_says() {
        assert_eq!(kind(100), Kind::NoDevice);
        assert_eq!(kind(2), Kind::OutOfMemory);
        assert_eq!([700, 719, 1053].map(kind), [Kind::Sticky; 3]);
        // Out of resources, an invalid value and a code of the future leave the device alone.
        assert_eq!([701, 1, 99_999].map(kind), [Kind::Call; 3]);
    }
}
