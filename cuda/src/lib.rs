//! Lockstep on NVIDIA GPUs, sm_80 and later.
//!
//! The driver is loaded at run time: this crate builds and links on every machine, and a missing driver is a
//! run-time error ([`Error::NoDriver`]). The kernels are the PTX of `lockstep-kernels`; the driver compiles
//! each when it is first launched or loaded. Results have the bits of the CPU's plain reference. See also
//! `docs/gpu.md`.
//!
//! Arrays and the stream belong to the caller, whoever made them (`cudaMalloc`, PyTorch, candle, `cust` and
//! cudarc all use the device's primary context, as does this crate). A launch only queues the op: no
//! allocation, no copy, no wait.
//!
//! ```no_run
//! use lockstep_core::aggregate::Aggregate;
//! use lockstep_core::ragged::{In, Mask, Offsets, Out};
//! use std::ffi::c_void;
//!
//! /// Masked sum and token count of each sequence, queued on the caller's stream.
//! ///
//! /// # Safety
//! /// Pointers are memory of device 0 of the lengths below; `stream` is a `CUstream` of it, or null.
//! unsafe fn sums(
//!     stream: *mut c_void,
//!     (cu_seqlens, sequences): (*const u32, usize), // [sequences + 1]
//!     (values, loss_mask, tokens): (*const f32, *const u8, usize), // [tokens], [tokens]
//!     (row_sum, row_tokens, row_alarm): (*mut f64, *mut u32, *mut u32), // [sequences] each
//!     scratch: *mut u32, // [lockstep_core::check::rows(sequences + 1)]
//! ) -> Result<(), lockstep_cuda::Error> {
//!     let gpu = lockstep_cuda::open(0)?; // The first call opens the device, the next are cheap.
//!     // SAFETY: the caller's.
//!     unsafe {
//!         let stream = gpu.stream_from_raw(stream)?;
//!         let offsets = In::from_raw(cu_seqlens, sequences + 1);
//!         // Optional, and it waits: offsets that only the device can see, checked there.
//!         let scratch = Out::from_raw(scratch, lockstep_core::check::rows(sequences + 1));
//!         gpu.check_offsets(&stream, ("cu_seqlens", "tokens"), offsets, tokens, scratch)?;
//!         gpu.launch(&stream, &Aggregate {
//!             cu_seqlens: Offsets::unchecked(offsets),
//!             loss_mask: Mask::view(Some(In::from_raw(loss_mask, tokens))),
//!             values: Some(In::from_raw(values, tokens)),
//!             row_sum: Out::from_raw(row_sum, sequences),
//!             row_tokens: Out::from_raw(row_tokens, sequences),
//!             row_alarm: Out::from_raw(row_alarm, sequences),
//!         })
//!     }
//! }
//! ```
//!
//! [`Gpu::run`](lockstep_gpu::Gpu::run) runs kernels over host memory and copies there and back.
#[cfg(test)]
mod bindings;
mod driver;
mod error;
mod module;
mod symbols;

pub use driver::Driver;
pub use lockstep_gpu::{Error, Geometry, Report};

use lockstep_gpu::Installed;

/// An open NVIDIA device.
pub type Gpu = lockstep_gpu::Gpu<Driver>;
/// A queue of a device, in whose order work runs.
pub type Stream = lockstep_gpu::Stream<Driver>;
/// A marker in a stream.
pub type Event = lockstep_gpu::Event<Driver>;
/// Device memory.
pub type Buffer<T> = lockstep_gpu::Buffer<T, Driver>;
/// Pinned host memory.
pub type Pinned<T> = lockstep_gpu::Pinned<T, Driver>;

static INSTALLED: Installed<Driver> = Installed::new("CUDA", Driver::load);

/// Opens device `ordinal` of this machine.
///
/// A kernel is loaded by its first launch, or before by [`Gpu::load`](lockstep_gpu::Gpu::load); later calls
/// share what is loaded. Errors with [`Error::NoDriver`], [`Error::NoDevice`], [`Error::NoSuchDevice`],
/// [`Error::Unsupported`], [`Error::DriverTooOld`] or [`Error::Module`]; never panics.
pub fn open(ordinal: usize) -> Result<Gpu, Error> {
    INSTALLED.open(ordinal)
}

/// Reports the devices on this machine, what is missing and why. Never fails.
pub fn devices() -> Report {
    INSTALLED.report()
}
