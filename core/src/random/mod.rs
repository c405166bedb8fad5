//! Random numbers by counter: a pure function of seed, purpose, step, element and position, the same bits on
//! every machine.
//!
//! Schedules alone draw; no kernel does. The streams of two elements never overlap, so what one element draws
//! does not depend on how many others there are or in which order they are visited.

pub mod gamma;
pub mod philox;
pub mod sample;
pub mod stream;

pub use philox::philox4x32_10;
pub use stream::{Purpose, Stream};
