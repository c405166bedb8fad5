//! Last stores: leads from a differing bit to the kernel, the instruction and the lane that wrote it.

use crate::fault::{Instruction, Place};
use std::collections::HashMap;
use std::ops::Range;

/// The store that wrote a byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("last stored in `{entry}`, {place}, instruction {instruction}")]
pub struct LastStore {
    /// Entry point.
    pub entry: String,
    /// Block, team and lane.
    pub place: Place,
    /// The instruction.
    pub instruction: Instruction,
}

/// A recorded store: its instruction number is resolved after the launch.
#[derive(Clone, Copy, Debug)]
struct Note {
    launch: u32,
    team: u64,
    lane: u32,
    at: u32,
}

/// A launch, with the instructions that stored.
#[derive(Debug, Default)]
struct Launch {
    entry: String,
    teams: u32,
    instructions: HashMap<u32, Instruction>,
}

/// The last store of each byte.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    bytes: HashMap<u64, Note>,
    launches: Vec<Launch>,
}

impl Trace {
    /// Records a store of the running launch.
    pub(crate) fn note(&mut self, address: u64, size: u32, team: u64, lane: u32, at: u32) {
        let note = Note { launch: self.launches.len() as u32, team, lane, at };
        for byte in 0..u64::from(size) {
            self.bytes.insert(address + byte, note);
        }
    }

    /// Resolves the notes of the launch that just ended.
    pub(crate) fn explain(
        &mut self,
        entry: &str,
        teams: u32,
        mut instruction: impl FnMut(u32) -> Instruction,
    ) {
        let number = self.launches.len() as u32;
        let mut launch = Launch { entry: entry.to_owned(), teams: teams.max(1), ..Launch::default() };
        for note in self.bytes.values().filter(|note| note.launch == number) {
            launch.instructions.entry(note.at).or_insert_with(|| instruction(note.at));
        }
        self.launches.push(launch);
    }

    /// Returns the last store of a byte, if a kernel stored it.
    pub(crate) fn last(&self, address: u64) -> Option<LastStore> {
        let note = self.bytes.get(&address)?;
        let launch = self.launches.get(note.launch as usize)?;
        let teams = u64::from(launch.teams);
        let place = Place {
            block: (note.team / teams) as u32,
            team: (note.team % teams) as u32,
            lane: Some(note.lane),
        };
        let instruction = launch.instructions.get(&note.at)?.clone();
        Some(LastStore { entry: launch.entry.clone(), place, instruction })
    }

    /// Forgets bytes that the host wrote or freed.
    pub(crate) fn forget(&mut self, range: Range<u64>) {
        if range.end - range.start < self.bytes.len() as u64 {
            for address in range {
                self.bytes.remove(&address);
            }
        } else {
            self.bytes.retain(|address, _| !range.contains(address));
        }
    }
}
