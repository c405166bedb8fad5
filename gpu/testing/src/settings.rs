//! The machine that the driver simulates.

use crate::entries::Compute;
use lockstep_gpu::{DeviceInfo, Shape, Version};

/// The machine to simulate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its devices.
    pub devices: Vec<DeviceInfo>,
    /// The only architecture that the kernels run on.
    pub supported: &'static str,
    /// The driver's version.
    pub version: Version,
    /// The version that the kernels need.
    pub needed: Version,
    /// The shape of a warp or a wave.
    pub shape: Shape,
    /// How rows are run.
    pub compute: Compute,
    /// Bytes of device memory.
    pub memory: usize,
}

impl Settings {
    /// A machine with `devices` devices like NVIDIA's, on the plain team.
    pub fn warps(devices: usize) -> Settings {
        let device = |ordinal| DeviceInfo {
            ordinal,
            name: format!("host {ordinal}"),
            arch: "host_1".to_owned(),
            memory: 1 << 30,
            units: 3,
        };
        Settings {
            devices: (0..devices).map(device).collect(),
            supported: "host_1",
            version: Version::new(1, 2),
            needed: Version::new(1, 2),
            shape: Shape { lanes: 32, teams_per_block: 8, max_teams_per_block: 32 },
            compute: Compute::Plain,
            memory: 1 << 30,
        }
    }

    /// A machine with `devices` devices like AMD's, on the plain team.
    pub fn waves(devices: usize) -> Settings {
        let shape = Shape { lanes: 64, teams_per_block: 1, max_teams_per_block: 1 };
        Settings { shape, ..Settings::warps(devices) }
    }

    /// The same machine with a host thread for each lane.
    pub fn on_lanes(self) -> Settings {
        Settings { compute: Compute::Lanes, ..self }
    }
}
