//! Lockstep on the CPU.
//!
//! [`plain`] is the contract: one lane after the other, no SIMD, no threads. Everything else (AVX2, AVX-512,
//! NEON, threads) is a schedule of the same source and must return the same bits as plain.
//!
//! Without the feature `std` (on by default) only [`plain`] is built, without `std` and without allocation,
//! for microcontrollers (docs/bare-metal.md).
#![cfg_attr(not(feature = "std"), no_std)]
#![deny(unsafe_code)]
// Without SIMD levels there is only the reference, as in WebAssembly; what serves the levels is then unused.
#![cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code, unused_imports))]

#[cfg(feature = "std")]
mod avx;
#[cfg(feature = "std")]
mod chunks;
#[cfg(feature = "std")]
mod compiled;
#[cfg(feature = "std")]
mod cpu;
#[cfg(feature = "std")]
mod lanes;
#[cfg(feature = "std")]
mod level;
#[cfg(feature = "std")]
mod neon;
#[cfg(feature = "std")]
mod nth;
#[cfg(feature = "std")]
mod pick;
pub mod plain;
#[cfg(feature = "std")]
mod ranked;
#[cfg(feature = "std")]
mod ranked_rows;
#[cfg(feature = "std")]
mod recur;
#[cfg(feature = "std")]
mod shared_work;
#[cfg(feature = "std")]
mod short;
#[cfg(feature = "std")]
mod stream;
#[cfg(feature = "std")]
mod threads;
#[cfg(feature = "std")]
mod transpose;
#[cfg(feature = "std")]
mod wide;

#[cfg(feature = "std")]
pub use compiled::Compiled;
#[cfg(feature = "std")]
pub use cpu::Cpu;
#[cfg(feature = "std")]
pub use level::{SimdLevel, Unavailable};
#[cfg(feature = "std")]
pub use nth::Nth;
