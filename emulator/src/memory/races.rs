//! Which team touched which byte in the running launch.

use std::ops::Range;

/// A team of a launch. Launches take `epoch`s that are never reused, so stamps of earlier launches need no
/// clearing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) epoch: u64,
    pub(crate) team: u64,
}

/// Stamps of each byte: `epoch + team`, or 0 if untouched.
#[derive(Debug)]
pub(crate) struct Races {
    writer: Vec<u64>,
    /// The first team that read it. Other readers need not be known to detect a race, except when the first
    /// reader itself writes.
    reader: Vec<u64>,
    /// Whether a second team read it too.
    shared: Vec<u64>,
}

impl Races {
    pub(crate) fn new(len: usize) -> Races {
        Races { writer: vec![0; len], reader: vec![0; len], shared: vec![0; len] }
    }

    /// Records a read; returns the other team that wrote one of the bytes, if any.
    #[inline]
    pub(crate) fn read(&mut self, range: Range<usize>, who: Who) -> Option<(u64, &'static str)> {
        let me = who.epoch + who.team;
        let first = range.start;
        let writers = &self.writer[range.clone()];
        let readers = &mut self.reader[range];
        for (at, (writer, reader)) in writers.iter().zip(readers).enumerate() {
            if *writer >= who.epoch && *writer != me {
                return Some((*writer - who.epoch, "wrote"));
            }
            if *reader < who.epoch {
                *reader = me;
            } else if *reader != me {
                self.shared[first + at] = me;
            }
        }
        None
    }

    /// Records a write; returns the other team that touched one of the bytes, if any.
    #[inline]
    pub(crate) fn write(&mut self, range: Range<usize>, who: Who) -> Option<(u64, &'static str)> {
        let me = who.epoch + who.team;
        for at in range {
            let (writer, reader, shared) = (self.writer[at], self.reader[at], self.shared[at]);
            if writer >= who.epoch && writer != me {
                return Some((writer - who.epoch, "wrote"));
            }
            if reader >= who.epoch && reader != me {
                return Some((reader - who.epoch, "read"));
            }
            if shared >= who.epoch && shared != me {
                return Some((shared - who.epoch, "read"));
            }
            self.writer[at] = me;
        }
        None
    }
}
