//! Which CPU levels and thread counts can be tested here, and what a missing one means.

use lockstep::{Backend, Device, SimdLevel};

/// The environment variable that lists backends whose absence is a failure: `LOCKSTEP_REQUIRE=avx512,cuda`.
pub const REQUIRE: &str = "LOCKSTEP_REQUIRE";

/// A level or backend that cannot be tested here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// What is missing and why.
    pub reason: String,
    /// Whether [`REQUIRE`] names it.
    pub required: bool,
}

/// The level of this name. Errors: there is none.
pub fn named(name: &str) -> Result<SimdLevel, String> {
    let found = SimdLevel::ALL.into_iter().find(|level| level.name() == name);
    let known = || SimdLevel::ALL.map(SimdLevel::name).join(", ");
    found.ok_or_else(|| format!("no level is called '{name}': expected one of {}", known()))
}

/// Opens a device of this level. Errors: why there is none.
pub fn open(level: SimdLevel, threads: usize) -> Result<Device, Absent> {
    Device::cpu_with(Some(level), Some(threads)).map_err(|error| Absent::new(level.name(), error.to_string()))
}

impl Absent {
    /// Creates the value; `name` is the name used in [`REQUIRE`].
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

/// Names in [`REQUIRE`] that match no level or backend, so that a misspelt requirement cannot pass.
pub fn unknown() -> Vec<String> {
    let known = |name: &String| {
        SimdLevel::ALL.iter().any(|level| level.name() == name)
            || Backend::ALL.iter().any(|b| b.name() == name)
    };
    required().into_iter().filter(|name| !known(name)).collect()
}

/// The reference device, plain with one thread, which every machine has.
pub fn reference() -> Device {
    match open(SimdLevel::Plain, 1) {
        Ok(device) => device,
        Err(absent) => panic!("{}", absent.reason),
    }
}
