//! Streams and events: work is queued until somebody waits for it.

use super::device::Device;
use super::host::Host;
use crate::launch::{Grid, Program};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Work in a stream.
pub(super) enum Task {
    Upload {
        to: u64,
        from: Source,
    },
    Download {
        to: u64,
        from: u64,
        bytes: u64,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
    },
    Fill {
        to: u64,
        byte: u8,
        bytes: u64,
    },
    Launch {
        program: Arc<dyn Program>,
        entry: Arc<str>,
        grid: Grid,
        params: Vec<u8>,
    },
    Record(u64),
    /// Runs another stream up to a position in it.
    After {
        stream: u64,
        place: u64,
    },
}

/// The host side of an upload.
pub(super) enum Source {
    /// Pinned memory, read when the copy happens.
    Pinned { address: u64, bytes: u64 },
    /// Pageable memory, read when the copy was queued.
    Staged(Vec<u8>),
}

/// A queue. Positions in it are numbers of tasks.
#[derive(Default)]
pub(super) struct Stream {
    /// Whether it and the default stream wait for each other.
    pub(super) blocking: bool,
    pub(super) tasks: VecDeque<Task>,
    pub(super) queued: u64,
    pub(super) done: u64,
}

/// A marker in a stream.
#[derive(Default)]
pub(super) struct Event {
    /// The stream and the position in it.
    pub(super) on: Option<(u64, u64)>,
    /// When it happened.
    pub(super) at: Option<Instant>,
}

/// The default stream's key.
pub(super) const DEFAULT: u64 = 0;

impl Device {
    /// Queues a task; `None` if the stream does not belong to this device.
    pub(super) fn queue(&mut self, stream: u64, task: Task, host: &dyn Host) -> Option<Result<(), i32>> {
        if stream == DEFAULT {
            self.streams.entry(DEFAULT).or_default();
        }
        let blocking = self.streams.get(&stream)?.blocking;
        // The default stream and the blocking ones wait for each other: doing it now is early enough.
        let before: Vec<u64> = match stream {
            DEFAULT => self.streams.iter().filter(|(_, s)| s.blocking).map(|(key, _)| *key).collect(),
            _ if blocking => vec![DEFAULT],
            _ => Vec::new(),
        };
        for other in before {
            if let Err(code) = self.finish(other, host) {
                return Some(Err(code));
            }
        }
        let queue = self.streams.get_mut(&stream)?;
        queue.tasks.push_back(task);
        queue.queued += 1;
        Some(Ok(()))
    }

    /// Runs all work in a stream.
    pub(super) fn finish(&mut self, stream: u64, host: &dyn Host) -> Result<(), i32> {
        let place = self.streams.get(&stream).map_or(0, |queue| queue.queued);
        self.reach(stream, place, host)
    }

    /// Runs all work of the device.
    pub(super) fn finish_all(&mut self, host: &dyn Host) -> Result<(), i32> {
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        streams.into_iter().try_for_each(|stream| self.finish(stream, host))
    }

    /// Runs a stream up to a position. A stream that no longer exists ran before it was destroyed.
    pub(super) fn reach(&mut self, stream: u64, place: u64, host: &dyn Host) -> Result<(), i32> {
        loop {
            if let Some(code) = self.lost {
                return Err(code);
            }
            let Some(queue) = self.streams.get_mut(&stream).filter(|queue| queue.done < place) else {
                return Ok(());
            };
            let Some(task) = queue.tasks.pop_front() else { return Ok(()) };
            queue.done += 1;
            if let Err(code) = self.perform(task, host) {
                self.lose(code);
                return Err(code);
            }
        }
    }

    fn perform(&mut self, task: Task, host: &dyn Host) -> Result<(), i32> {
        let done = match task {
            Task::Upload { to, from: Source::Pinned { address, bytes } } => {
                let mut data = vec![0; bytes as usize];
                host.read(address, &mut data);
                self.memory.upload(to, &data)
            }
            Task::Upload { to, from: Source::Staged(data) } => self.memory.upload(to, &data),
            Task::Download { to, from, bytes } => {
                let mut data = vec![0; bytes as usize];
                self.memory.download(from, &mut data).map(|()| host.write(to, &data))
            }
            Task::Copy { to, from, bytes } => self.memory.copy(to, from, bytes),
            Task::Fill { to, byte, bytes } => self.memory.fill(to, byte, bytes),
            Task::Launch { program, entry, grid, params } => {
                return match program.launch(&entry, grid, &params, &mut self.memory) {
                    Ok(counts) => {
                        let (launches, sum) = self.counts.entry(entry.to_string()).or_default();
                        *launches += 1;
                        *sum += counts;
                        Ok(())
                    }
                    Err(fault) => {
                        let code = self.codes.of(&fault.kind);
                        self.found(*fault);
                        Err(code)
                    }
                };
            }
            Task::Record(event) => {
                if let Some(event) = self.events.get_mut(&event) {
                    event.at = Some(Instant::now());
                }
                Ok(())
            }
            Task::After { stream, place } => return self.reach(stream, place, host),
        };
        done.map_err(|kind| {
            self.complaints.push(format!("a copy or fill at whose turn its memory was not there: {kind}"));
            self.codes.of(&kind)
        })
    }
}
