//! Lockstep on NVIDIA GPUs, sm_80 and later.
#![doc = ""]
mod driver;
mod error;
mod module;
mod symbols;

pub use driver::Driver;
pub use lockstep_gpu::{Error, Geometry, Report};

use lockstep_gpu::Platform;
use std::sync::{Arc, Mutex, PoisonError};

/// An open NVIDIA device.
pub type Gpu = lockstep_gpu::Gpu<Driver>;
/// A queue of a device.
pub type Stream = lockstep_gpu::Stream<Driver>;
/// A mark in a queue.
pub type Event = lockstep_gpu::Event<Driver>;
/// Device memory.
pub type Buffer<T> = lockstep_gpu::Buffer<T, Driver>;
/// Pinned host memory.
pub type Pinned<T> = lockstep_gpu::Pinned<T, Driver>;

static PLATFORM: Mutex<Option<Arc<Platform<Driver>>>> = Mutex::new(None);

/// The driver, loaded on the first call. A failure is tried again on the next.
fn platform() -> Result<Arc<Platform<Driver>>, Error> {
    let mut platform = PLATFORM.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(platform) = &*platform {
        return Ok(platform.clone());
    }
    Ok(platform.insert(Arc::new(Platform::new(Driver::load()?))).clone())
}

/// Opens device `ordinal` of this machine.
///
/// Its kernels are loaded on the first call and shared by the next. Errors with [`Error::NoDriver`], [`Error::NoDevice`],
/// [`Error::NoSuchDevice`], [`Error::Unsupported`], [`Error::DriverTooOld`], [`Error::Module`]; never panics.
pub fn open(ordinal: usize) -> Result<Gpu, Error> {
    platform()?.open(ordinal)
}

/// What is on this machine, what is missing and why. Never fails.
pub fn devices() -> Report {
    match platform() {
        Ok(platform) => platform.report(),
        Err(error) => Report::absent("CUDA", error),
    }
}
