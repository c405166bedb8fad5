//! Which team touched which byte in the running launch.
//!
//! An access leaves a stamp. A team takes one stamp per phase: from a launch to its end, or from one barrier
//! of its block to the next. Stamps are never reused, so those of earlier launches need no clearing, and they
//! increase, because blocks run one after the other, and the phases of a block too. What happened before the
//! barrier are therefore the stamps from the block's first to the phase's first.

use std::ops::Range;

/// Hands out stamps.
#[derive(Debug)]
pub(crate) struct Phases {
    /// The first stamps of the launch, of the block and of the phase, and the first that is free.
    epoch: u64,
    block: u64,
    phase: u64,
    next: u64,
    /// Of each phase of the launch the first stamp and the team that has it.
    starts: Vec<(u64, u64)>,
}

impl Default for Phases {
    fn default() -> Self {
        Phases { epoch: 1, block: 1, phase: 1, next: 2, starts: vec![(1, 0)] }
    }
}

impl Phases {
    /// Begins a launch without barriers.
    pub(crate) fn launch(&mut self, teams: u64) {
        self.epoch = self.next;
        self.starts.clear();
        self.block(0, teams);
    }

    /// Begins a block of teams.
    pub(crate) fn block(&mut self, first: u64, teams: u64) {
        self.block = self.next;
        self.barrier(first, teams);
    }

    /// Begins another phase of the block.
    pub(crate) fn barrier(&mut self, first: u64, teams: u64) {
        self.phase = self.next;
        self.next += teams.max(1);
        self.starts.push((self.phase, first));
    }

    /// Returns a team in the running phase.
    #[inline]
    pub(crate) fn who(&self, team: u64) -> Who {
        let first = self.starts.last().map_or(0, |(_, first)| *first);
        let me = self.phase + team.saturating_sub(first);
        Who { team, epoch: self.epoch, block: self.block, phase: self.phase, me }
    }

    /// Returns the team that has a stamp of the launch.
    pub(crate) fn team(&self, stamp: u64) -> u64 {
        let after = self.starts.partition_point(|(start, _)| *start <= stamp);
        self.starts[..after].last().map_or(0, |(start, first)| first + (stamp - start))
    }
}

/// A team of a launch in a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) team: u64,
    epoch: u64,
    block: u64,
    phase: u64,
    /// Its stamp.
    me: u64,
}

impl Who {
    /// Returns the same team where earlier phases and other blocks do not matter: in shared memory.
    #[inline]
    pub(crate) fn in_block(self) -> Who {
        Who { epoch: self.phase, block: self.phase, ..self }
    }

    /// Returns whether another team left this stamp in the launch, and no barrier orders it before this
    /// team's accesses.
    #[inline]
    fn races(self, stamp: u64) -> bool {
        stamp >= self.epoch && stamp != self.me && !(self.block..self.phase).contains(&stamp)
    }
}

/// Stamps of each byte, or 0 if untouched.
#[derive(Debug)]
pub(crate) struct Races {
    writer: Vec<u64>,
    /// The first team that read it; after a barrier, the block's first since. Other readers need not be known
    /// to detect a race, except when the first reader itself writes. A reader of an earlier block stays.
    reader: Vec<u64>,
    /// Whether a second team read it too.
    shared: Vec<u64>,
}

impl Races {
    pub(crate) fn new(len: usize) -> Races {
        Races { writer: vec![0; len], reader: vec![0; len], shared: vec![0; len] }
    }

    /// Records a read; returns the stamp of another team that wrote one of the bytes, if any.
    #[inline]
    pub(crate) fn read(&mut self, range: Range<usize>, who: Who) -> Option<(u64, &'static str)> {
        let first = range.start;
        let writers = &self.writer[range.clone()];
        let readers = &mut self.reader[range];
        for (at, (writer, reader)) in writers.iter().zip(readers).enumerate() {
            if who.races(*writer) {
                return Some((*writer, "wrote"));
            }
            if who.races(*reader) {
                self.shared[first + at] = who.me;
            } else {
                *reader = who.me;
            }
        }
        None
    }

    /// Records a write; returns the stamp of another team that touched one of the bytes, if any.
    #[inline]
    pub(crate) fn write(&mut self, range: Range<usize>, who: Who) -> Option<(u64, &'static str)> {
        for at in range {
            let stamps = [(self.writer[at], "wrote"), (self.reader[at], "read"), (self.shared[at], "read")];
            if let Some(other) = stamps.into_iter().find(|(stamp, _)| who.races(*stamp)) {
                return Some(other);
            }
            self.writer[at] = who.me;
        }
        None
    }
}
