//! The ops of the table, compiled in this crate only.
//!
//! An op compiled for every level is a lot of code. Calling it as a generic function would compile that code
//! again in every calling crate; calling a non-generic function does not.

use crate::Cpu;
use lockstep_core::op::DisjointRows;
use std::ops::Range;

/// An op of the table, precompiled here for every level. Run other kernels with [`Cpu::run_own`].
pub trait Compiled: DisjointRows {
    /// Runs every row; see [`Cpu::run`].
    #[doc(hidden)]
    fn run_on(&self, cpu: &Cpu);

    /// Runs some rows on the calling thread; see [`Cpu::rows`].
    #[doc(hidden)]
    fn rows_on(&self, cpu: &Cpu, rows: Range<usize>);
}

macro_rules! compiled {
    ($($name:ident: $kernel:ty, $file:literal, $row:literal, $summary:literal,
        [$($number:literal $entry:ident),*] $($block:ident)?;)*) => {$(
        // One module per op: a module is the unit that one core compiles.
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
