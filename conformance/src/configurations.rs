//! What `lockstep verify` runs on: every way in which this machine can execute a kernel.

use crate::levels::{self, Absent};
use lockstep::{Backend, Device, SimdLevel};

/// One way to execute kernels, or the reason it is unavailable.
pub struct Configuration {
    /// The name in reports: `avx2, 2 threads`; `cuda:0, 8 warps a block`.
    pub name: String,
    /// The device.
    pub device: Result<Device, Absent>,
}

/// Every configuration of `backends`: each CPU level with 1 and 2 threads, and each GPU with every launch
/// geometry.
pub fn configurations(backends: &[Backend]) -> Vec<Configuration> {
    backends.iter().flat_map(|backend| of(*backend)).collect()
}

fn of(backend: Backend) -> Vec<Configuration> {
    match backend {
        Backend::Cpu => {
            let with = |threads: usize| if threads == 1 { String::new() } else { "s".into() };
            let each = |level: SimdLevel| {
                [1, 2].map(|threads| Configuration {
                    name: format!("{level}, {threads} thread{}", with(threads)),
                    device: levels::open(level, threads),
                })
            };
            SimdLevel::ALL.into_iter().flat_map(each).collect()
        }
        gpu => match Device::all(gpu) {
            Ok(devices) => devices
                .into_iter()
                .flat_map(|device| device.geometries())
                .map(|device| Configuration { name: device.describe(), device: Ok(device) })
                .collect(),
            Err(error) => vec![Configuration {
                name: gpu.to_string(),
                device: Err(Absent::new(gpu.name(), error.to_string())),
            }],
        },
    }
}
