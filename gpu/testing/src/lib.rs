//! A driver whose device is this process's memory, to test the layers above a driver without a GPU.
//!
//! [`HostDriver`] does what the vendors' manuals promise and no more: copies and launches wait in their
//! stream's queue until somebody waits for them, memory knows its context and its bounds, calls need a
//! current context, and a lost context stays lost. Entry points are dispatched through the op table and
//! rebuild the kernel from its parameters as a GPU does; they run on the plain team or on the GPU's team with
//! [a thread per lane](Compute). Any call can be made to [fail](HostDriver::inject).
#![deny(unsafe_code)]

pub mod absence;
mod driver;
mod entries;
mod machine;
mod settings;
mod state;
mod wave;

pub use entries::Compute;
pub use machine::HostDriver;
pub use settings::Settings;
pub use state::Live;
pub use wave::{HostWave, with_block, with_lanes};
