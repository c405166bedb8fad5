//! Runs a grid of an entry point: its warps, one after the other.

use super::super::entry::{Entry, SPECIAL};
use super::flow::Warp;
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
    let mut registers = Registers::new(entry);
    let mut counts = Counts::default();
    let mut result = Ok(());
    'grid: for block in 0..blocks {
        for warp in 0..warps {
            registers.clear();
            specials(&mut registers, grid, block, warp);
            let lanes = (threads - warp * LANES as u32).min(LANES as u32);
            let mask = u32::MAX >> (LANES as u32 - lanes);
            let view = memory.team(block * u64::from(warps) + u64::from(warp));
            let ran = Warp::new(entry, &mut registers, params, view, &mut counts, limit, mask).run();
            if let Err((pc, stop)) = ran {
                let Stop { kind, lane } = *stop;
                let place = Place { block: block as u32, team: warp, lane };
                result = Err(Box::new(kind.at(&entry.name, place, entry.instruction(text, pc))));
                break 'grid;
            }
        }
    }
    memory.explain_stores(&entry.name, warps, |pc| entry.instruction(text, pc));
    result.map(|()| counts)
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
