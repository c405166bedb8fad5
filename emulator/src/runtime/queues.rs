//! The calls that put work into streams and wait for it.

use super::device::Device;
use super::machine::{Machine, device_of, new_handle};
use super::streams::{DEFAULT, Event, Source, Stream, Task};
use crate::launch::Grid;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::MutexGuard;
use std::time::Duration;

/// The limits of a grid in both APIs.
const MAX_THREADS: u64 = 1024;
const MAX_BLOCKS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Host to device.
    Upload,
    /// Device to host.
    Download,
    /// Within the device.
    Device,
}

/// A launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Handle of the entry point.
    pub function: u64,
    /// Blocks and threads.
    pub grid: Grid,
    /// The buffer with its parameters.
    pub params: Vec<u8>,
}

impl Machine {
    // --- copies

    /// Returns an error unless an allocation of the device contains the bytes.
    fn holds(&self, device: &Device, address: u64, bytes: u64) -> Result<(), i32> {
        let inside =
            device.memory.owner(address).is_some_and(|(start, size)| bytes <= size - (address - start));
        if inside { Ok(()) } else { Err(self.vendor.codes.value) }
    }

    /// Queues a copy. Pageable host memory is accessed before this returns, as the APIs specify; pinned
    /// memory when the copy runs.
    pub fn copy(
        &self,
        (current, stream): (usize, u64),
        way: Way,
        to: u64,
        from: u64,
        bytes: u64,
    ) -> Result<(), i32> {
        let mut device = self.on(current, stream)?;
        if bytes == 0 {
            return Ok(());
        }
        match way {
            Way::Upload => {
                self.holds(&device, to, bytes)?;
                let from = if self.is_pinned(from, bytes) {
                    Source::Pinned { address: from, bytes }
                } else {
                    let mut staged = vec![0; bytes as usize];
                    self.host.read(from, &mut staged);
                    Source::Staged(staged)
                };
                self.queue(&mut device, stream, Task::Upload { to, from })
            }
            Way::Download => {
                self.holds(&device, from, bytes)?;
                let pinned = self.is_pinned(to, bytes);
                self.queue(&mut device, stream, Task::Download { to, from, bytes })?;
                if pinned { Ok(()) } else { device.finish(stream, &*self.host) }
            }
            Way::Device => {
                self.holds(&device, to, bytes)?;
                self.holds(&device, from, bytes)?;
                self.queue(&mut device, stream, Task::Copy { to, from, bytes })
            }
        }
    }

    /// Queues a fill.
    pub fn fill(&self, (current, stream): (usize, u64), to: u64, byte: u8, bytes: u64) -> Result<(), i32> {
        let mut device = self.on(current, stream)?;
        if bytes == 0 {
            return Ok(());
        }
        self.holds(&device, to, bytes)?;
        self.queue(&mut device, stream, Task::Fill { to, byte, bytes })
    }

    // --- streams and events

    /// Locks the device of a stream; the default stream is the current device's.
    fn on(&self, current: usize, stream: u64) -> Result<MutexGuard<'_, Device>, i32> {
        if stream == DEFAULT {
            return self.device(current);
        }
        let device = self.of(stream)?;
        self.no_handle(device.streams.get(&stream))?;
        Ok(device)
    }

    fn queue(&self, device: &mut Device, stream: u64, task: Task) -> Result<(), i32> {
        self.no_handle(device.queue(stream, task, &*self.host))?
    }

    /// Creates a stream; a blocking one and the default stream wait for each other.
    pub fn create_stream(&self, device: usize, blocking: bool) -> Result<u64, i32> {
        let handle = new_handle(device);
        self.device(device)?.streams.insert(handle, Stream { blocking, ..Stream::default() });
        Ok(handle)
    }

    /// Destroys a stream, after running its work.
    pub fn destroy_stream(&self, stream: u64) -> Result<(), i32> {
        let mut device = self.of(stream)?;
        self.no_handle(device.streams.get(&stream))?;
        device.finish(stream, &*self.host)?;
        device.streams.remove(&stream);
        Ok(())
    }

    /// Returns the device of a stream.
    pub fn stream_device(&self, current: usize, stream: u64) -> Result<usize, i32> {
        drop(self.on(current, stream)?);
        Ok(if stream == DEFAULT { current } else { device_of(stream) })
    }

    /// Runs the work in a stream.
    pub fn synchronize(&self, current: usize, stream: u64) -> Result<(), i32> {
        self.on(current, stream)?.finish(stream, &*self.host)
    }

    /// Runs the work in every stream of a device.
    pub fn synchronize_device(&self, device: usize) -> Result<(), i32> {
        self.device(device)?.finish_all(&*self.host)
    }

    /// Creates an event.
    pub fn create_event(&self, device: usize) -> Result<u64, i32> {
        let handle = new_handle(device);
        self.device(device)?.events.insert(handle, Event::default());
        Ok(handle)
    }

    /// Destroys an event.
    pub fn destroy_event(&self, event: u64) -> Result<(), i32> {
        let mut device = self.of(event)?;
        self.no_handle(device.events.remove(&event)).map(drop)
    }

    /// Records an event in a stream of the event's device.
    pub fn record(&self, current: usize, event: u64, stream: u64) -> Result<(), i32> {
        if self.stream_device(current, stream)? != device_of(event) {
            return Err(self.vendor.codes.handle);
        }
        let mut device = self.of(event)?;
        self.no_handle(device.events.get(&event))?;
        self.queue(&mut device, stream, Task::Record(event))?;
        let place = device.streams.get(&stream).map_or(0, |stream| stream.queued);
        if let Some(event) = device.events.get_mut(&event) {
            (event.on, event.at) = (Some((stream, place)), None);
        }
        Ok(())
    }

    /// Makes later work on the stream wait for the event as last recorded.
    pub fn wait(&self, current: usize, stream: u64, event: u64) -> Result<(), i32> {
        let of = self.stream_device(current, stream)?;
        if of != device_of(event) {
            // A stream of another device: doing it now is early enough.
            return self.synchronize_event(event);
        }
        let mut device = self.of(event)?;
        let on = self.no_handle(device.events.get(&event))?.on;
        match on {
            Some((on, place)) if on != stream => {
                self.queue(&mut device, stream, Task::After { stream: on, place })
            }
            _ => Ok(()),
        }
    }

    /// Runs what precedes an event. One that was never recorded counts as happened.
    pub fn synchronize_event(&self, event: u64) -> Result<(), i32> {
        let mut device = self.of(event)?;
        let on = self.no_handle(device.events.get(&event))?.on;
        on.map_or(Ok(()), |(stream, place)| device.reach(stream, place, &*self.host))
    }

    /// Returns the time between two events of one device.
    pub fn elapsed(&self, from: u64, to: u64) -> Result<Duration, i32> {
        if device_of(from) != device_of(to) {
            return Err(self.vendor.codes.handle);
        }
        let device = self.of(from)?;
        let at = |event: u64| {
            let event = self.no_handle(device.events.get(&event))?;
            self.no_handle(event.on)?;
            event.at.ok_or(self.vendor.codes.not_ready)
        };
        Ok(at(to)?.saturating_duration_since(at(from)?))
    }

    // --- launches

    /// Queues a launch.
    pub fn launch(&self, current: usize, launch: Launch, stream: u64) -> Result<(), i32> {
        let Launch { function, grid, params } = launch;
        let threads = grid.threads.iter().try_fold(1u64, |all, n| all.checked_mul(u64::from(*n)));
        let fits = threads.is_some_and(|threads| (1..=MAX_THREADS).contains(&threads));
        let grid_fits = grid.blocks.iter().zip(MAX_BLOCKS).all(|(n, most)| (1..=most).contains(n));
        if !fits || !grid_fits {
            return Err(self.vendor.codes.value);
        }
        if self.stream_device(current, stream)? != device_of(function) {
            return Err(self.vendor.codes.handle);
        }
        let mut device = self.of(function)?;
        let (program, entry) = self.entry(&device, function)?;
        let mut parameters = DefaultHasher::new();
        params.hash(&mut parameters);
        let Grid { blocks, threads } = grid;
        self.note(&format!(" {entry} {blocks:?} {threads:?} {:016x}", parameters.finish()));
        self.queue(&mut device, stream, Task::Launch { program, entry, grid, params })
    }
}
