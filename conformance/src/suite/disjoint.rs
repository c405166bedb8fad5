//! Tests of the promise of `DisjointRows`.

use super::{Checked, small, violation};
use crate::backend::{AnyKernel, Backend, OneRow};
use crate::cases::Case;
use crate::launch;
use crate::output::Output;
use lockstep_cpu::Cpu;

/// Every element of every output is written by exactly one row, its own, with the bits of the whole launch.
///
/// Running rows in parallel relies on this promise.
pub fn rows_are_disjoint(cpu: &Cpu, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for case in small(cases) {
        let rows = case.data.rows();
        let alone = |row| launch::run(&OneRow { cpu: cpu.clone(), row }, case);
        let every: Vec<Vec<Output>> = (0..rows).map(alone).collect::<Result<_, _>>()?;
        let whole = launch::run(&AllRows(cpu), case)?;
        for (k, output) in whole.iter().enumerate() {
            for (row, alone) in every.iter().map(|outputs| &outputs[k]).enumerate() {
                let own = output.range(&case.data.offsets, row);
                for i in 0..output.len() {
                    let wrote = !alone.is_poison(i);
                    let right = wrote && alone.bits(i) == output.bits(i);
                    if if own.contains(&i) { !right } else { wrote } {
                        let found = (output.name, i, output.bits(i), alone.bits(i));
                        let backend = OneRow { cpu: cpu.clone(), row };
                        return Err(violation("rows_are_disjoint", &backend, case, found));
                    }
                    compared += 1;
                }
            }
        }
    }
    Ok(compared)
}

/// Runs all rows on the calling thread.
struct AllRows<'a>(&'a Cpu);

impl Backend for AllRows<'_> {
    fn name(&self) -> String {
        self.0.level().to_string()
    }
    fn run(&self, kernel: &dyn AnyKernel) -> Result<(), String> {
        kernel.rows_on(self.0, 0..kernel.parameters().rows());
        Ok(())
    }
}
