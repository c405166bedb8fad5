//! Where ops run.

use crate::{Backend, Compiled, Error, Level};
use lockstep_cpu::Cpu;
use lockstep_cuda as cuda;
use lockstep_gpu::{Driver, Geometry, Gpu, Report};
use lockstep_rocm as rocm;
use std::fmt;

/// A device. Which one is chosen changes speed, never bits.
#[derive(Clone, Debug)]
pub struct Device {
    kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Cpu(Cpu),
    Cuda(cuda::Gpu),
    Rocm(rocm::Gpu),
}

impl Device {
    /// This machine's CPU: the fastest SIMD level, all cores.
    pub fn cpu() -> Device {
        Device { kind: Kind::Cpu(Cpu::best()) }
    }

    /// The CPU at a given level and number of threads; `None` chooses the best.
    ///
    /// Errors with the levels that this machine has when it lacks the one asked for; there is no quiet
    /// fallback.
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

    fn gpu(backend: Backend, ordinal: usize) -> Result<Device, Error> {
        let kind = match backend {
            Backend::Cpu => return Ok(Device::cpu()),
            Backend::Cuda => Kind::Cuda(cuda::open(ordinal)?),
            Backend::Rocm => Kind::Rocm(rocm::open(ordinal)?),
        };
        Ok(Device { kind })
    }

    /// Every device of a kind that can be used. Errors when there is none, with the reason that the first one
    /// has.
    pub fn all(backend: Backend) -> Result<Vec<Device>, Error> {
        let report = match backend {
            Backend::Cpu => return Ok(vec![Device::cpu()]),
            Backend::Cuda => cuda::devices(),
            Backend::Rocm => rocm::devices(),
        };
        if let Some(missing) = report.missing {
            return Err(missing.into());
        }
        let usable = report.devices.iter().filter(|device| device.unusable.is_none());
        let devices: Vec<Device> =
            usable.map(|device| Device::gpu(backend, device.ordinal)).collect::<Result<_, _>>()?;
        match report.devices.into_iter().find_map(|device| device.unusable) {
            Some(error) if devices.is_empty() => Err(error.into()),
            _ => Ok(devices),
        }
    }

    /// This device with every launch geometry that its backend has, for tests: results must not depend on it.
    pub fn geometries(&self) -> Vec<Device> {
        let kinds: Vec<Kind> = match &self.kind {
            Kind::Cpu(_) => vec![self.kind.clone()],
            Kind::Cuda(gpu) => geometries(gpu).into_iter().map(Kind::Cuda).collect(),
            Kind::Rocm(gpu) => geometries(gpu).into_iter().map(Kind::Rocm).collect(),
        };
        kinds.into_iter().map(|kind| Device { kind }).collect()
    }

    #[doc(hidden)]
    pub fn is_cpu(&self) -> bool {
        matches!(self.kind, Kind::Cpu(_))
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// What kind it is.
    pub fn backend(&self) -> Backend {
        match &self.kind {
            Kind::Cpu(_) => Backend::Cpu,
            Kind::Cuda(_) => Backend::Cuda,
            Kind::Rocm(_) => Backend::Rocm,
        }
    }

    /// Its number among the devices of its kind; none for a CPU.
    pub fn ordinal(&self) -> Option<usize> {
        match &self.kind {
            Kind::Cpu(_) => None,
            Kind::Cuda(gpu) => Some(gpu.info().ordinal),
            Kind::Rocm(gpu) => Some(gpu.info().ordinal),
        }
    }

    /// What it is, for a log: `cpu (avx512, 2 threads)`.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Cpu(cpu) => {
                let threads = cpu.threads();
                format!("cpu ({}, {threads} thread{})", cpu.level(), if threads == 1 { "" } else { "s" })
            }
            Kind::Cuda(gpu) => describe(Backend::Cuda, gpu),
            Kind::Rocm(gpu) => describe(Backend::Rocm, gpu),
        }
    }

    /// The CPU, if it is one with another way to a result than the reference's.
    pub(crate) fn fast_cpu(&self) -> Option<&Cpu> {
        match &self.kind {
            Kind::Cpu(cpu) if cpu.level() != Level::Plain => Some(cpu),
            _ => None,
        }
    }

    /// Runs every row of an op of the table over host memory. A GPU copies inputs there and outputs back.
    ///
    /// Errors: an array whose length the rows do not have, or an index out of bounds, by its name; what keeps
    /// a GPU from running it.
    pub fn run<K: Compiled>(&self, kernel: &K) -> Result<(), Error> {
        match &self.kind {
            Kind::Cpu(cpu) => {
                kernel.check_bounds()?;
                cpu.run(kernel);
            }
            Kind::Cuda(gpu) => gpu.run(kernel)?,
            Kind::Rocm(gpu) => gpu.run(kernel)?,
        }
        Ok(())
    }
}

/// A GPU with every size of block, and with grids of one block and of a few, so that teams take rows in turn.
fn geometries<D: Driver>(gpu: &Gpu<D>) -> Vec<Gpu<D>> {
    let teams = [None, Some(1), Some(2), Some(4), Some(16), Some(32)];
    let with = |teams_per_block, max_blocks| gpu.with_geometry(Geometry { teams_per_block, max_blocks });
    let sizes = teams.into_iter().map(|teams| with(teams, None));
    sizes.chain([with(None, Some(1)), with(Some(3), Some(7)), with(Some(1), Some(2))]).collect()
}

fn describe<D: Driver>(backend: Backend, gpu: &Gpu<D>) -> String {
    let (info, geometry) = (gpu.info(), gpu.geometry());
    let of = |number: Option<u32>, what: &str| number.map_or(String::new(), |n| format!(", {n} {what}"));
    format!(
        "{backend}:{} ({}, {}{}{})",
        info.ordinal,
        info.name,
        info.arch,
        of(geometry.teams_per_block, "teams a block"),
        of(geometry.max_blocks, "blocks")
    )
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
    entries.extend(of_report(Backend::Cuda, cuda::devices()));
    entries.extend(of_report(Backend::Rocm, rocm::devices()));
    entries
}

fn of_report(backend: Backend, report: Report) -> Vec<Entry> {
    let driver = match (&report.library, report.version) {
        (Some(library), Some(version)) => format!(" ({library}, version {version})"),
        (Some(library), None) => format!(" ({library})"),
        (None, _) => String::new(),
    };
    let absent =
        |missing| Entry { backend, name: backend.to_string(), found: Err(format!("{missing}{driver}")) };
    let device = |device: &lockstep_gpu::DeviceReport| {
        let (name, what) = (format!("{backend}:{}", device.ordinal), format!("{device}{driver}"));
        Entry { backend, name, found: if device.unusable.is_none() { Ok(what) } else { Err(what) } }
    };
    report.missing.iter().map(absent).chain(report.devices.iter().map(device)).collect()
}
