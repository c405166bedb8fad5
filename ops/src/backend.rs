//! The kinds of device.

use crate::Error;
use std::fmt;
use std::str::FromStr;

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// This machine's CPU.
    Cpu,
    /// NVIDIA GPUs through the CUDA driver.
    Cuda,
    /// AMD GPUs through HIP.
    Rocm,
}

impl Backend {
    /// All kinds.
    pub const ALL: [Backend; 3] = [Backend::Cpu, Backend::Cuda, Backend::Rocm];

    /// The name in lower case: `cpu`, `cuda` or `rocm`.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Cpu => "cpu",
            Backend::Cuda => "cuda",
            Backend::Rocm => "rocm",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(name: &str) -> Result<Backend, Error> {
        let found = Backend::ALL.into_iter().find(|backend| backend.name() == name);
        found.ok_or_else(|| Error::NoSuchDevice {
            asked: name.into(),
            because: "expected cpu, cuda or rocm".into(),
        })
    }
}
