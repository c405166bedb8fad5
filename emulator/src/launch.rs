//! Grids: teams of a program, run in turn.

use crate::counts::Counts;
use crate::fault::Fault;
use crate::memory::Memory;

/// Instructions that one team may execute; more counts as an endless loop. The longest row of the tests takes
/// about 10^7.
pub const MAX_INSTRUCTIONS: u64 = 1 << 33;

/// Blocks per grid and threads per block, x first, as `cuLaunchKernel` and `hipModuleLaunchKernel` take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks (workgroups). x runs fastest.
    pub blocks: [u32; 3],
    /// Threads per block. x runs fastest: 32 or 64 consecutive threads form a team (warp, wave).
    pub threads: [u32; 3],
}

/// A parameter of an entry point, as its module declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Bytes from the start of the parameter buffer.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

/// A runnable module: parsed PTX or a decoded code object.
pub trait Program: Send + Sync {
    /// Returns the names of its entry points, in order.
    fn entries(&self) -> Vec<String>;

    /// Returns the explicit parameters of an entry point; `None` if it does not exist.
    fn parameters(&self, entry: &str) -> Option<Vec<Parameter>>;

    /// Runs the grid. `params` is the buffer of explicit parameters, each at its offset; the program itself
    /// supplies the rest (hidden arguments, special registers). Blocks run one after the other, in order, and
    /// so do the teams of a block, each to its end or to the next barrier of the block. Each of these turns
    /// begins with `memory.team(...)`, so that races are detected; where there are barriers or shared memory,
    /// a block begins with `memory.block(...)`, and `memory.barrier(...)` follows when all have met.
    fn launch(
        &self,
        entry: &str,
        grid: Grid,
        params: &[u8],
        memory: &mut Memory,
    ) -> Result<Counts, Box<Fault>>;
}
