//! Runs kernels: a wave at a time, an instruction of all its lanes at a time.

mod access;
mod comparing;
mod divide;
mod float;
mod hazards;
mod integer;
mod lanes;
pub mod launch;
mod number;
mod operands;
mod registers;
mod scalar;
mod stop;
mod waits;
mod wave;

pub use number::Approximation;
