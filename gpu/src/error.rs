//! What can go wrong on a GPU. Every variant that a driver caused carries the driver's code and name for it.

use crate::{Owner, Version};
use std::fmt;
use thiserror::Error as ThisError;

/// What a driver said: `cuMemAlloc_v2 returned CUDA_ERROR_OUT_OF_MEMORY (2)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The vendor's function.
    pub function: &'static str,
    /// The vendor's number.
    pub code: i32,
    /// The vendor's name for it.
    pub name: String,
    /// What it means for the device.
    pub kind: Kind,
}

/// What a fault means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No device is there.
    NoDevice,
    /// Memory ran out.
    OutOfMemory,
    /// The context is lost: every later call fails with the same code.
    Sticky,
    /// The address is not one that the driver gave out.
    ForeignPointer,
    /// The call failed and nothing else did.
    Call,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {} ({})", self.function, self.name, self.code)
    }
}

/// A module that a driver did not load, and what its compiler wrote about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The verdict.
    pub fault: Fault,
    /// The compiler's log, which may be empty.
    pub log: String,
}

/// Why a GPU did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The vendor's library is not on this machine.
    #[error("no {api} driver: none of {} could be loaded ({loader})", .tried.join(", "))]
    NoDriver {
        /// `CUDA` or `HIP`.
        api: &'static str,
        /// File names that were tried.
        tried: Vec<String>,
        /// What the system's loader said.
        loader: String,
    },
    /// The vendor's library lacks a function: it is older than what Lockstep can use.
    #[error("{library} has no function {symbol} ({loader})")]
    MissingSymbol {
        /// The library.
        library: String,
        /// The function.
        symbol: &'static str,
        /// What the system's loader said.
        loader: String,
    },
    /// The driver cannot load the built kernels.
    #[error("the {api} driver is version {found}: the kernels need {needed} or later")]
    DriverTooOld {
        /// `CUDA` or `HIP`.
        api: &'static str,
        /// The driver's version.
        found: Version,
        /// The first version that can.
        needed: Version,
    },
    /// The driver is there and sees no device.
    #[error("the {api} driver reports no device: {fault}")]
    NoDevice {
        /// `CUDA` or `HIP`.
        api: &'static str,
        /// The driver's words.
        fault: Fault,
    },
    /// There are devices, but not this one.
    #[error("there is no {api} device {ordinal}: the driver reports {count}")]
    NoSuchDevice {
        /// `CUDA` or `HIP`.
        api: &'static str,
        /// The device asked for.
        ordinal: usize,
        /// Number of devices.
        count: usize,
    },
    /// The kernels were not built for this device.
    #[error("device {ordinal} ({device}) is {found}: the kernels need {needed}")]
    Unsupported {
        /// Number of the device.
        ordinal: usize,
        /// Its name.
        device: String,
        /// Its architecture.
        found: String,
        /// What would do.
        needed: &'static str,
    },
    /// The driver did not load the kernels.
    #[error("the driver refused the kernels: {fault}{}{log}", if .log.is_empty() { "" } else { ": " })]
    Module {
        /// The driver's words.
        fault: Fault,
        /// The words of its compiler.
        log: String,
    },
    /// This build of the program holds no kernels for the vendor.
    #[error("this build holds no kernels for {api}: {artifact} is empty")]
    NoKernels {
        /// `CUDA` or `HIP`.
        api: &'static str,
        /// The file that should hold them.
        artifact: &'static str,
    },
    /// The built kernels lack an entry point, or core's table lacks an op.
    #[error("the built kernels have no entry point `{entry}`: {because}")]
    MissingEntry {
        /// The entry point.
        entry: String,
        /// What the driver said, or why there is none.
        because: String,
    },
    /// Memory ran out. The device goes on.
    #[error("out of memory: {bytes} bytes asked for, {free} of {total} free: {fault}")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes free, when the driver would say; 0 otherwise.
        free: usize,
        /// Bytes of the device; 0 when the driver would not say.
        total: usize,
        /// The driver's words.
        fault: Fault,
    },
    /// An op was not launched. The device goes on.
    #[error("`{entry}` was not launched: {fault}")]
    Launch {
        /// The entry point.
        entry: &'static str,
        /// The driver's words.
        fault: Fault,
    },
    /// The device's context is lost, usually to a bad address in an earlier kernel. Nothing on this device
    /// works any more in this process; every later call returns this at once.
    #[error("the context is lost, and nothing on this device works any more in this process: {fault}")]
    Sticky {
        /// The driver's words.
        fault: Fault,
    },
    /// A pointer that this device cannot use. Nothing was launched.
    #[error("array {argument} of `{op}` at {address:#x} is no memory of this device: {owner}")]
    ForeignPointer {
        /// The op.
        op: &'static str,
        /// Which of the op's arrays, in the order of its fields, from 0.
        argument: usize,
        /// The address.
        address: usize,
        /// Whose memory it is, in the driver's words when it does not know it.
        owner: Owner,
    },
    /// A stream of another device or context. Nothing was launched.
    #[error("the stream {stream:#x} belongs to another device or context")]
    ForeignStream {
        /// The stream's handle.
        stream: usize,
    },
    /// An argument that a check found wrong.
    #[error(transparent)]
    Argument(#[from] lockstep_core::Error),
    /// Any other call that failed. The device goes on.
    #[error("{fault}")]
    Call {
        /// The driver's words.
        fault: Fault,
    },
}

impl Error {
    /// Whether the device (the library, when there is none) may go on being used after this error.
    pub fn usable(&self) -> bool {
        !matches!(self, Error::Sticky { .. })
    }

    /// The driver's words, when a driver spoke.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Error::NoDevice { fault, .. }
            | Error::Module { fault, .. }
            | Error::OutOfMemory { fault, .. }
            | Error::Launch { fault, .. }
            | Error::Sticky { fault, .. }
            | Error::ForeignPointer { owner: Owner::Unknown(fault), .. }
            | Error::Call { fault, .. } => Some(fault),
            _ => None,
        }
    }
}
