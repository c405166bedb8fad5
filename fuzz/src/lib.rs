//! Shared by the fuzz targets: reading an input as arguments, the devices to compare, and the checks of
//! results.
//!
//! A target asserts a property, never mere survival. The targets for op arguments assert for every input that
//!
//! * nothing panics;
//! * an error names an argument, and an index in it is that of an element that really is wrong;
//! * without an error every result is finite, masked entries are exactly 0, and every SIMD level returns
//!   plain's bits.
#![forbid(unsafe_code)]

mod check;
mod devices;
mod draw;
mod mutate;
mod packed;

pub use check::{Domain, assert_domain, assert_finite, assert_masked_zero, assert_same_bits, bits32, bits64};
pub use devices::{crews, devices, on_every_level};
pub use draw::{Draw, Like};
pub use mutate::{mutate, reshaped};
pub use packed::Packed;
