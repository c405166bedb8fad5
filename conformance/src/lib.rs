//! Lockstep's conformance tests: an `f64` oracle, test cases, a suite generic over the backend, and the
//! digest.
#![deny(unsafe_code)]

/// Runs the example of the repository's README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

pub mod accuracy;
pub mod backend;
pub mod cases;
pub mod configurations;
pub mod digest;
pub mod embedded;
pub mod expect;
pub mod launch;
pub mod levels;
pub mod ops;
pub mod output;
mod outputs;
pub mod plans;
pub mod precision;
pub mod schedules;
pub mod suite;
pub mod verify;
pub mod whole;

pub use ops::oracle;

/// A program's exit code: 0 if it passed, 1 if it did not, 2 after an error.
pub fn exit(passed: Result<bool, impl std::fmt::Display>) -> std::process::ExitCode {
    let code = passed.map(|passed| u8::from(!passed)).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        2
    });
    code.into()
}
