//! What differs between the two APIs, as data.

use super::settings::Settings;
use crate::fault::FaultKind;
use crate::launch::Program;
use std::sync::Arc;

/// Reads a module for this machine: the text of a PTX file, the bytes of a code object. An error is the
/// compiler's log.
pub type Loader = fn(&[u8], &Settings) -> Result<Arc<dyn Program>, String>;

/// One API.
#[derive(Clone, Copy, Debug)]
pub struct Vendor {
    /// Its name: `CUDA`.
    pub api: &'static str,
    /// Its codes.
    pub codes: Codes,
    /// The machine that is played unless somebody asks for another.
    pub settings: fn() -> Settings,
    /// `major.minor` as the API writes it.
    pub version: fn(u32, u32) -> i32,
    /// Its interpreter.
    pub load: Loader,
}

/// Numbers of results. 0 is success in both APIs.
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    /// An argument that is out of its range, or null.
    pub value: i32,
    /// No memory left.
    pub out_of_memory: i32,
    /// No call before the one that initialises.
    pub not_initialised: i32,
    /// No device at all.
    pub no_device: i32,
    /// Not this device.
    pub no_such_device: i32,
    /// No context is current.
    pub no_context: i32,
    /// A module that cannot be read.
    pub image: i32,
    /// A handle that nothing has.
    pub handle: i32,
    /// A name that the module does not have.
    pub not_found: i32,
    /// An event that has not happened.
    pub not_ready: i32,
    /// A kernel's access outside of memory.
    pub address: i32,
    /// A kernel's access that is not aligned.
    pub misaligned: i32,
    /// An instruction that is none.
    pub instruction: i32,
    /// Anything else that stops a kernel.
    pub launch: i32,
    /// What this library did wrong itself: it panicked.
    pub unknown: i32,
    /// Codes after which a device is lost.
    pub sticky: &'static [i32],
}

impl Codes {
    /// The code that a device would report for a kernel's fault. Most of what the emulator finds no device
    /// notices at all.
    pub fn of(&self, fault: &FaultKind) -> i32 {
        match fault {
            FaultKind::OutOfBounds { .. } => self.address,
            FaultKind::Misaligned { .. } => self.misaligned,
            FaultKind::Unimplemented(_) | FaultKind::Jump(_) => self.instruction,
            _ => self.launch,
        }
    }
}
