//! Streams: a device's queues, created here or by the caller.

use crate::gpu::Context;
use crate::{Driver, Error, Event, Gpu, Handle};
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// A queue of a device: work runs in the order it was queued.
pub struct Stream<D: Driver> {
    context: Arc<Context<D>>,
    handle: Handle,
    owned: bool,
}

impl<D: Driver> fmt::Debug for Stream<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?}, {})", self.handle.0, if self.owned { "owned" } else { "the caller's" })
    }
}

impl<D: Driver> Gpu<D> {
    /// Creates a stream that does not wait for the default stream. Destroyed when dropped.
    pub fn stream(&self) -> Result<Stream<D>, Error> {
        let handle = self.context.call(D::create_stream)?;
        Ok(Stream { context: self.context.clone(), handle, owned: true })
    }

    /// Wraps the caller's stream (`CUstream`, `cudaStream_t`, `hipStream_t`; null for the default stream),
    /// which the caller keeps owning.
    ///
    /// Errors if it is known to belong to another device or context.
    ///
    /// # Safety
    /// `stream` is null or a stream, and exists for as long as the result.
    #[allow(unsafe_code)]
    pub unsafe fn stream_from_raw(&self, stream: *mut c_void) -> Result<Stream<D>, Error> {
        let current = self.context.enter()?;
        let handle = Handle(stream);
        // SAFETY: the caller's.
        let ours = handle == Handle::NULL
            || unsafe {
                current.driver().owns_stream(handle, self.context.info.ordinal, self.context.handle)
            }
            .unwrap_or(true);
        if !ours {
            return Err(Error::ForeignStream { stream: stream.addr() });
        }
        Ok(Stream { context: self.context.clone(), handle, owned: false })
    }
}

impl<D: Driver> Stream<D> {
    /// Returns the vendor's handle.
    pub fn raw(&self) -> *mut c_void {
        self.handle.0
    }

    pub(crate) fn raw_handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn must_be_of(&self, context: &Arc<Context<D>>) -> Result<(), Error> {
        if Arc::ptr_eq(&self.context, context) || self.context.handle == context.handle {
            return Ok(());
        }
        Err(Error::ForeignStream { stream: self.handle.0.addr() })
    }

    /// Waits until all work on the stream is done.
    #[allow(unsafe_code)]
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: the stream exists: ours until dropped, or the caller's by the contract of
        // `stream_from_raw`.
        self.context.call(|driver| unsafe { driver.synchronize(self.handle) })
    }

    /// Records `event` at this point of the queue.
    #[allow(unsafe_code)]
    pub fn record(&self, event: &Event<D>) -> Result<(), Error> {
        event.must_be_of(&self.context)?;
        // SAFETY: both exist, as in `synchronize`.
        self.context.call(|driver| unsafe { driver.record(event.handle, self.handle) })
    }

    /// Makes later work on this stream wait until `event`, as last recorded, has happened.
    #[allow(unsafe_code)]
    pub fn wait(&self, event: &Event<D>) -> Result<(), Error> {
        // SAFETY: both exist, as in `synchronize`.
        self.context.call(|driver| unsafe { driver.wait(self.handle, event.handle) })
    }
}

impl<D: Driver> Drop for Stream<D> {
    fn drop(&mut self) {
        if self.owned
            && let Ok(current) = self.context.force()
        {
            // SAFETY: ours, and being dropped.
            #[allow(unsafe_code)]
            unsafe {
                current.driver().destroy_stream(self.handle)
            };
        }
    }
}
