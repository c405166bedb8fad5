//! Where ops run.

use crate::{Error, Level};
use lockstep_core::op::DisjointRows;
use lockstep_cpu::Cpu;

/// A device. Which one is chosen changes speed, never bits.
#[derive(Clone, Debug)]
pub struct Device {
    cpu: Cpu,
}

impl Device {
    /// This machine's CPU: the fastest SIMD level, all cores.
    pub fn cpu() -> Device {
        Device { cpu: Cpu::best() }
    }

    /// The CPU at a given level and number of threads; `None` chooses the best.
    ///
    /// Errors with the levels that this machine has when it lacks the one asked for; there is no quiet fallback.
    pub fn cpu_with(level: Option<Level>, threads: Option<usize>) -> Result<Device, Error> {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        let cpu = Cpu::new(level.unwrap_or_else(Level::best), threads.unwrap_or_else(all))?;
        Ok(Device { cpu })
    }

    /// What it is, for a log: `cpu (avx512, 2 threads)`.
    pub fn describe(&self) -> String {
        let threads = self.cpu.threads();
        format!("cpu ({}, {threads} thread{})", self.cpu.level(), if threads == 1 { "" } else { "s" })
    }

    /// Runs every row of a kernel.
    pub fn run<K: DisjointRows>(&self, kernel: &K) -> Result<(), Error> {
        self.cpu.run(kernel);
        Ok(())
    }
}
