//! Who runs a kernel. A backend claims the [suite](crate::suite) by implementing one method.

use lockstep::{Compiled, Device};
use lockstep_cpu::Cpu;

/// Something that runs every row of an op.
pub trait Backend {
    /// For reports: `avx2, 2 threads`.
    fn name(&self) -> String;
    /// Runs the op, or says what kept it from running.
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

/// Runs one row and leaves the rest of the outputs as they are: what a row writes when nobody else does.
#[derive(Clone, Debug)]
pub struct OneRow {
    /// Where.
    pub cpu: Cpu,
    /// Which row.
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
