//! Which CPU levels and thread counts there are to test, and what an absent one means.

use lockstep::{Backend, Device, Level};

/// Names of backends whose absence is a failure, from the environment: `LOCKSTEP_REQUIRE=avx512,cuda`.
pub const REQUIRE: &str = "LOCKSTEP_REQUIRE";

/// A level or a backend that cannot be tested here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Which and why.
    pub reason: String,
    /// Whether [`REQUIRE`] names it.
    pub required: bool,
}

/// A device of this level, or why there is none.
pub fn open(level: Level, threads: usize) -> Result<Device, Absent> {
    Device::cpu_with(Some(level), Some(threads)).map_err(|error| Absent::new(level.name(), error.to_string()))
}

impl Absent {
    /// `name` is what [`REQUIRE`] would call it.
    pub fn new(name: &str, reason: String) -> Absent {
        let required = required().iter().any(|asked| asked == name);
        Absent {
            reason: if required { format!("{reason} ({REQUIRE} asks for it)") } else { reason },
            required,
        }
    }
}

/// The names in [`REQUIRE`].
pub fn required() -> Vec<String> {
    let names = std::env::var(REQUIRE).unwrap_or_default();
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Names in [`REQUIRE`] that no level or backend has: a misspelt requirement must not pass.
pub fn unknown() -> Vec<String> {
    let known = |name: &String| {
        Level::ALL.iter().any(|level| level.name() == name) || Backend::ALL.iter().any(|b| b.name() == name)
    };
    required().into_iter().filter(|name| !known(name)).collect()
}

/// The reference: plain, one thread. Every machine has it.
pub fn reference() -> Device {
    match open(Level::Plain, 1) {
        Ok(device) => device,
        Err(absent) => panic!("{}", absent.reason),
    }
}
