//! One digest for machines without an operating system.
//!
//! [`digest`] runs recorded launches of every op of core's table, and every scalar function of
//! [`num`](lockstep_core::num) on inputs made by an integer hash, and hashes every output bit. It needs
//! neither `std` nor an allocator: a launch's inputs stay where they are recorded, its outputs are on the
//! stack. A [`Runner`] runs the ops: the plain reference on bare metal (`embedded/bare`), or every SIMD level
//! in conformance's tests. All must print the digest in the file `DIGEST`.
//!
//! The launches are small random cases of `lockstep-conformance` (its module `embedded` chooses them). With
//! the feature `std`, `launches::Recorded` writes them.
#![no_std]
#![deny(unsafe_code)]

#[cfg(feature = "std")]
extern crate std;

pub mod hash;
pub mod launches;
mod record;
mod scalar;
mod trace;

pub use record::{Digest, Hash, Hasher, Kind, Record};
pub use trace::Trace;

use launches::Launches;
use lockstep_core::num::{Arith, Soft};
use lockstep_cpu::plain::Plain;

/// Runs the examples of docs/bare-metal.md as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/bare-metal.md")]
struct BareMetal;

/// The published digest; `DIGEST` is the only file that states it. Conformance's example `embedded` writes
/// it.
pub const PUBLISHED: &str = include_str!("../DIGEST");

/// The content of a binary32 output before a launch. No kernel writes these bits: a NaN result is the
/// canonical NaN.
pub const POISON: u32 = 0xffba_dbad;
/// The content of a binary64 output before a launch.
pub const POISON64: u64 = 0xffff_badb_adba_dbad;

/// An op of the corpus: compiled in the CPU's crate on a host (feature `std`), and in this crate on a bare
/// machine.
#[cfg(not(feature = "std"))]
pub use lockstep_core::op::DisjointRows as Op;
#[cfg(feature = "std")]
pub use lockstep_cpu::Compiled as Op;

/// Runs the ops and scalar functions of the corpus.
pub trait Runner {
    /// The arithmetic of scalar functions.
    type Arith: Arith;

    /// Runs every row of `kernel`.
    fn run<K: Op>(&self, kernel: &K);
}

impl Runner for Plain {
    type Arith = Soft;

    fn run<K: Op>(&self, kernel: &K) {
        #[cfg(not(feature = "std"))]
        lockstep_cpu::plain::run(kernel, 0..kernel.rows());
        #[cfg(feature = "std")]
        lockstep_cpu::Cpu::PLAIN.run(kernel);
    }
}

/// Runs every scalar function and then `launches`, and passes every output to `record`, in an order that
/// never changes.
pub fn corpus<R: Runner>(runner: &R, launches: Launches<'_>, record: &mut impl Record) {
    scalar::run::<R::Arith>(record);
    launches::play(runner, launches, record);
}

/// Computes the digest of `runner`.
pub fn digest<R: Runner>(runner: &R, launches: Launches<'_>) -> Digest {
    let mut hasher = record::Hasher::new();
    corpus(runner, launches, &mut hasher);
    hasher.finish()
}
