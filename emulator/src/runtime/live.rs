//! Objects that were not released.

use std::ops::AddAssign;

/// Numbers of objects that are still held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Allocations of device memory.
    pub memory: u64,
    /// Allocations of pinned memory.
    pub pinned: u64,
    /// Streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Modules.
    pub modules: u64,
    /// References to contexts.
    pub contexts: u64,
}

impl Live {
    /// Returns the numbers in the order of the fields.
    pub fn array(self) -> [u64; 6] {
        [self.memory, self.pinned, self.streams, self.events, self.modules, self.contexts]
    }
}

impl AddAssign for Live {
    fn add_assign(&mut self, other: Live) {
        self.memory += other.memory;
        self.pinned += other.pinned;
        self.streams += other.streams;
        self.events += other.events;
        self.modules += other.modules;
        self.contexts += other.contexts;
    }
}
