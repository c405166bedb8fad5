//! The devices on which ops run.

use crate::gpu::{cuda, rocm};
use crate::{Backend, Compiled, Error, SimdLevel};
use lockstep_core::require;
use lockstep_cpu::Cpu;
use lockstep_gpu::{DeviceInfo, Geometry, Report, Stopwatch};
use std::fmt;
use std::sync::Arc;

/// A device that ops run on. The choice of device changes the speed and never the bits of a result.
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
    /// This machine's CPU, at its fastest SIMD level and on all cores.
    pub fn cpu() -> Device {
        Device { kind: Kind::Cpu(Cpu::best()) }
    }

    /// This machine's CPU at a given SIMD level and number of threads; `None` means the fastest level and all
    /// cores.
    ///
    /// Errors: a level that the machine lacks (the error lists those that it has); more than 1024 threads, or
    /// more than the system can start. There is no silent fallback.
    pub fn cpu_with(level: Option<SimdLevel>, threads: Option<usize>) -> Result<Device, Error> {
        let asked = threads.unwrap_or(1);
        require::scalar("threads", asked <= 1024, "at most 1024", asked as f64)?;
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        let cpu = Cpu::new(level.unwrap_or_else(SimdLevel::best), threads.unwrap_or_else(all))?;
        require::scalar(
            "threads",
            asked <= cpu.threads(),
            "a number that the system can start",
            asked as f64,
        )?;
        Ok(Device { kind: Kind::Cpu(cpu) })
    }

    /// Opens a device by name: `cpu`, `cpu:avx2`, `cuda`, `cuda:1`, `rocm:0`. A GPU without a number is
    /// number 0.
    ///
    /// Errors: a name with an unknown kind, level or number; a missing device, with the reason.
    pub fn open(name: &str) -> Result<Device, Error> {
        let (kind, which) = match name.split_once(':') {
            Some((kind, which)) => (kind, Some(which)),
            None => (name, None),
        };
        let unknown = |because: String| Error::NoSuchDevice { asked: name.into(), because };
        match (kind.parse()?, which) {
            (Backend::Cpu, None) => Ok(Device::cpu()),
            (Backend::Cpu, Some(level)) => {
                let found = SimdLevel::ALL.into_iter().find(|known| known.name() == level);
                let names = SimdLevel::ALL.map(SimdLevel::name).join(", ");
                Device::cpu_with(
                    Some(found.ok_or_else(|| unknown(format!("expected one of the levels {names}")))?),
                    None,
                )
            }
            (gpu, which) => {
                let number = which.unwrap_or("0").parse();
                Device::gpu(gpu, number.map_err(|_| unknown("expected a number after the colon".into()))?)
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

    /// Opens every usable device of a kind. Errors if there is none, with the reason given by the driver or
    /// by the first unusable device.
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

    /// This device in every launch geometry of its backend, for tests: results must not depend on the
    /// geometry.
    pub fn geometries(&self) -> Vec<Device> {
        let kinds: Vec<Kind> = match &self.kind {
            Kind::Cpu(_) => vec![self.kind.clone()],
            Kind::Cuda(gpu) => geometries().map(|geometry| Kind::Cuda(gpu.with_geometry(geometry))).collect(),
            Kind::Rocm(gpu) => geometries().map(|geometry| Kind::Rocm(gpu.with_geometry(geometry))).collect(),
        };
        kinds.into_iter().map(|kind| Device { kind }).collect()
    }

    /// For benchmarks: this device, timing what it launches; `None` for a CPU.
    #[doc(hidden)]
    pub fn with_stopwatch(&self, stopwatch: &Arc<Stopwatch>) -> Option<Device> {
        let kind = match &self.kind {
            Kind::Cpu(_) => return None,
            Kind::Cuda(gpu) => Kind::Cuda(gpu.with_stopwatch(stopwatch)),
            Kind::Rocm(gpu) => Kind::Rocm(gpu.with_stopwatch(stopwatch)),
        };
        Some(Device { kind })
    }

    #[doc(hidden)]
    pub fn is_cpu(&self) -> bool {
        matches!(self.kind, Kind::Cpu(_))
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The kind of the device.
    pub fn backend(&self) -> Backend {
        match &self.kind {
            Kind::Cpu(_) => Backend::Cpu,
            Kind::Cuda(_) => Backend::Cuda,
            Kind::Rocm(_) => Backend::Rocm,
        }
    }

    /// The number of the device among those of its kind; `None` for a CPU.
    pub fn ordinal(&self) -> Option<usize> {
        match &self.kind {
            Kind::Cpu(_) => None,
            Kind::Cuda(gpu) => Some(gpu.info().ordinal),
            Kind::Rocm(gpu) => Some(gpu.info().ordinal),
        }
    }

    /// A description for logs: `cpu (avx512, 2 threads)`.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Cpu(cpu) => {
                let threads = cpu.threads();
                format!("cpu ({}, {threads} thread{})", cpu.level(), if threads == 1 { "" } else { "s" })
            }
            Kind::Cuda(gpu) => describe(Backend::Cuda, gpu.info(), gpu.geometry()),
            Kind::Rocm(gpu) => describe(Backend::Rocm, gpu.info(), gpu.geometry()),
        }
    }

    /// The CPU, if the device is one whose level is not the plain reference.
    pub(crate) fn fast_cpu(&self) -> Option<&Cpu> {
        match &self.kind {
            Kind::Cpu(cpu) if cpu.level() != SimdLevel::Plain => Some(cpu),
            _ => None,
        }
    }

    /// Loads the GPU kernels of these ops, by name; does nothing on a CPU. Otherwise an op's first launch
    /// loads them, which is not possible while a stream is being captured.
    ///
    /// Errors: no op has that name; the driver refuses the kernels.
    pub fn load(&self, ops: &[&str]) -> Result<(), Error> {
        match &self.kind {
            Kind::Cpu(_) => {}
            Kind::Cuda(gpu) => gpu.load(ops)?,
            Kind::Rocm(gpu) => gpu.load(ops)?,
        }
        Ok(())
    }

    /// Runs every row of an op over host memory. On a GPU, inputs are copied to the device and outputs back.
    ///
    /// Errors: a scalar out of its domain; an array whose length does not match the rows or an index out of
    /// bounds, with the array's name; the reason why a GPU cannot run the op.
    pub fn run<K: Compiled>(&self, kernel: &K) -> Result<(), Error> {
        match &self.kind {
            Kind::Cpu(cpu) => {
                kernel.check()?;
                kernel.check_bounds()?;
                cpu.run(kernel);
            }
            Kind::Cuda(gpu) => gpu.run(kernel)?,
            Kind::Rocm(gpu) => gpu.run(kernel)?,
        }
        Ok(())
    }
}

/// Every block size, then grids of one block and of a few blocks, in which each team takes several rows, then
/// rows that several warps share.
fn geometries() -> impl Iterator<Item = Geometry> {
    let teams = [None, Some(1), Some(2), Some(4), Some(16), Some(32)];
    let with = |teams_per_block, max_blocks| Geometry { teams_per_block, max_blocks, warps_per_row: Some(1) };
    let shared =
        |warps, max_blocks| Geometry { warps_per_row: Some(warps), max_blocks, ..Geometry::default() };
    let sizes = teams.into_iter().map(move |teams| with(teams, None));
    let few = [with(None, Some(1)), with(Some(3), Some(7)), with(Some(1), Some(2))];
    sizes.chain(few).chain([Geometry::default(), shared(16, None), shared(3, Some(2))])
}

fn describe(backend: Backend, info: &DeviceInfo, geometry: Geometry) -> String {
    let of = |number: Option<u32>, what: &str| number.map_or(String::new(), |n| format!(", {n} {what}"));
    format!(
        "{backend}:{} ({}, {}{}{}{})",
        info.ordinal,
        info.name,
        info.arch,
        of(geometry.teams_per_block, "teams a block"),
        of(geometry.max_blocks, "blocks"),
        of(geometry.warps_per_row.filter(|warps| *warps > 1), "warps a row")
    )
}

/// A device in the list that [`devices`] returns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedDevice {
    /// The kind of the device.
    pub backend: Backend,
    /// The name that [`Device::open`] takes.
    pub name: String,
    /// A description of the device, or the reason why it is absent.
    pub found: Result<String, String>,
}

impl fmt::Display for ListedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Ok(what) => write!(f, "{:<12} {what}", self.name),
            Err(why) => write!(f, "{:<12} absent: {why}", self.name),
        }
    }
}

/// Lists every device of this machine, with one entry that gives the reason for each CPU level or kind of GPU
/// that is absent.
pub fn devices() -> Vec<ListedDevice> {
    let mut entries = Vec::new();
    for level in SimdLevel::ALL {
        let found = match level.is_available() {
            true => Ok(format!(
                "CPU level {level}{}",
                if level == SimdLevel::best() { ", the default" } else { "" }
            )),
            false => Err(format!("this machine does not support {level}")),
        };
        entries.push(ListedDevice { backend: Backend::Cpu, name: format!("cpu:{level}"), found });
    }
    entries.extend(of_report(Backend::Cuda, cuda::devices()));
    entries.extend(of_report(Backend::Rocm, rocm::devices()));
    entries
}

fn of_report(backend: Backend, report: Report) -> Vec<ListedDevice> {
    let driver = match (&report.library, report.version) {
        (Some(library), Some(version)) => format!(" ({library}, version {version})"),
        (Some(library), None) => format!(" ({library})"),
        (None, _) => String::new(),
    };
    let absent = |missing| ListedDevice {
        backend,
        name: backend.to_string(),
        found: Err(format!("{missing}{driver}")),
    };
    let device = |device: &lockstep_gpu::DeviceReport| {
        let (name, what) = (format!("{backend}:{}", device.ordinal), format!("{device}{driver}"));
        ListedDevice { backend, name, found: if device.unusable.is_none() { Ok(what) } else { Err(what) } }
    };
    report.missing.iter().map(absent).chain(report.devices.iter().map(device)).collect()
}
