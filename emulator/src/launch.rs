//! A grid: teams of a program, one after the other.

use crate::counts::Counts;
use crate::fault::Fault;
use crate::memory::Memory;

/// Instructions that one team may take: more is an endless loop. The longest row of the tests takes some
/// 10^7.
pub const MAX_INSTRUCTIONS: u64 = 1 << 33;

/// Blocks of a grid and threads of a block, x first: what `cuLaunchKernel` and `hipModuleLaunchKernel` take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks (workgroups). x runs fastest.
    pub blocks: [u32; 3],
    /// Threads of a block. x runs fastest: 32 or 64 of them in a row of threads are a team (warp, wave).
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

/// A module that can be run: parsed PTX or a decoded code object.
pub trait Program: Send + Sync {
    /// Names of its entry points, in order.
    fn entries(&self) -> Vec<String>;

    /// Explicit parameters of an entry point; none if there is no such entry point.
    fn parameters(&self, entry: &str) -> Option<Vec<Parameter>>;

    /// Runs the grid. `params` is the buffer of the explicit parameters, each at its offset; what else an
    /// entry point gets (hidden arguments, special registers) the program makes itself. Teams run one after
    /// the other, in order; each begins with `memory.team(...)`, so that races are seen.
    fn launch(
        &self,
        entry: &str,
        grid: Grid,
        params: &[u8],
        memory: &mut Memory,
    ) -> Result<Counts, Box<Fault>>;
}
