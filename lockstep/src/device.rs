//! Where ops run.

use crate::{Backend, Error, Level};
use lockstep_core::op::DisjointRows;
use lockstep_cpu::Cpu;
use std::fmt;

/// A device. Which one is chosen changes speed, never bits.
#[derive(Clone, Debug)]
pub struct Device {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Cpu(Cpu),
}

impl Device {
    /// This machine's CPU: the fastest SIMD level, all cores.
    pub fn cpu() -> Device {
        Device { kind: Kind::Cpu(Cpu::best()) }
    }

    /// The CPU at a given level and number of threads; `None` chooses the best.
    ///
    /// Errors with the levels that this machine has when it lacks the one asked for; there is no quiet fallback.
    pub fn cpu_with(level: Option<Level>, threads: Option<usize>) -> Result<Device, Error> {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        let cpu = Cpu::new(level.unwrap_or_else(Level::best), threads.unwrap_or_else(all))?;
        Ok(Device { kind: Kind::Cpu(cpu) })
    }

    /// A device by name: `cpu`, `cpu:avx2`, `cuda`, `cuda:1`, `rocm:0`.
    ///
    /// Errors: a name of no kind, level or number; a device that is not there, and why.
    pub fn open(name: &str) -> Result<Device, Error> {
        let (kind, which) = match name.split_once(':') {
            Some((kind, which)) => (kind, Some(which)),
            None => (name, None),
        };
        let unknown = |because: String| Error::NoSuchDevice { asked: name.into(), because };
        match (kind.parse()?, which) {
            (Backend::Cpu, None) => Ok(Device::cpu()),
            (Backend::Cpu, Some(level)) => {
                let found = Level::ALL.into_iter().find(|known| known.name() == level);
                let names = Level::ALL.map(Level::name).join(", ");
                Device::cpu_with(Some(found.ok_or_else(|| unknown(format!("levels are {names}")))?), None)
            }
            (gpu, which) => {
                let number = which.unwrap_or("0").parse();
                Device::gpu(gpu, number.map_err(|_| unknown("expected a number behind the colon".into()))?)
            }
        }
    }

    fn gpu(backend: Backend, _ordinal: usize) -> Result<Device, Error> {
        Err(Error::NoSuchDevice { asked: backend.name().into(), because: "not in this build".into() })
    }

    /// Every device of a kind. Errors when there is none, and why.
    pub fn all(backend: Backend) -> Result<Vec<Device>, Error> {
        match backend {
            Backend::Cpu => Ok(vec![Device::cpu()]),
            gpu => Device::gpu(gpu, 0).map(|device| vec![device]),
        }
    }

    /// This device with every launch geometry that its backend has, for tests: results must not depend on it.
    pub fn geometries(&self) -> Vec<Device> {
        vec![self.clone()]
    }

    /// What kind it is.
    pub fn backend(&self) -> Backend {
        match &self.kind {
            Kind::Cpu(_) => Backend::Cpu,
        }
    }

    /// What it is, for a log: `cpu (avx512, 2 threads)`.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Cpu(cpu) => {
                let threads = cpu.threads();
                format!("cpu ({}, {threads} thread{})", cpu.level(), if threads == 1 { "" } else { "s" })
            }
        }
    }

    /// Runs every row of a kernel over host memory. A GPU copies inputs there and outputs back.
    ///
    /// Errors: what keeps a GPU from doing so. A CPU always can.
    pub fn run<K: DisjointRows>(&self, kernel: &K) -> Result<(), Error> {
        match &self.kind {
            Kind::Cpu(cpu) => cpu.run(kernel),
        }
        Ok(())
    }
}

/// A line of [`devices`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What kind.
    pub backend: Backend,
    /// What it is called, for [`Device::open`].
    pub name: String,
    /// What it is, or why there is none.
    pub found: Result<String, String>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Ok(what) => write!(f, "{:<12} {what}", self.name),
            Err(why) => write!(f, "{:<12} absent: {why}", self.name),
        }
    }
}

/// What this machine can compute on: every device, and a line for each kind that has none, with the reason.
pub fn devices() -> Vec<Entry> {
    let mut entries = Vec::new();
    for level in Level::ALL {
        let found = match level.is_available() {
            true => {
                Ok(format!("CPU level {level}{}", if level == Level::best() { ", the default" } else { "" }))
            }
            false => Err(format!("this machine has no {level}")),
        };
        entries.push(Entry { backend: Backend::Cpu, name: format!("cpu:{level}"), found });
    }
    entries
}
