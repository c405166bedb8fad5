//! The machine behind a library's functions.

use crate::host::ProcessMemory;
use lockstep_emulator::runtime::{Machine, Settings, Vendor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// The environment variable that holds the settings: docs/emulator.md, "Fault injection".
pub(crate) const SETTINGS: &str = "LOCKSTEP_EMULATOR";

/// A library: a `static` of its crate.
pub struct Library {
    vendor: &'static Vendor,
    /// Returns the device that is current on this thread.
    current: fn(&Machine) -> Option<usize>,
    machine: Mutex<Option<Arc<Machine>>>,
}

impl Library {
    /// Creates a library for a vendor; `current` returns the device that is current on the calling thread.
    pub const fn new(vendor: &'static Vendor, current: fn(&Machine) -> Option<usize>) -> Library {
        Library { vendor, current, machine: Mutex::new(None) }
    }

    /// Returns the machine, created on the first call as the environment describes. An unknown setting gives
    /// an error code.
    pub fn machine(&self) -> Result<Arc<Machine>, i32> {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(machine) = &*machine {
            return Ok(machine.clone());
        }
        let settings = std::env::var(SETTINGS).unwrap_or_default();
        Ok(machine.insert(self.build(&settings)?).clone())
    }

    fn build(&self, settings: &str) -> Result<Arc<Machine>, i32> {
        match Settings::parse(self.vendor, settings) {
            Ok(settings) => Ok(Arc::new(Machine::new(self.vendor, settings, Box::new(ProcessMemory)))),
            Err(error) => {
                eprintln!("{SETTINGS}: {error}");
                Err(self.vendor.codes.unknown)
            }
        }
    }

    /// Replaces the machine by a fresh one, as in a new process. Handles of the old one become invalid; its
    /// pinned memory is never freed, because somebody may still read it.
    pub fn reset(&self, settings: &str) -> i32 {
        self.build(settings).map_or_else(
            |code| code,
            |fresh| {
                *self.machine.lock().unwrap_or_else(PoisonError::into_inner) = Some(fresh);
                0
            },
        )
    }

    /// Runs a call of the API: counts it, fails it if requested, otherwise does it. A panic becomes a code
    /// too.
    pub fn call(&self, function: &'static str, body: impl FnOnce(&Machine) -> Result<(), i32>) -> i32 {
        let run = || {
            let machine = self.machine()?;
            machine.call(function, (self.current)(&machine))?;
            body(&machine)
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => 0,
            Ok(Err(code)) => code,
            Err(_) => {
                eprintln!("lockstep emulator: {function} panicked");
                self.vendor.codes.unknown
            }
        }
    }
}
