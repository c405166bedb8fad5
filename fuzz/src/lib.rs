//! What the fuzz targets share: how an input is read as arguments, the devices to compare, the checks of results.
//!
//! A target asserts a property, never only survival. Those of op arguments assert for every input that
//!
//! * nothing panics;
//! * an error names an argument, and the index it gives is that of an element that really is wrong;
//! * without an error every result is finite, what is masked is exactly 0, and every SIMD level returns plain's bits.
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
