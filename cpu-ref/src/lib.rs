//! Lockstep on the CPU.
//!
//! [`plain`] is the contract: one lane after the other, no SIMD, no threads. Everything beside it
//! (AVX2, AVX-512, NEON, threads) is a schedule of the same source and must return plain's bits.
#![deny(unsafe_code)]

mod avx;
mod cpu;
mod level;
mod neon;
pub mod plain;
mod threads;
mod wide;

pub use cpu::Cpu;
pub use level::{Level, Unavailable};
