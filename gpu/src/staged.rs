//! The staged path: runs a kernel over host memory on the device.

use crate::gpu::{Context, Current};
use crate::{Direction, Driver, Encoded, Error, Gpu, Handle, Parameters};
use std::sync::PoisonError;

/// Alignment of arrays in a staged run, which suits memory transactions.
const ALIGN: usize = 256;
/// Arenas grow in these steps, in bytes.
const STEP: usize = 1 << 20;

/// Bytes of a blocking copy that go through pinned memory at a time.
const CHUNK: usize = 8 << 20;

/// Memory and a stream for one run at a time, kept for the next run.
#[derive(Debug)]
pub(crate) struct Arena {
    /// Null for an arena that only copies.
    memory: Handle,
    pinned: Handle,
    capacity: usize,
    stream: Handle,
}

#[allow(unsafe_code)]
impl Arena {
    /// Allocates memory and a stream; all or nothing.
    fn new<D: Driver>(
        context: &Context<D>,
        current: &Current<'_, D>,
        bytes: usize,
        device: bool,
    ) -> Result<Arena, Error> {
        let (driver, capacity) = (current.driver(), bytes.next_multiple_of(STEP));
        let stream = driver.create_stream().map_err(|fault| context.fault(fault))?;
        let mut arena = Arena { memory: Handle::NULL, pinned: Handle::NULL, capacity, stream };
        let mut get = || {
            if device {
                arena.memory = driver.alloc(capacity)?;
            }
            arena.pinned = driver.alloc_pinned(capacity)?;
            Ok(())
        };
        if let Err(fault) = get() {
            let error = context.alloc_fault(capacity, fault);
            arena.free(current);
            return Err(error);
        }
        Ok(arena)
    }

    /// Releases everything; what a lost context no longer accepts was lost with it.
    pub(crate) fn free<D: Driver>(self, current: &Current<'_, D>) {
        let driver = current.driver();
        // SAFETY: ours, and being dropped; null pointers were never allocated. The stream is idle or its
        // context lost.
        unsafe {
            if self.pinned != Handle::NULL {
                _ = driver.free_pinned(self.pinned);
            }
            if self.memory != Handle::NULL {
                _ = driver.free(self.memory);
            }
            driver.destroy_stream(self.stream);
        }
    }

    fn at(handle: Handle, offset: usize) -> Handle {
        Handle(handle.0.wrapping_byte_add(offset))
    }
}

/// Offsets of a run's arrays in an arena: inputs first, then outputs, so that one copy uploads everything and
/// one downloads the outputs.
struct Layout {
    offsets: [usize; lockstep_core::op::MAX_POINTERS],
    outputs: usize,
    end: usize,
}

impl Layout {
    fn of(parameters: &Parameters) -> Layout {
        let mut layout = Layout { offsets: [0; _], outputs: 0, end: 0 };
        for written in [false, true] {
            if written {
                layout.outputs = layout.end;
            }
            for (i, array) in parameters.arrays().iter().enumerate() {
                if array.written == written {
                    layout.offsets[i] = layout.end;
                    layout.end += array.bytes.next_multiple_of(ALIGN);
                }
            }
        }
        layout
    }
}

#[allow(unsafe_code)]
impl<D: Driver> Gpu<D> {
    /// Runs every row of a kernel over **host** memory: copies its arrays to the device through pinned
    /// memory, launches, copies the outputs back and waits.
    ///
    /// Elements that the kernel does not write keep their values. Memory is kept for the next run
    /// ([`trim`](Gpu::trim) releases it). Several threads may run at once.
    ///
    /// Errors, by the name of the argument: a scalar out of its domain ([`Launch::check`]); an array that is
    /// too short for the rows, or an index out of bounds ([`Launch::check_bounds`]), because accesses are not
    /// checked on a device; and what the driver reports.
    ///
    /// [`Launch::check`]: lockstep_core::op::Launch::check
    /// [`Launch::check_bounds`]: lockstep_core::op::Launch::check_bounds
    pub fn run<K: Encoded + ?Sized>(&self, kernel: &K) -> Result<(), Error> {
        kernel.check()?;
        kernel.check_bounds()?;
        self.run_staged(kernel.parameters())
    }

    /// The part of `run` that does not depend on the op's type.
    fn run_staged(&self, mut parameters: Parameters) -> Result<(), Error> {
        if parameters.rows == 0 {
            return Ok(());
        }
        let context = &*self.context;
        let current = &context.enter()?;
        let entry = self.entry(current, &parameters)?;
        let layout = Layout::of(&parameters);
        let arena = context.take(current, layout.end, true)?;
        let result = (|| {
            let host = parameters.clone();
            for (array, offset) in parameters.arrays_mut().iter_mut().zip(layout.offsets) {
                if array.bytes > 0 {
                    let staged = Arena::at(arena.pinned, offset).0.cast::<u8>();
                    // SAFETY: the view's contract makes the source readable; the arena is larger than the
                    // layout and ours.
                    unsafe { staged.copy_from_nonoverlapping(array.address, array.bytes) };
                    array.address = Arena::at(arena.memory, offset).0.cast();
                }
            }
            let stream = arena.stream;
            let copy = |to, from, bytes, way| {
                // SAFETY: both sides are in the arena, which nobody else uses until the stream has been
                // waited for.
                unsafe { current.driver().copy(to, from, bytes, way, stream) }
                    .map_err(|fault| context.fault(fault))
            };
            copy(arena.memory, arena.pinned, layout.end, Direction::Upload)?;
            // SAFETY: all arrays are in the arena, with the lengths that the views state.
            unsafe {
                self.enqueue(current, entry, &mut parameters, stream)?;
                self.measure(current, entry, &mut parameters, stream)?;
            }
            let outputs = |memory| Arena::at(memory, layout.outputs);
            let bytes = layout.end - layout.outputs;
            copy(outputs(arena.pinned), outputs(arena.memory), bytes, Direction::Download)?;
            // SAFETY: the stream is the arena's.
            unsafe { current.driver().synchronize(stream) }.map_err(|fault| context.fault(fault))?;
            for (array, offset) in host.arrays().iter().zip(layout.offsets) {
                if array.written && array.bytes > 0 {
                    let staged = Arena::at(arena.pinned, offset).0.cast::<u8>();
                    // SAFETY: an `Out`'s contract makes the target writable.
                    unsafe { array.address.copy_from_nonoverlapping(staged, array.bytes) };
                }
            }
            Ok(())
        })();
        context.settle(current, arena, None, &result);
        result
    }

    /// Releases the memory that idle staged runs keep.
    pub fn trim(&self) -> Result<(), Error> {
        let current = self.context.enter()?;
        let arenas = std::mem::take(&mut *self.context.arenas.lock().unwrap_or_else(PoisonError::into_inner));
        arenas.into_iter().for_each(|arena| arena.free(&current));
        Ok(())
    }
}

/// The direction of a blocking copy, and its host side.
#[derive(Clone, Copy)]
pub(crate) enum Host {
    /// From the host.
    Read(*const u8),
    /// To the host.
    Write(*mut u8),
}

#[allow(unsafe_code)]
impl<D: Driver> Context<D> {
    /// Copies between the host and the device in stream order, and waits for the copy.
    ///
    /// It goes through pinned memory of ours: if the wait fails and the copy happens later (in a stream that
    /// is being captured), it touches memory that still exists.
    ///
    /// # Safety
    /// Both sides hold `bytes` bytes; the stream exists.
    pub(crate) unsafe fn copy_and_wait(
        &self,
        stream: Handle,
        memory: Handle,
        host: Host,
        bytes: usize,
    ) -> Result<(), Error> {
        let current = self.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        let arena = self.take(&current, bytes.min(CHUNK), false)?;
        let driver = current.driver();
        let pinned = arena.pinned.0.cast::<u8>();
        let result = (0..bytes).step_by(CHUNK).try_for_each(|start| {
            let (memory, bytes) = (Arena::at(memory, start), (bytes - start).min(CHUNK));
            // SAFETY: both sides are the caller's or the arena's, and as long; the arena is kept until it is
            // settled.
            unsafe {
                match host {
                    Host::Read(from) => {
                        pinned.copy_from_nonoverlapping(from.add(start), bytes);
                        driver.copy(memory, arena.pinned, bytes, Direction::Upload, stream)?;
                        driver.synchronize(stream)
                    }
                    Host::Write(to) => {
                        driver.copy(arena.pinned, memory, bytes, Direction::Download, stream)?;
                        driver.synchronize(stream)?;
                        to.add(start).copy_from_nonoverlapping(pinned, bytes);
                        Ok(())
                    }
                }
            }
        });
        let result = result.map_err(|fault| self.fault(fault));
        self.settle(&current, arena, Some(stream), &result);
        result
    }

    /// Takes an arena of at least `bytes` bytes: an idle one that is large enough, or a new one that replaces
    /// an idle one.
    fn take(&self, current: &Current<'_, D>, bytes: usize, device: bool) -> Result<Arena, Error> {
        let fits = |arena: &Arena| arena.capacity >= bytes && (!device || arena.memory != Handle::NULL);
        let mut arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(i) = arenas.iter().position(fits) {
            return Ok(arenas.swap_remove(i));
        }
        let small = arenas.pop();
        drop(arenas);
        if let Some(small) = small {
            small.free(current);
        }
        Arena::new(self, current, bytes, device)
    }

    /// Keeps an arena for the next run. After a failure, a copy may still be pending on the arena's stream or
    /// another: it is waited for, and if that fails too, the arena is never used or freed again.
    fn settle<T>(
        &self,
        current: &Current<'_, D>,
        arena: Arena,
        stream: Option<Handle>,
        result: &Result<T, Error>,
    ) {
        // SAFETY: both streams exist.
        let idle =
            result.is_ok() || unsafe { current.driver().synchronize(stream.unwrap_or(arena.stream)) }.is_ok();
        if idle {
            self.arenas.lock().unwrap_or_else(PoisonError::into_inner).push(arena);
        }
    }
}
