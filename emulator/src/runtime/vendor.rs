//! The differences between the two APIs, as data.

use super::settings::Settings;
use crate::fault::FaultKind;
use crate::launch::Program;
use std::sync::Arc;

/// Reads a module for this machine: the text of a PTX file, or the bytes of a code object. The error is the
/// compiler's log.
pub type Loader = fn(&[u8], &Settings) -> Result<Arc<dyn Program>, String>;

/// One API.
#[derive(Clone, Copy, Debug)]
pub struct Vendor {
    /// Its name: `CUDA`.
    pub api: &'static str,
    /// Its codes.
    pub codes: Codes,
    /// The default machine.
    pub settings: fn() -> Settings,
    /// Encodes `major.minor` as the API does.
    pub version: fn(u32, u32) -> i32,
    /// Its interpreter.
    pub load: Loader,
}

/// Result codes. 0 is success in both APIs.
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    /// An argument that is out of range or null.
    pub value: i32,
    /// Out of memory.
    pub out_of_memory: i32,
    /// A call before initialisation.
    pub not_initialised: i32,
    /// There is no device.
    pub no_device: i32,
    /// There is no such device.
    pub no_such_device: i32,
    /// No context is current.
    pub no_context: i32,
    /// A module that cannot be read.
    pub image: i32,
    /// An unknown handle.
    pub handle: i32,
    /// A name that the module lacks.
    pub not_found: i32,
    /// An event that has not happened.
    pub not_ready: i32,
    /// A kernel's access outside of memory.
    pub address: i32,
    /// A kernel's access that is not aligned.
    pub misaligned: i32,
    /// An invalid instruction.
    pub instruction: i32,
    /// Anything else that stops a kernel.
    pub launch: i32,
    /// An internal error of this library: it panicked.
    pub unknown: i32,
    /// Codes after which a device is lost.
    pub sticky: &'static [i32],
}

impl Codes {
    /// The codes that both APIs have. A vendor replaces those for which it has a more specific one.
    pub const COMMON: Codes = Codes {
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
        address: 700,
        misaligned: 719,
        instruction: 719,
        launch: 719,
        unknown: 999,
        sticky: &[700, 719],
    };

    /// Returns the code that a device would report for a kernel's fault. Most faults that the emulator finds
    /// go unnoticed on a device.
    pub fn of(&self, fault: &FaultKind) -> i32 {
        match fault {
            FaultKind::OutOfBounds { .. } => self.address,
            FaultKind::Misaligned { .. } => self.misaligned,
            FaultKind::Unimplemented(_) | FaultKind::Jump(_) => self.instruction,
            _ => self.launch,
        }
    }
}
