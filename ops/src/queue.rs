//! Device queues, and the memory that their launches read and write.

use crate::device::Kind;
use crate::gpu::{cuda, rocm};
use crate::{Compiled, Device, Error, Plain};
use lockstep_core::op::DisjointRows;
use lockstep_cpu::Cpu;
use std::cell::UnsafeCell;
use std::ffi::c_void;

/// A queue of launches: a stream of a GPU, or this machine's CPU, which runs each launch immediately.
#[derive(Debug)]
pub struct Queue(Of);

#[derive(Debug)]
enum Of {
    Cpu(Cpu),
    Cuda(cuda::Gpu, cuda::Stream),
    Rocm(rocm::Gpu, rocm::Stream),
}

/// A block of memory that a device can access, freed on drop.
#[derive(Debug)]
pub struct Memory(Block);

#[derive(Debug)]
enum Block {
    // Words, so that it is aligned for every element; cells, for launches write through `as_ptr`.
    Host(Vec<UnsafeCell<u64>>),
    Cuda(cuda::Buffer<u8>),
    Rocm(rocm::Buffer<u8>),
}

impl Device {
    /// Creates a new queue of this device.
    ///
    /// Errors if the GPU cannot create a stream.
    pub fn queue(&self) -> Result<Queue, Error> {
        Ok(Queue(match self.kind() {
            Kind::Cpu(cpu) => Of::Cpu(cpu.clone()),
            Kind::Cuda(gpu) => Of::Cuda(gpu.clone(), gpu.stream()?),
            Kind::Rocm(gpu) => Of::Rocm(gpu.clone(), gpu.stream()?),
        }))
    }

    /// Wraps the caller's stream (`CUstream`, `cudaStream_t` or `hipStream_t`; null for the default one) as a
    /// queue. A CPU ignores the argument.
    ///
    /// Errors if the stream is known to belong to another device.
    ///
    /// # Safety
    /// `stream` is null or a stream of this device, and outlives the result.
    #[allow(unsafe_code)]
    pub unsafe fn queue_on(&self, stream: *mut c_void) -> Result<Queue, Error> {
        // SAFETY: upheld by the caller.
        Ok(Queue(unsafe {
            match self.kind() {
                Kind::Cpu(cpu) => Of::Cpu(cpu.clone()),
                Kind::Cuda(gpu) => Of::Cuda(gpu.clone(), gpu.stream_from_raw(stream)?),
                Kind::Rocm(gpu) => Of::Rocm(gpu.clone(), gpu.stream_from_raw(stream)?),
            }
        }))
    }
}

#[allow(unsafe_code)]
impl Queue {
    /// Whether the queue is the CPU's, which runs each launch immediately.
    pub fn is_cpu(&self) -> bool {
        matches!(self.0, Of::Cpu(_))
    }

    /// Waits for everything in the queue.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.0 {
            Of::Cpu(_) => Ok(()),
            Of::Cuda(_, stream) => Ok(stream.synchronize()?),
            Of::Rocm(_, stream) => Ok(stream.synchronize()?),
        }
    }

    /// Allocates `bytes` bytes, whose values are unspecified.
    pub fn alloc(&self, bytes: usize) -> Result<Memory, Error> {
        Ok(Memory(match &self.0 {
            Of::Cpu(_) => Block::Host((0..bytes.div_ceil(8)).map(|_| UnsafeCell::new(0)).collect()),
            Of::Cuda(gpu, _) => Block::Cuda(gpu.alloc(bytes)?),
            Of::Rocm(gpu, _) => Block::Rocm(gpu.alloc(bytes)?),
        }))
    }

    /// Copies `bytes` to new memory of the device and waits for the copy.
    pub fn upload(&self, bytes: &[u8]) -> Result<Memory, Error> {
        Ok(Memory(match &self.0 {
            Of::Cpu(_) => {
                let word = |eight: &[u8]| {
                    let mut own = [0; 8];
                    own[..eight.len()].copy_from_slice(eight);
                    UnsafeCell::new(u64::from_ne_bytes(own))
                };
                Block::Host(bytes.chunks(8).map(word).collect())
            }
            Of::Cuda(gpu, stream) => Block::Cuda(gpu.upload(stream, bytes)?),
            Of::Rocm(gpu, stream) => Block::Rocm(gpu.upload(stream, bytes)?),
        }))
    }

    /// Errors if `memory` is of another kind of device than the queue, which then cannot access it.
    pub fn check_memory(&self, memory: &Memory) -> Result<(), Error> {
        let own = match &self.0 {
            Of::Cpu(_) => matches!(memory.0, Block::Host(_)),
            Of::Cuda(..) => matches!(memory.0, Block::Cuda(_)),
            Of::Rocm(..) => matches!(memory.0, Block::Rocm(_)),
        };
        let expected = "memory of the queue's device";
        own.then_some(()).ok_or(lockstep_core::Error::Combination { argument: "memory", expected }.into())
    }

    /// Copies `memory` to the host, in the order of the queue, and waits for the copy.
    ///
    /// Errors: memory of another device.
    pub fn read(&self, memory: &Memory) -> Result<Vec<u8>, Error> {
        self.check_memory(memory)?;
        let mut bytes = vec![0; memory.len()];
        // SAFETY: as long as the memory.
        unsafe { self.download(memory.as_ptr().cast_const(), &mut bytes)? };
        Ok(bytes)
    }

    /// Copies memory of this queue's device to the host, in the order of the queue, and waits for the copy.
    ///
    /// # Safety
    /// `from` is readable for `to.len()` elements.
    pub unsafe fn download<T: Plain>(&self, from: *const T, to: &mut [T]) -> Result<(), Error> {
        // SAFETY: upheld by the caller.
        unsafe {
            match &self.0 {
                Of::Cpu(_) => to.as_mut_ptr().copy_from_nonoverlapping(from, to.len()),
                Of::Cuda(gpu, stream) => gpu.download(stream, from, to)?,
                Of::Rocm(gpu, stream) => gpu.download(stream, from, to)?,
            }
        }
        Ok(())
    }

    /// Copies from the host to memory of this queue's device, in the order of the queue, and waits for the
    /// copy.
    ///
    /// # Safety
    /// `to` is writable for `from.len()` elements, and nothing else accesses it during the call.
    pub unsafe fn write<T: Plain>(&self, from: &[T], to: *mut T) -> Result<(), Error> {
        // SAFETY: upheld by the caller.
        unsafe {
            match &self.0 {
                Of::Cpu(_) => to.copy_from_nonoverlapping(from.as_ptr(), from.len()),
                Of::Cuda(gpu, stream) => gpu.write_to(stream, from, to)?,
                Of::Rocm(gpu, stream) => gpu.write_to(stream, from, to)?,
            }
        }
        Ok(())
    }

    /// Enqueues an op over memory of this queue's device.
    ///
    /// # Safety
    /// The op's arrays are memory of this queue's device and stay allocated until the queue has run the op;
    /// until then nothing else accesses the arrays that it writes.
    pub unsafe fn launch<K: Compiled + DisjointRows>(&self, kernel: &K) -> Result<(), Error> {
        // SAFETY: upheld by the caller.
        unsafe {
            match &self.0 {
                Of::Cpu(cpu) => cpu.run(kernel),
                Of::Cuda(gpu, stream) => gpu.launch(stream, kernel)?,
                Of::Rocm(gpu, stream) => gpu.launch(stream, kernel)?,
            }
        }
        Ok(())
    }
}

impl Memory {
    /// The device address of the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        match &self.0 {
            Block::Host(words) => words.as_ptr().cast_mut().cast(),
            Block::Cuda(buffer) => buffer.as_ptr(),
            Block::Rocm(buffer) => buffer.as_ptr(),
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Block::Host(words) => words.len() * 8,
            Block::Cuda(buffer) => buffer.len(),
            Block::Rocm(buffer) => buffer.len(),
        }
    }

    /// Whether the block has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
