//! Device memory that is freed when dropped.

use crate::gpu::Context;
use crate::staged::Host;
use crate::{Direction, Driver, Error, Gpu, Handle, Pinned, Stream};
use lockstep_core::num::{Bf16, F16};
use lockstep_core::ragged::{In, Out};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Number types for which every bit pattern is a valid value.
///
/// # Safety
/// No padding, no invalid pattern, no pointer inside.
#[allow(unsafe_code)]
pub unsafe trait Plain: Copy + Send + Sync + 'static {}
macro_rules! plain {
    ($($number:ty),*) => {$(
        // SAFETY: a number, whose bits are all valid.
        #[allow(unsafe_code)]
        unsafe impl Plain for $number {}
    )*};
}
plain!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, Bf16, F16);

/// An array in device memory. Freed when dropped.
pub struct Buffer<T: Plain, D: Driver> {
    context: Arc<Context<D>>,
    memory: Handle,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Plain, D: Driver> fmt::Debug for Buffer<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer[{}] at {:?}", self.len, self.memory.0)
    }
}

impl<D: Driver> Gpu<D> {
    /// Allocates memory for `len` numbers, whose values are unspecified. Errors with [`Error::OutOfMemory`]
    /// if the device lacks the space.
    pub fn alloc<T: Plain>(&self, len: usize) -> Result<Buffer<T, D>, Error> {
        let bytes = len.saturating_mul(size_of::<T>());
        let current = self.context.enter()?;
        let memory = match bytes {
            0 => Handle::NULL,
            _ => current.driver().alloc(bytes).map_err(|fault| self.context.alloc_fault(bytes, fault))?,
        };
        Ok(Buffer { context: self.context.clone(), memory, len, of: PhantomData })
    }

    /// Copies `values` to new device memory and waits for the copy.
    pub fn upload<T: Plain>(&self, stream: &Stream<D>, values: &[T]) -> Result<Buffer<T, D>, Error> {
        let mut buffer = self.alloc(values.len())?;
        buffer.write(stream, values)?;
        Ok(buffer)
    }
}

#[allow(unsafe_code)]
impl<D: Driver> Gpu<D> {
    /// Copies from any device memory to the host, in stream order, and waits for the copy.
    ///
    /// # Safety
    /// `from` is memory of this device, readable for `to.len()` elements.
    pub unsafe fn download<T: Plain>(
        &self,
        stream: &Stream<D>,
        from: *const T,
        to: &mut [T],
    ) -> Result<(), Error> {
        stream.must_be_of(&self.context)?;
        let (memory, host) = (Handle(from.cast_mut().cast()), Host::Write(to.as_mut_ptr().cast()));
        // SAFETY: the caller's; the sides have the same length.
        unsafe { self.context.copy_and_wait(stream.raw_handle(), memory, host, size_of_val(to)) }
    }

    /// Copies from the host to any device memory, in stream order, and waits for the copy.
    ///
    /// # Safety
    /// `to` is memory of this device, writable for `from.len()` elements, that nobody else uses until the
    /// copy is done.
    pub unsafe fn write_to<T: Plain>(&self, stream: &Stream<D>, from: &[T], to: *mut T) -> Result<(), Error> {
        stream.must_be_of(&self.context)?;
        let (memory, host) = (Handle(to.cast()), Host::Read(from.as_ptr().cast()));
        // SAFETY: the caller's; the sides have the same length.
        unsafe { self.context.copy_and_wait(stream.raw_handle(), memory, host, size_of_val(from)) }
    }
}

impl<T: Plain, D: Driver> Buffer<T, D> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device address of the first element.
    pub fn as_ptr(&self) -> *mut T {
        self.memory.0.cast()
    }

    /// Returns a view for an op to read on the device.
    ///
    /// # Safety
    /// The view goes to launches on this device only: on a host, its elements cannot be read.
    #[allow(unsafe_code)]
    pub unsafe fn view(&self) -> In<'_, T> {
        // SAFETY: ours for this lifetime, and aligned. Whoever launches vouches for other uses by streams.
        unsafe { In::from_raw(self.as_ptr(), self.len) }
    }

    /// Returns a view for an op to write on the device.
    ///
    /// # Safety
    /// As for [`Buffer::view`].
    #[allow(unsafe_code)]
    pub unsafe fn view_mut(&mut self) -> Out<'_, T> {
        // SAFETY: as in `view`.
        unsafe { Out::from_raw(self.as_ptr(), self.len) }
    }

    /// Copies `values` in stream order, and waits for the copy. Panics if the lengths differ.
    pub fn write(&mut self, stream: &Stream<D>, values: &[T]) -> Result<(), Error> {
        assert_eq!(values.len(), self.len, "source and destination of a copy have different lengths");
        self.copy_and_wait(stream, Host::Read(values.as_ptr().cast()))
    }

    /// Copies the buffer to `values` in stream order, and waits for the copy. Panics if the lengths differ.
    pub fn read(&self, stream: &Stream<D>, values: &mut [T]) -> Result<(), Error> {
        assert_eq!(values.len(), self.len, "source and destination of a copy have different lengths");
        self.copy_and_wait(stream, Host::Write(values.as_mut_ptr().cast()))
    }

    #[allow(unsafe_code)]
    fn copy_and_wait(&self, stream: &Stream<D>, host: Host) -> Result<(), Error> {
        stream.must_be_of(&self.context)?;
        // SAFETY: lengths were compared; the memory is ours.
        unsafe {
            self.context.copy_and_wait(stream.raw_handle(), self.memory, host, self.len * size_of::<T>())
        }
    }

    /// Copies from pinned memory in stream order, and returns at once. Panics if the lengths differ.
    ///
    /// # Safety
    /// Until the copy is done, both objects exist, nobody writes `values`, and nobody uses this buffer except
    /// in the order of `stream`.
    #[allow(unsafe_code)]
    pub unsafe fn write_async(&mut self, stream: &Stream<D>, values: &Pinned<T, D>) -> Result<(), Error> {
        assert_eq!(values.len(), self.len, "source and destination of a copy have different lengths");
        // SAFETY: lengths are equal; the rest is the caller's.
        unsafe { self.copy(stream, self.memory, values.handle(), Direction::Upload) }
    }

    /// Copies to pinned memory in stream order, and returns at once. Panics if the lengths differ.
    ///
    /// # Safety
    /// Until the copy is done, both objects exist, nobody uses `values`, and nobody writes this buffer except
    /// in the order of `stream`.
    #[allow(unsafe_code)]
    pub unsafe fn read_async(&self, stream: &Stream<D>, values: &mut Pinned<T, D>) -> Result<(), Error> {
        assert_eq!(values.len(), self.len, "source and destination of a copy have different lengths");
        // SAFETY: lengths are equal; the rest is the caller's.
        unsafe { self.copy(stream, values.handle(), self.memory, Direction::Download) }
    }

    /// Copies from another buffer in stream order, and waits for the copy. Panics if the lengths differ.
    #[allow(unsafe_code)]
    pub fn write_from(&mut self, stream: &Stream<D>, other: &Buffer<T, D>) -> Result<(), Error> {
        assert_eq!(other.len, self.len, "source and destination of a copy have different lengths");
        stream.must_be_of(&other.context)?;
        // SAFETY: both are buffers of this length, and freeing one waits for pending work.
        unsafe { self.copy(stream, self.memory, other.memory, Direction::Device)? };
        stream.synchronize()
    }

    /// Sets every byte to `byte` in stream order, and waits for it.
    #[allow(unsafe_code)]
    pub fn fill(&mut self, stream: &Stream<D>, byte: u8) -> Result<(), Error> {
        stream.must_be_of(&self.context)?;
        if self.len > 0 {
            let (to, bytes, queue) = (self.memory, self.len * size_of::<T>(), stream.raw_handle());
            // SAFETY: ours, and waited for.
            self.context.call(|driver| unsafe { driver.fill(to, byte, bytes, queue) })?;
        }
        stream.synchronize()
    }

    /// # Safety
    /// Both sides have this buffer's length until the stream has done the copy.
    #[allow(unsafe_code)]
    unsafe fn copy(&self, stream: &Stream<D>, to: Handle, from: Handle, way: Direction) -> Result<(), Error> {
        stream.must_be_of(&self.context)?;
        if self.len == 0 {
            return Ok(());
        }
        let bytes = self.len * size_of::<T>();
        // SAFETY: the caller's.
        self.context.call(|driver| unsafe { driver.copy(to, from, bytes, way, stream.raw_handle()) })
    }
}

impl<T: Plain, D: Driver> Drop for Buffer<T, D> {
    fn drop(&mut self) {
        if self.memory != Handle::NULL
            && let Ok(current) = self.context.force()
        {
            // SAFETY: ours, and being dropped. Both vendors wait for running kernels before they free.
            #[allow(unsafe_code)]
            if let Err(fault) = unsafe { current.driver().free(self.memory) } {
                self.context.fault(fault);
            }
        }
    }
}
