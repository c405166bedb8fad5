//! Who touched which byte in the launch that runs.

use std::ops::Range;

/// A team of a launch. Launches take `epoch`s that never come back, so what earlier ones left needs no
/// clearing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) epoch: u64,
    pub(crate) team: u64,
}

/// Stamps of each byte: `epoch + team`, and 0 where nobody was.
#[derive(Debug)]
pub(crate) struct Races {
    writer: Vec<u64>,
    /// The first team that read it; a second one need not be known to tell a race from none, but by the first
    /// itself.
    reader: Vec<u64>,
    /// Whether a second team read it too.
    shared: Vec<u64>,
}

impl Races {
    pub(crate) fn new(len: usize) -> Races {
        Races { writer: vec![0; len], reader: vec![0; len], shared: vec![0; len] }
    }

    /// Notes a read; the team that wrote one of the bytes, if another did.
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

    /// Notes a write; the team that touched one of the bytes, if another did.
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
