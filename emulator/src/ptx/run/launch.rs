//! Runs a grid of an entry point: its blocks one after the other, and the warps of a block from barrier to
//! barrier.

use super::super::entry::{Entry, SPECIAL};
use super::flow::{Warp, World};
use super::registers::Registers;
use super::{LANES, Stop};
use crate::counts::Counts;
use crate::fault::{Fault, FaultKind, Place};
use crate::launch::Grid;
use crate::memory::Memory;

/// Limits of devices of compute capability 8.0 and later.
const MOST_BLOCKS: [u32; 3] = [i32::MAX as u32, 65535, 65535];
const MOST_THREADS: [u32; 3] = [1024, 1024, 64];
const MOST_THREADS_OF_BLOCK: u64 = 1024;

/// Runs a grid. `text` is the module's text, `limit` the maximum number of steps per warp.
pub(crate) fn launch(
    text: &str,
    entry: &Entry,
    grid: Grid,
    params: &[u8],
    memory: &mut Memory,
    limit: u64,
) -> Result<Counts, Box<Fault>> {
    if let Err(why) = check(entry, grid, params) {
        let kind = FaultKind::Launch(why);
        return Err(Box::new(kind.at(&entry.name, Place::default(), crate::fault::Instruction::default())));
    }
    let threads: u32 = grid.threads.iter().product();
    let warps = threads.div_ceil(LANES as u32);
    let blocks: u64 = grid.blocks.iter().map(|blocks| u64::from(*blocks)).product();
    memory.launch(blocks * u64::from(warps));
    memory.share(&entry.shared);
    let mut counts = Counts::default();
    let mut run = Run { text, entry, grid, warps, params, memory, counts: &mut counts, limit };
    let result = run.blocks(blocks);
    memory.explain_stores(&entry.name, warps, |pc| entry.instruction(text, pc));
    result.map(|()| counts)
}

/// A running grid.
struct Run<'r, 'e> {
    text: &'r str,
    entry: &'e Entry,
    grid: Grid,
    /// Of a block.
    warps: u32,
    params: &'r [u8],
    memory: &'r mut Memory,
    counts: &'r mut Counts,
    limit: u64,
}

impl Run<'_, '_> {
    fn blocks(&mut self, blocks: u64) -> Result<(), Box<Fault>> {
        // Without barriers a warp ends before the next begins, so one file of registers serves all.
        let files = if self.entry.barrier { self.warps } else { 1 };
        let mut warps: Vec<Warp<'_>> = (0..files).map(|_| Warp::new(self.entry)).collect();
        (0..blocks).try_for_each(|block| self.block(&mut warps, block))
    }

    /// Runs a block: each warp to the next barrier or its end, until all have ended.
    fn block(&mut self, warps: &mut [Warp<'_>], block: u64) -> Result<(), Box<Fault>> {
        let (teams, files) = (u64::from(self.warps), warps.len());
        if self.entry.barrier || !self.entry.shared.is_empty() {
            self.memory.block(block * teams, teams);
        }
        let threads: u32 = self.grid.threads.iter().product();
        let mut first = true;
        loop {
            // The barrier at which the first warp waits, unless it has ended; all others have to do the same.
            let mut meeting = None;
            for team in 0..self.warps {
                let warp = &mut warps[team as usize % files];
                if first {
                    let lanes = (threads - team * LANES as u32).min(LANES as u32);
                    warp.begin(u32::MAX >> (LANES as u32 - lanes));
                    specials(&mut warp.registers, self.grid, block, team);
                }
                let (params, limit, warps) = (self.params, self.limit, self.warps);
                let view = self.memory.team(block * teams + u64::from(team));
                let mut world = World { params, view, counts: self.counts, warps, limit };
                let paused = warp.run(&mut world);
                let paused = paused.map_err(|(pc, stop)| self.fault(block, team, pc, *stop))?;
                let met = *meeting.get_or_insert(paused);
                if met != paused {
                    return Err(self.absent(block, (met, paused), team));
                }
            }
            if meeting.flatten().is_none() {
                return Ok(());
            }
            self.memory.barrier(block * teams, teams);
            first = false;
        }
    }

    fn fault(&self, block: u64, team: u32, pc: u32, Stop { kind, lane }: Stop) -> Box<Fault> {
        let place = Place { block: block as u32, team, lane };
        Box::new(kind.at(&self.entry.name, place, self.entry.instruction(self.text, pc)))
    }

    /// The fault of a block whose warps before `team` are at `met`, or have ended, and `team` is not.
    #[cold]
    fn absent(&self, block: u64, (met, paused): (Option<u32>, Option<u32>), team: u32) -> Box<Fault> {
        // The report is of the first warp that waits; the missing one is the first that does not.
        let (waits, pc, missing, other) = match (met, paused) {
            (Some(pc), other) => (0, pc, team, other),
            (None, pc) => (team, pc.unwrap_or_default(), 0, None),
        };
        let why = match other {
            None => "it has ended".to_owned(),
            Some(pc) => format!("it waits at {}", self.entry.instruction(self.text, pc)),
        };
        let kind = FaultKind::Barrier { team: missing, why };
        self.fault(block, waits, pc, Stop { kind, lane: None })
    }
}

fn check(entry: &Entry, grid: Grid, params: &[u8]) -> Result<(), String> {
    let Grid { blocks, threads } = grid;
    for axis in 0..3 {
        if blocks[axis] == 0 || blocks[axis] > MOST_BLOCKS[axis] {
            return Err(format!("{blocks:?} blocks; a grid has 1 to {MOST_BLOCKS:?}"));
        }
        if threads[axis] == 0 || threads[axis] > MOST_THREADS[axis] {
            return Err(format!("{threads:?} threads; a block has 1 to {MOST_THREADS:?}"));
        }
    }
    let product = |sizes: [u32; 3]| sizes.iter().map(|size| u64::from(*size)).product::<u64>();
    if product(threads) > MOST_THREADS_OF_BLOCK {
        return Err(format!("{threads:?} threads; a block has up to {MOST_THREADS_OF_BLOCK}"));
    }
    if let Some(required) = entry.required
        && required != threads
    {
        return Err(format!("{threads:?} threads; .reqntid demands {required:?}"));
    }
    // The limits of each axis bound what an assembler may assume; their product bounds the block.
    if let Some(most) = entry.most
        && product(threads) > most.iter().fold(1, |all, size| u64::from(*size).saturating_mul(all))
    {
        return Err(format!("{threads:?} threads; .maxntid allows {most:?}"));
    }
    // Block indices have 32 bits, and races are tracked per warp.
    if product(blocks) > u64::from(u32::MAX) {
        return Err(format!("{blocks:?} blocks are more than the emulator counts"));
    }
    if params.len() != entry.param_bytes as usize {
        return Err(format!("{} bytes of parameters; it has {}", params.len(), entry.param_bytes));
    }
    Ok(())
}

/// Writes the special registers of a warp.
fn specials(registers: &mut Registers<'_>, grid: Grid, block: u64, warp: u32) {
    let [width, height, _] = grid.threads.map(u64::from);
    let [across, down, _] = grid.blocks.map(u64::from);
    let block = [block % across, block / across % down, block / across / down];
    for (slot, name) in SPECIAL.iter().enumerate() {
        let mut values = [0; LANES];
        for (lane, value) in values.iter_mut().enumerate() {
            let thread = u64::from(warp) * LANES as u64 + lane as u64;
            let (own, below) = (1_u64 << lane, (1_u64 << lane) - 1);
            let all = u64::from(u32::MAX);
            *value = match *name {
                "%tid.x" => thread % width,
                "%tid.y" => thread / width % height,
                "%tid.z" => thread / width / height,
                "%ntid.x" => width,
                "%ntid.y" => height,
                "%ntid.z" => u64::from(grid.threads[2]),
                "%ctaid.x" => block[0],
                "%ctaid.y" => block[1],
                "%ctaid.z" => block[2],
                "%nctaid.x" => across,
                "%nctaid.y" => down,
                "%nctaid.z" => u64::from(grid.blocks[2]),
                "%laneid" => lane as u64,
                "%lanemask_eq" => own,
                "%lanemask_le" => own | below,
                "%lanemask_lt" => below,
                "%lanemask_ge" => all & !below,
                "%lanemask_gt" => all & !(own | below),
                _ => continue,
            };
        }
        // Every lane is written, including those without a thread.
        registers.put_special(slot as u32, values);
    }
}
