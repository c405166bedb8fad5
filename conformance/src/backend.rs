//! What runs a kernel. A backend is covered by the [suite](crate::suite) by implementing one method.

use lockstep::{Compiled, Device};
use lockstep_cpu::Cpu;

/// Something that runs every row of an op.
pub trait Backend {
    /// The name in reports: `avx2, 2 threads`.
    fn name(&self) -> String;
    /// Runs the op. Errors: why it could not run.
    fn run<K: Compiled>(&self, kernel: &K) -> Result<(), String>;
}

impl Backend for Device {
    fn name(&self) -> String {
        self.describe()
    }
    fn run<K: Compiled>(&self, kernel: &K) -> Result<(), String> {
        Device::run(self, kernel).map_err(|error| error.to_string())
    }
}

/// Runs one row and leaves the other rows' outputs untouched, which shows what a row writes on its own.
#[derive(Clone, Debug)]
pub struct OneRow {
    /// The CPU to run on.
    pub cpu: Cpu,
    /// The row.
    pub row: usize,
}

impl Backend for OneRow {
    fn name(&self) -> String {
        format!("{}, row {} only", self.cpu.level(), self.row)
    }
    fn run<K: Compiled>(&self, kernel: &K) -> Result<(), String> {
        self.cpu.rows(kernel, self.row..self.row + 1);
        Ok(())
    }
}
