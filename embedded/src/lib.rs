//! One digest for machines without an operating system.
//!
//! [`digest`] runs every op of core's table and every scalar function of [`num`](lockstep_core::num) on
//! inputs made by an integer hash, and hashes every output bit. Neither `std` nor an allocator: all arrays
//! lie on the stack. Who runs the ops is a [`Runner`]: the plain reference on bare metal (`embedded/bare`),
//! every SIMD level in this package's tests. All must print the digest in the file `DIGEST`.
//!
//! It is not the digest of `lockstep verify`, whose corpus needs megabytes. Unlike that one it has NaN,
//! infinite and positive log-probabilities among live tokens.
#![no_std]
#![forbid(unsafe_code)]

mod batch;
mod hash;
mod ops;
mod record;
mod scalar;
mod trace;

pub use record::{Digest, Hasher, Kind, Record};
pub use trace::Trace;

use lockstep_core::Error;
use lockstep_core::num::{Arith, Soft};
use lockstep_cpu::plain::Plain;

/// The examples of the document are tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/bare-metal.md")]
struct BareMetal;

/// The digest that is published, the one file that states it. The example `digest` of this package writes it.
pub const PUBLISHED: &str = include_str!("../DIGEST");

/// What an output holds before a launch: no kernel writes these bits (a result that is NaN is the canonical
/// one).
pub const POISON: u32 = 0xffba_dbad;
/// The same for binary64.
pub const POISON64: u64 = 0xffff_badb_adba_dbad;

/// An op of the corpus: on a host (feature `std`) compiled in the crate of the CPU, on a bare machine in this
/// one.
#[cfg(not(feature = "std"))]
pub use lockstep_core::op::DisjointRows as Op;
#[cfg(feature = "std")]
pub use lockstep_cpu::Compiled as Op;

/// Who runs the corpus.
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

/// Runs the whole corpus and hands every output to `record`, in an order that never changes.
///
/// An error says that the corpus itself is malformed.
pub fn corpus<R: Runner>(runner: &R, record: &mut impl Record) -> Result<(), Error> {
    scalar::run::<R::Arith>(record);
    ops::run(runner, record)
}

/// The digest of `runner`.
pub fn digest<R: Runner>(runner: &R) -> Result<Digest, Error> {
    let mut hasher = record::Hasher::new();
    corpus(runner, &mut hasher)?;
    Ok(hasher.finish())
}
