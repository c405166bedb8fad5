//! Device memory that frees itself.

use crate::gpu::Context;
use crate::staged::Host;
use crate::{Direction, Driver, Error, Gpu, Handle, Pinned, Stream};
use lockstep_core::ragged::{In, Out};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Numbers of which every bit pattern is one.
///
/// # Safety
/// No padding, no invalid pattern, no pointer inside.
#[allow(unsafe_code)]
pub unsafe trait Plain: Copy + Send + Sync + 'static {}
macro_rules! plain {
    ($($number:ty),*) => {$(
        // SAFETY: a primitive number.
        #[allow(unsafe_code)]
        unsafe impl Plain for $number {}
    )*};
}
plain!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// An array in device memory.
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
    /// Memory for `len` numbers, whose values are unspecified.
    pub fn alloc<T: Plain>(&self, len: usize) -> Result<Buffer<T, D>, Error> {
        let bytes = len.saturating_mul(size_of::<T>());
        let current = self.context.enter()?;
        let memory = match bytes {
            0 => Handle::NULL,
            _ => current.driver().alloc(bytes).map_err(|fault| self.context.alloc_fault(bytes, fault))?,
        };
        Ok(Buffer { context: self.context.clone(), memory, len, of: PhantomData })
    }

    /// A copy of `values`. Waits for it.
    pub fn upload<T: Plain>(&self, stream: &Stream<D>, values: &[T]) -> Result<Buffer<T, D>, Error> {
        let mut buffer = self.alloc(values.len())?;
        buffer.write(stream, values)?;
        Ok(buffer)
    }
}

#[allow(unsafe_code)]
impl<D: Driver> Gpu<D> {
    /// Copies from any device memory to the host, in the order of the stream, and waits for it.
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
        // SAFETY: the caller's, and as long as `to`.
        unsafe { self.context.copy_and_wait(stream.raw_handle(), memory, host, size_of_val(to)) }
    }

    /// Copies from the host to any device memory, in the order of the stream, and waits for it.
    ///
    /// # Safety
    /// `to` is memory of this device, writable for `from.len()` elements, that nobody else uses until the
    /// copy is done.
    pub unsafe fn write_to<T: Plain>(&self, stream: &Stream<D>, from: &[T], to: *mut T) -> Result<(), Error> {
        stream.must_be_of(&self.context)?;
        let (memory, host) = (Handle(to.cast()), Host::Read(from.as_ptr().cast()));
        // SAFETY: the caller's, and as long as `from`.
        unsafe { self.context.copy_and_wait(stream.raw_handle(), memory, host, size_of_val(from)) }
    }
}

impl<T: Plain, D: Driver> Buffer<T, D> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device's address of the first element.
    pub fn as_ptr(&self) -> *mut T {
        self.memory.0.cast()
    }

    /// To be read by a launched op.
    #[allow(unsafe_code)]
    pub fn view(&self) -> In<'_, T> {
        // SAFETY: ours for this lifetime, and aligned. Who launches vouches for what else the streams do with
        // it.
        unsafe { In::from_raw(self.as_ptr(), self.len) }
    }

    /// To be written by a launched op.
    #[allow(unsafe_code)]
    pub fn view_mut(&mut self) -> Out<'_, T> {
        // SAFETY: as in `view`.
        unsafe { Out::from_raw(self.as_ptr(), self.len) }
    }

    /// Copies `values`, of the same length, in the order of the stream, and waits for it.
    pub fn write(&mut self, stream: &Stream<D>, values: &[T]) -> Result<(), Error> {
        assert_eq!(values.len(), self.len, "the lengths of a copy's two sides");
        self.copy_and_wait(stream, Host::Read(values.as_ptr().cast()))
    }

    /// Copies out to `values`, of the same length, in the order of the stream, and waits for it.
    pub fn read(&self, stream: &Stream<D>, values: &mut [T]) -> Result<(), Error> {
        assert_eq!(values.len(), self.len, "the lengths of a copy's two sides");
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

    /// Copies from pinned memory of the same length, in the order of the stream. Returns at once.
    ///
    /// # Safety
    /// Until the stream has done it, nobody writes `values` or uses this buffer but in the order of the
    /// stream, and both exist.
    #[allow(unsafe_code)]
    pub unsafe fn write_async(&mut self, stream: &Stream<D>, values: &Pinned<T, D>) -> Result<(), Error> {
        assert_eq!(values.len(), self.len, "the lengths of a copy's two sides");
        // SAFETY: lengths are equal; the rest is the caller's.
        unsafe { self.copy(stream, self.memory, values.handle(), Direction::Upload) }
    }

    /// Copies to pinned memory of the same length, in the order of the stream. Returns at once.
    ///
    /// # Safety
    /// Until the stream has done it, nobody uses `values`, or writes this buffer but in the order of the
    /// stream, and both exist.
    #[allow(unsafe_code)]
    pub unsafe fn read_async(&self, stream: &Stream<D>, values: &mut Pinned<T, D>) -> Result<(), Error> {
        assert_eq!(values.len(), self.len, "the lengths of a copy's two sides");
        // SAFETY: lengths are equal; the rest is the caller's.
        unsafe { self.copy(stream, values.handle(), self.memory, Direction::Download) }
    }

    /// Copies from another buffer of the same length, in the order of the stream, and waits for it.
    #[allow(unsafe_code)]
    pub fn write_from(&mut self, stream: &Stream<D>, other: &Buffer<T, D>) -> Result<(), Error> {
        assert_eq!(other.len, self.len, "the lengths of a copy's two sides");
        stream.must_be_of(&other.context)?;
        // SAFETY: both are buffers of this length, and freeing one waits for what is under way.
        unsafe { self.copy(stream, self.memory, other.memory, Direction::Device)? };
        stream.synchronize()
    }

    /// Sets every byte, in the order of the stream, and waits for it.
    #[allow(unsafe_code)]
    pub fn fill(&mut self, stream: &Stream<D>, byte: u8) -> Result<(), Error> {
        stream.must_be_of(&self.context)?;
        if self.len > 0 {
            let current = self.context.enter()?;
            // SAFETY: ours, and waited for.
            unsafe {
                current.driver().fill(self.memory, byte, self.len * size_of::<T>(), stream.raw_handle())
            }
            .map_err(|fault| self.context.fault(fault))?;
        }
        stream.synchronize()
    }

    /// # Safety
    /// Both sides have this buffer's length until the stream has done it.
    #[allow(unsafe_code)]
    unsafe fn copy(&self, stream: &Stream<D>, to: Handle, from: Handle, way: Direction) -> Result<(), Error> {
        stream.must_be_of(&self.context)?;
        if self.len == 0 {
            return Ok(());
        }
        let current = self.context.enter()?;
        let bytes = self.len * size_of::<T>();
        // SAFETY: the caller's.
        unsafe { current.driver().copy(to, from, bytes, way, stream.raw_handle()) }
            .map_err(|fault| self.context.fault(fault))
    }
}

impl<T: Plain, D: Driver> Drop for Buffer<T, D> {
    fn drop(&mut self) {
        if self.memory != Handle::NULL
            && let Ok(current) = self.context.force()
        {
            // SAFETY: ours, and going. Both vendors wait for kernels in flight before they free.
            #[allow(unsafe_code)]
            if let Err(fault) = unsafe { current.driver().free(self.memory) } {
                self.context.fault(fault);
            }
        }
    }
}
