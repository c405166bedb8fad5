//! Runs a grid of workgroups: arguments, initial registers, and faults with their place.

use super::access::{Arguments, KERNARG, World};
use super::number::Approximation;
use super::registers::Registers;
use super::stop::Stop;
use super::wave;
use crate::counts::Counts;
use crate::fault::{Fault, FaultKind, Instruction, Place};
use crate::gfx942::code::op::Op;
use crate::gfx942::object::{Kernel, LoadError, load};
use crate::launch::{Grid, Parameter, Program};
use crate::memory::Memory;

/// Lanes of a wave.
const WAVE: u64 = 64;

/// A code object, decoded.
#[derive(Clone, Debug)]
pub struct Module {
    kernels: Vec<Kernel>,
    approximation: Approximation,
}

impl Module {
    /// Loads a code object from the bytes of its file.
    pub fn load(bytes: &[u8]) -> Result<Module, LoadError> {
        Ok(Module { kernels: load(bytes)?, approximation: Approximation::default() })
    }

    /// Creates a single kernel from these words, to test instructions: `arguments` arguments of eight bytes
    /// with their address in s0 and s1, the workgroup's x and y in s2 and s3, the lane in v0, 128 vector
    /// registers and all scalar ones.
    pub fn from_words(name: &str, words: &[u32], arguments: u32) -> Module {
        Module {
            kernels: vec![Kernel::from_words(name, words, arguments)],
            approximation: Approximation::default(),
        }
    }

    /// Sets how reciprocals, roots and NaN are chosen.
    #[must_use]
    pub fn with_approximation(mut self, approximation: Approximation) -> Module {
        self.approximation = approximation;
        self
    }

    /// Returns its kernels.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    fn kernel(&self, entry: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == entry)
    }
}

/// Returns the bytes of the arguments: those of the caller and those that the launch supplies.
fn arguments(kernel: &Kernel, grid: Grid, params: &[u8]) -> Arguments {
    let len = kernel.kernarg as usize;
    let mut all = Arguments { bytes: vec![0; len], written: vec![false; len] };
    for argument in &kernel.arguments {
        let range = argument.offset as usize..(argument.offset + argument.size) as usize;
        let kind = argument.kind.as_str();
        let dimension = match kind.as_bytes().last() {
            Some(b'x') => 0,
            Some(b'y') => 1,
            _ => 2,
        };
        let value = match kind.strip_suffix(['x', 'y', 'z']).unwrap_or(kind) {
            _ if !argument.hidden() => {
                all.bytes[range.clone()].copy_from_slice(&params[range.clone()]);
                all.written[range].fill(true);
                continue;
            }
            "hidden_block_count_" => u64::from(grid.blocks[dimension]),
            "hidden_group_size_" => u64::from(grid.threads[dimension]),
            // Grids consist of whole workgroups, and begin at 0.
            "hidden_remainder_" | "hidden_global_offset_" => 0,
            "hidden_grid_dims" => {
                (0..3).rev().find(|d| grid.blocks[*d] * grid.threads[*d] > 1).map_or(1, |d| d as u64 + 1)
            }
            // Unwritten: a kernel that reads it stops.
            _ => continue,
        };
        let size = range.len().min(8);
        all.bytes[range.start..range.start + size].copy_from_slice(&value.to_le_bytes()[..size]);
        all.written[range].fill(true);
    }
    all
}

/// Checks a launch of the kernel.
fn check(kernel: &Kernel, grid: Grid, params: &[u8]) -> Result<(), FaultKind> {
    let wrong = |why: String| Err(FaultKind::Launch(why));
    if let Err(what) = &kernel.descriptor {
        return Err(FaultKind::Unimplemented(format!("a kernel with {what}")));
    }
    let threads =
        grid.threads.iter().try_fold(1u32, |product, n| product.checked_mul(*n)).unwrap_or(u32::MAX);
    let blocks = grid.blocks.iter().try_fold(1u32, |product, n| product.checked_mul(*n)).unwrap_or(0);
    if blocks == 0 || threads == 0 {
        return wrong(format!("{:?} workgroups of {:?} threads", grid.blocks, grid.threads));
    }
    if threads > kernel.max_threads {
        return wrong(format!("workgroups of {threads} threads, of at most {}", kernel.max_threads));
    }
    let barrier = kernel.code.iter().any(|inst| inst.op == Op::SBarrier);
    if barrier && u64::from(threads) > WAVE {
        return Err(FaultKind::Unimplemented("a barrier between waves".into()));
    }
    for dimension in 0..3 {
        if grid.blocks[dimension].checked_mul(grid.threads[dimension]).is_none() {
            return wrong("2^32 threads or more in one dimension".into());
        }
    }
    let explicit = kernel.arguments.iter().filter(|argument| !argument.hidden());
    let end = explicit.map(|argument| argument.offset + argument.size).max().unwrap_or(0);
    if params.len() < end as usize {
        return wrong(format!("{} bytes of arguments, where {end} are read", params.len()));
    }
    Ok(())
}

/// Sets a wave's registers before its first instruction.
fn start(
    r: &mut Registers,
    kernel: &Kernel,
    grid: Grid,
    block: [u32; 3],
    first: u64,
) -> Result<(), Box<Stop>> {
    let Ok(descriptor) = kernel.descriptor else { return Ok(()) };
    let threads: u64 = grid.threads.iter().map(|n| u64::from(*n)).product();
    let active = (threads - first).min(WAVE);
    r.clear(u64::MAX >> (WAVE - active));
    (r.ieee, r.dx10_clamp) = (descriptor.ieee, descriptor.dx10_clamp);
    let mut next = 0;
    if descriptor.kernarg {
        r.set64(0, KERNARG)?;
        next = 2;
    }
    for (number, enabled) in block.into_iter().zip(descriptor.workgroup) {
        if enabled {
            r.set32(next, number)?;
            next += 1;
        }
    }
    let [width, height, _] = grid.threads.map(u64::from);
    let exec = r.exec;
    r.wrote(0, 1, exec)?;
    for lane in 0..WAVE {
        let thread = first + lane;
        let (x, y, z) = (thread % width, thread / width % height, thread / width / height);
        // Packed, ten bits each.
        let shown = [x, x | y << 10, x | y << 10 | z << 20][descriptor.workitem as usize];
        r.v[0][lane as usize] = shown as u32;
    }
    Ok(())
}

impl Program for Module {
    fn entries(&self) -> Vec<String> {
        self.kernels.iter().map(|kernel| kernel.name.clone()).collect()
    }

    fn parameters(&self, entry: &str) -> Option<Vec<Parameter>> {
        let explicit = self.kernel(entry)?.arguments.iter().filter(|argument| !argument.hidden());
        Some(explicit.map(|argument| Parameter { offset: argument.offset, size: argument.size }).collect())
    }

    fn launch(
        &self,
        entry: &str,
        grid: Grid,
        params: &[u8],
        memory: &mut Memory,
    ) -> Result<Counts, Box<Fault>> {
        let refuse = |kind: FaultKind| Box::new(kind.at(entry, Place::default(), Instruction::default()));
        let Some(kernel) = self.kernel(entry) else {
            return Err(refuse(FaultKind::Launch("no such kernel".into())));
        };
        check(kernel, grid, params).map_err(refuse)?;
        let arguments = arguments(kernel, grid, params);
        let threads: u64 = grid.threads.iter().map(|n| u64::from(*n)).product();
        let waves = threads.div_ceil(WAVE);
        let blocks: u64 = grid.blocks.iter().map(|n| u64::from(*n)).product();
        memory.launch(blocks * waves);
        let mut counts = Counts::default();
        let mut registers = Registers::new();
        registers.approximation = self.approximation;
        let mut world =
            World { memory, arguments: &arguments, counts: &mut counts, team: 0, stores: Vec::new() };
        for number in 0..blocks {
            let [width, height, _] = grid.blocks.map(u64::from);
            let block = [number % width, number / width % height, number / width / height].map(|n| n as u32);
            for team in 0..waves {
                world.team = number * waves + team;
                let done = start(&mut registers, kernel, grid, block, team * WAVE)
                    .map_err(|why| (0, why))
                    .and_then(|()| wave::run(kernel, &mut registers, &mut world));
                if let Err((at, why)) = done {
                    let place = Place { block: number as u32, team: team as u32, lane: why.lane };
                    return Err(Box::new(why.kind.at(entry, place, kernel.instruction(at))));
                }
            }
        }
        Ok(counts)
    }
}

impl Kernel {
    /// Returns an instruction's place and text.
    fn instruction(&self, at: usize) -> Instruction {
        let offset = self.offsets.get(at).copied().unwrap_or_default();
        let text = self.code.get(at).map(ToString::to_string).unwrap_or_default();
        Instruction { at: format!("+{offset:#x}"), text }
    }
}
