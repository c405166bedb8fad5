//! Events: markers in streams.

use crate::gpu::Context;
use crate::{Driver, Error, Gpu, Handle};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A marker in a stream, to wait for and to measure time with.
pub struct Event<D: Driver> {
    context: Arc<Context<D>>,
    pub(crate) handle: Handle,
}

impl<D: Driver> fmt::Debug for Event<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?})", self.handle.0)
    }
}

impl<D: Driver> Gpu<D> {
    /// Creates an event; [`Stream::record`](crate::Stream::record) places it in a stream.
    pub fn event(&self) -> Result<Event<D>, Error> {
        let handle = self.context.call(D::create_event)?;
        Ok(Event { context: self.context.clone(), handle })
    }
}

#[allow(unsafe_code)]
impl<D: Driver> Event<D> {
    /// Waits until the event has happened. An event that was never recorded counts as happened.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: ours until dropped.
        self.context.call(|driver| unsafe { driver.synchronize_event(self.handle) })
    }

    /// Returns the device time from `earlier` to this event. Both must have happened.
    pub fn since(&self, earlier: &Event<D>) -> Result<Duration, Error> {
        earlier.must_be_of(&self.context)?;
        let (from, to) = (earlier.handle, self.handle);
        // SAFETY: ours until dropped.
        let milliseconds = self.context.call(|driver| unsafe { driver.elapsed(from, to) })?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds).max(0.0) / 1e3))
    }

    pub(crate) fn must_be_of(&self, context: &Arc<Context<D>>) -> Result<(), Error> {
        if Arc::ptr_eq(&self.context, context) || self.context.handle == context.handle {
            return Ok(());
        }
        Err(Error::ForeignStream { stream: self.handle.0.addr() })
    }
}

impl<D: Driver> Drop for Event<D> {
    fn drop(&mut self) {
        if let Ok(current) = self.context.force() {
            // SAFETY: ours, and being dropped.
            #[allow(unsafe_code)]
            unsafe {
                current.driver().destroy_event(self.handle)
            };
        }
    }
}
