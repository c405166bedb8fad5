//! The meaning of a vendor API's error codes.

use crate::{Fault, Kind};

/// The error codes that Lockstep distinguishes.
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    /// No device.
    pub no_device: i32,
    /// Out of memory.
    pub out_of_memory: i32,
    /// Codes after which the context is lost and every later call returns the same code.
    pub sticky: &'static [i32],
    /// Name for a code that the library does not know.
    pub unnamed: &'static str,
}

impl Codes {
    /// Returns what a code means.
    pub fn kind(&self, code: i32) -> Kind {
        match code {
            _ if code == self.no_device => Kind::NoDevice,
            _ if code == self.out_of_memory => Kind::OutOfMemory,
            _ if self.sticky.contains(&code) => Kind::Sticky,
            _ => Kind::Call,
        }
    }

    /// Returns the fault for a code, with the library's name for it.
    pub fn fault(&self, function: &'static str, code: i32, name: Option<String>) -> Fault {
        let name = name.unwrap_or_else(|| self.unnamed.to_owned());
        Fault { function, code, name, kind: self.kind(code) }
    }
}
