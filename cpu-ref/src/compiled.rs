//! The ops of the table, compiled here and nowhere else.
//!
//! An op under every level is much code. Whoever calls one by its type would compile all of that again, crate
//! after crate; a call of a function that is not generic compiles a call.

use crate::Cpu;
use lockstep_core::op::DisjointRows;
use std::ops::Range;

/// An op of the table: this crate has it ready for every level. Other kernels run by [`Cpu::run_own`].
pub trait Compiled: DisjointRows {
    /// Runs every row: [`Cpu::run`].
    #[doc(hidden)]
    fn run_on(&self, cpu: &Cpu);

    /// Runs some rows on the calling thread: [`Cpu::rows`].
    #[doc(hidden)]
    fn rows_on(&self, cpu: &Cpu, rows: Range<usize>);
}

macro_rules! compiled {
    ($($name:ident: $kernel:ty, $file:literal, $row:literal, $summary:literal, [$($number:literal $entry:ident),*];)*) => {$(
        // A module for each: what stands in one module is compiled on one core.
        mod $name {
            use super::*;

            impl Compiled for $kernel {
                #[inline(never)]
                fn run_on(&self, cpu: &Cpu) {
                    cpu.run_by(self, |cpu, kernel, rows| kernel.rows_on(cpu, rows));
                }

                #[inline(never)]
                fn rows_on(&self, cpu: &Cpu, rows: Range<usize>) {
                    cpu.rows_own(self, rows);
                }
            }
        }
    )*};
}
lockstep_core::for_each_op!(compiled);
