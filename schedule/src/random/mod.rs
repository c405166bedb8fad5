//! Counter-based random numbers: a pure function of seed, purpose, step, element and position, with the same
//! bits on every machine.
//!
//! Only host-side code such as schedules draws; no kernel does. The streams of two elements never overlap, so
//! an element's draws do not depend on the number of other elements or the order in which they are visited.

pub mod gamma;
pub mod philox;
pub mod sample;
pub mod stream;

pub use philox::philox4x32_10;
pub use stream::{Purpose, Stream};
