//! First-in-first-out buffer as index arithmetic: the slot that a new entry takes, and the slot of the oldest
//! entry.
//!
//! The caller stores the entries. Entry number e (counted from 0 since the start) is in slot e mod capacity
//! until it is taken or overwritten.

use lockstep_core::Error;
use lockstep_core::require;

/// The state of a buffer. Copy it into a checkpoint to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fifo {
    capacity: u32,
    written: u64,
    taken: u64,
}

impl Fifo {
    /// Creates an empty buffer. Errors: a capacity of 0.
    pub fn new(capacity: u32) -> Result<Self, Error> {
        require::scalar("capacity", capacity > 0, "at least 1", 0.0)?;
        Ok(Fifo { capacity, written: 0, taken: 0 })
    }

    /// Number of entries in the buffer.
    pub fn len(&self) -> u32 {
        (self.written - self.taken) as u32
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.written == self.taken
    }

    /// Number of slots.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    fn slot_of(&self, entry: u64) -> u32 {
        (entry % u64::from(self.capacity)) as u32
    }

    /// Returns the slot for a new entry. A full buffer loses its oldest entry, which was in that slot.
    pub fn push(&mut self) -> u32 {
        if self.len() == self.capacity {
            self.taken += 1;
        }
        let slot = self.slot_of(self.written);
        self.written += 1;
        slot
    }

    /// Takes the oldest entry and returns its slot, or `None` if the buffer is empty.
    pub fn pop(&mut self) -> Option<u32> {
        let slot = self.at(0)?;
        self.taken += 1;
        Some(slot)
    }

    /// Returns the slot of the entry `position` places after the oldest, or `None` if there is none.
    pub fn at(&self, position: u32) -> Option<u32> {
        (position < self.len()).then(|| self.slot_of(self.taken + u64::from(position)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_buffer_loses_its_oldest() {
        let mut fifo = Fifo::new(3).unwrap();
        assert_eq!((fifo.pop(), fifo.at(0), fifo.is_empty()), (None, None, true));
        let mut entries = [0; 3];
        for entry in 0..8 {
            entries[fifo.push() as usize] = entry;
            assert_eq!(fifo.len(), 3.min(entry + 1));
            let oldest = fifo.at(0).unwrap();
            assert_eq!(entries[oldest as usize], entry.saturating_sub(2));
        }
        let taken: [u32; 3] = core::array::from_fn(|_| entries[fifo.pop().unwrap() as usize]);
        assert_eq!((taken, fifo.pop(), fifo.at(0)), ([5, 6, 7], None, None));
        assert!(matches!(Fifo::new(0), Err(Error::Value { argument: "capacity", .. })));
    }
}
