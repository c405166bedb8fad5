//! The parts that the emulated driver libraries share: the process's machine, C pointers, functions for
//! tests.
//!
//! ```text
//! library     the machine behind a library's functions; panics end here
//! pointers    what C passes: results, texts, launch parameters, module images
//! host        memory of the process, for copies
//! exports     lockstep_emulator_*: failures, what is live, what was found
//! tests       how a test gets a process in which the backends find the library
//! ```

pub mod exports;
mod host;
mod library;
pub mod pointers;
pub mod testing;

pub use library::Library;
