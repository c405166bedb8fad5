//! What the codes of a vendor's API mean.

use crate::{Fault, Kind};

/// The codes that Lockstep tells apart.
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    /// There is no device.
    pub no_device: i32,
    /// There is no memory left.
    pub out_of_memory: i32,
    /// After these the context is lost: every later call returns the same.
    pub sticky: &'static [i32],
    /// The name of a code that the library does not know.
    pub unnamed: &'static str,
}

impl Codes {
    /// What a code means.
    pub fn kind(&self, code: i32) -> Kind {
        match code {
            _ if code == self.no_device => Kind::NoDevice,
            _ if code == self.out_of_memory => Kind::OutOfMemory,
            _ if self.sticky.contains(&code) => Kind::Sticky,
            _ => Kind::Call,
        }
    }

    /// The fault for a code, with the library's name for it.
    pub fn fault(&self, function: &'static str, code: i32, name: Option<String>) -> Fault {
        let name = name.unwrap_or_else(|| self.unnamed.to_owned());
        Fault { function, code, name, kind: self.kind(code) }
    }
}
