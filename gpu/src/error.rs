//! What can go wrong on a GPU. Every variant that a driver caused carries the driver's code and its name.

use crate::{Owner, Version};
use std::fmt;
use thiserror::Error as ThisError;

/// An error that a driver returned: `cuMemAlloc_v2 returned CUDA_ERROR_OUT_OF_MEMORY (2)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The vendor's function that returned it.
    pub function: &'static str,
    /// The vendor's error code.
    pub code: i32,
    /// The vendor's name for the code.
    pub name: String,
    /// What it means for the device.
    pub kind: Kind,
}

/// What a fault means for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is no device.
    NoDevice,
    /// Memory ran out.
    OutOfMemory,
    /// The context is lost: every later call fails with the same code.
    Sticky,
    /// The driver did not hand out this address.
    ForeignPointer,
    /// Only this call failed.
    Call,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {} ({})", self.function, self.name, self.code)
    }
}

/// A module that a driver did not load, with its compiler's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The fault that the driver returned.
    pub fault: Fault,
    /// The compiler's log, which may be empty.
    pub log: String,
}

/// Why a GPU operation failed.
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
        /// The system loader's message.
        loader: String,
    },
    /// The vendor's library lacks a function: it is older than what Lockstep can use.
    #[error("{library} has no function {symbol} ({loader})")]
    MissingSymbol {
        /// The library.
        library: String,
        /// The function.
        symbol: &'static str,
        /// The system loader's message.
        loader: String,
    },
    /// The driver cannot load the built kernels.
    #[error("the {api} driver is version {found}: the kernels need {needed} or later")]
    DriverTooOld {
        /// `CUDA` or `HIP`.
        api: &'static str,
        /// The driver's version.
        found: Version,
        /// The oldest version that can.
        needed: Version,
    },
    /// The driver is installed but sees no device.
    #[error("the {api} driver reports no device: {fault}")]
    NoDevice {
        /// `CUDA` or `HIP`.
        api: &'static str,
        /// The driver's fault.
        fault: Fault,
    },
    /// There are devices, but not the one asked for.
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
        /// The architecture that the kernels need.
        needed: &'static str,
    },
    /// The driver did not load the kernels.
    #[error("the driver refused the kernels: {fault}{}{log}", if .log.is_empty() { "" } else { ": " })]
    Module {
        /// The driver's fault.
        fault: Fault,
        /// Its compiler's log.
        log: String,
    },
    /// This build leaves the vendor's backend out.
    #[error(
        "this build has no {api} backend: the feature `{feature}` of lockstep-rl (or lockstep-ops) is off"
    )]
    NotBuilt {
        /// `CUDA` or `HIP`.
        api: &'static str,
        /// The cargo feature that is off.
        feature: &'static str,
    },
    /// This build contains no kernels for the vendor.
    #[error("this build holds no kernels for {api}: {artifact} is empty")]
    NoKernels {
        /// `CUDA` or `HIP`.
        api: &'static str,
        /// The file that should hold them.
        artifact: &'static str,
    },
    /// The built kernels lack an entry point, or core's op table lacks an op.
    #[error("the built kernels have no entry point `{entry}`: {because}")]
    MissingEntry {
        /// The entry point.
        entry: String,
        /// What the driver said, or why no entry point exists.
        because: String,
    },
    /// Out of memory. The device remains usable.
    #[error("out of memory: {bytes} bytes requested, {free} of {total} free: {fault}")]
    OutOfMemory {
        /// Bytes requested.
        bytes: usize,
        /// Bytes free; 0 if the driver could not say.
        free: usize,
        /// Bytes of the device; 0 if the driver could not say.
        total: usize,
        /// The driver's fault.
        fault: Fault,
    },
    /// An op was not launched. The device remains usable.
    #[error("`{entry}` was not launched: {fault}")]
    Launch {
        /// The entry point.
        entry: &'static str,
        /// The driver's fault.
        fault: Fault,
    },
    /// The device's context is lost, usually because of a bad address in an earlier kernel. The device is
    /// unusable for the rest of the process; every later call returns this error at once.
    #[error("the context is lost, and this process can no longer use the device: {fault}")]
    Sticky {
        /// The driver's fault.
        fault: Fault,
    },
    /// A pointer that this device cannot use. Nothing was launched.
    #[error("array {argument} of `{op}` at {address:#x} is not memory of this device: {owner}")]
    ForeignPointer {
        /// The op.
        op: &'static str,
        /// Index of the array among the op's arrays, in the order of its fields, from 0.
        argument: usize,
        /// The address.
        address: usize,
        /// Who owns the memory; if the driver does not know it, the driver's fault.
        owner: Owner,
    },
    /// A stream of another device or context. Nothing was launched.
    #[error("the stream {stream:#x} belongs to another device or context")]
    ForeignStream {
        /// The stream's handle.
        stream: usize,
    },
    /// An argument that failed a check.
    #[error(transparent)]
    Argument(#[from] lockstep_core::Error),
    /// Any other call that failed. The device remains usable.
    #[error("{fault}")]
    Call {
        /// The driver's fault.
        fault: Fault,
    },
}

impl Error {
    /// Returns whether the device (or, if there is none, the library) remains usable after this error.
    pub fn usable(&self) -> bool {
        !matches!(self, Error::Sticky { .. })
    }

    /// Returns the driver's fault, if a driver reported one.
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
