//! Page-locked host memory, which a device copies to and from directly.

use crate::gpu::Context;
use crate::{Driver, Error, Gpu, Handle, Plain};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// An array in pinned host memory. Freed when dropped.
pub struct Pinned<T: Plain, D: Driver> {
    context: Arc<Context<D>>,
    memory: Handle,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Plain, D: Driver> fmt::Debug for Pinned<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned[{}]", self.len)
    }
}

impl<D: Driver> Gpu<D> {
    /// Allocates pinned host memory for `len` numbers, all zero.
    #[allow(unsafe_code)]
    pub fn pinned<T: Plain>(&self, len: usize) -> Result<Pinned<T, D>, Error> {
        let bytes = len.saturating_mul(size_of::<T>());
        let current = self.context.enter()?;
        let memory = match bytes {
            0 => Handle::NULL,
            _ => current
                .driver()
                .alloc_pinned(bytes)
                .map_err(|fault| self.context.alloc_fault(bytes, fault))?,
        };
        if bytes > 0 {
            // SAFETY: writable host memory of this size, by the contract of `Driver`.
            unsafe { memory.0.cast::<u8>().write_bytes(0, bytes) };
        }
        Ok(Pinned { context: self.context.clone(), memory, len, of: PhantomData })
    }
}

impl<T: Plain, D: Driver> Pinned<T, D> {
    pub(crate) fn handle(&self) -> Handle {
        self.memory
    }

    fn first(&self) -> *mut T {
        if self.len == 0 { std::ptr::dangling_mut() } else { self.memory.0.cast() }
    }
}

impl<T: Plain, D: Driver> Deref for Pinned<T, D> {
    type Target = [T];
    #[allow(unsafe_code)]
    fn deref(&self) -> &[T] {
        // SAFETY: initialised when allocated, of a type whose every bit pattern is valid, ours until dropped.
        unsafe { std::slice::from_raw_parts(self.first(), self.len) }
    }
}

impl<T: Plain, D: Driver> DerefMut for Pinned<T, D> {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.len) }
    }
}

impl<T: Plain, D: Driver> Drop for Pinned<T, D> {
    fn drop(&mut self) {
        if self.memory != Handle::NULL
            && let Ok(current) = self.context.force()
        {
            // SAFETY: ours, and being dropped.
            #[allow(unsafe_code)]
            if let Err(fault) = unsafe { current.driver().free_pinned(self.memory) } {
                self.context.fault(fault);
            }
        }
    }
}
