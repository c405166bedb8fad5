//! Which CPU levels and thread counts there are to test, and what an absent one means.

use lockstep::{Device, Level};

/// Names of backends whose absence is a failure, from the environment: `LOCKSTEP_REQUIRE=avx512,avx2`.
pub const REQUIRE: &str = "LOCKSTEP_REQUIRE";

/// A level that cannot be tested here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Which and why.
    pub reason: String,
    /// Whether [`REQUIRE`] names it.
    pub required: bool,
}

/// A device of this level, or why there is none.
pub fn open(level: Level, threads: usize) -> Result<Device, Absent> {
    Device::cpu_with(Some(level), Some(threads)).map_err(|error| {
        let required = required().iter().any(|name| name == level.name());
        let reason = error.to_string();
        Absent {
            reason: if required { format!("{reason} ({REQUIRE} asks for it)") } else { reason },
            required,
        }
    })
}

/// The names in [`REQUIRE`].
pub fn required() -> Vec<String> {
    let names = std::env::var(REQUIRE).unwrap_or_default();
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Names in [`REQUIRE`] that no level has: a misspelt requirement must not pass.
pub fn unknown() -> Vec<String> {
    required().into_iter().filter(|name| Level::ALL.iter().all(|level| level.name() != name)).collect()
}

/// The reference: plain, one thread. Every machine has it.
pub fn reference() -> Device {
    match open(Level::Plain, 1) {
        Ok(device) => device,
        Err(absent) => panic!("{}", absent.reason),
    }
}
