//! The parts that Lockstep's GPU backends share. The vendor-specific parts are the crates `lockstep-cuda` and
//! `lockstep-rocm`; a program uses one of them and meets the types here through it.
//!
//! | what | where |
//! |---|---|
//! | the interface that a vendor's API must provide | [`Driver`] |
//! | a loaded driver and its devices; the driver of this process | [`Platform`], [`Installed`] |
//! | the meaning of an API's error codes | [`Codes`] |
//! | an open device: zero-copy [`launch`](Gpu::launch), staged [`run`](Gpu::run) | [`Gpu`] |
//! | checks of arguments that only the device can see | [`Gpu::check_offsets`], [`Gpu::check_values`] |
//! | memory, streams, events | [`Buffer`], [`Pinned`], [`Stream`], [`Event`] |
//! | device times of staged runs | [`Stopwatch`] |
//! | what can go wrong, and whether the device remains usable | [`Error`] |
//! | what is installed, what is missing and why | [`Report`] |
//!
//! There is no maths here: a launch encodes a kernel's fields ([`Parameters`]) and passes them to the entry
//! point that was compiled from the same source.
#![deny(unsafe_code)]

mod buffer;
mod check;
mod codes;
mod driver;
mod error;
mod event;
mod geometry;
mod gpu;
mod installed;
mod launch;
// Other systems load no driver: a browser, for one.
#[cfg(any(unix, windows))]
pub mod library;
mod parameters;
mod pinned;
mod platform;
mod report;
mod staged;
mod stopwatch;
mod stream;
mod version;

pub use buffer::{Buffer, Plain};
pub use codes::Codes;
pub use driver::{DeviceInfo, Direction, Driver, Handle, Owner, Shape};
pub use error::{Error, Fault, Kind, Refusal};
pub use event::Event;
pub use geometry::Geometry;
pub use gpu::Gpu;
pub use installed::Installed;
pub use parameters::{Encoded, Parameters};
pub use pinned::Pinned;
pub use platform::Platform;
pub use report::{DeviceReport, Report};
pub use stopwatch::Stopwatch;
pub use stream::Stream;
pub use version::Version;
