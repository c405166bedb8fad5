//! The entry points of `kernels/src/entry.rs`, for the host.

use crate::wave::{with_block, with_lanes};
use lockstep_core::num::Hard;
use lockstep_core::op::{Decoder, Kernel, MAX_POINTERS, MAX_WORDS};
use lockstep_core::team::Team;
use lockstep_cpu::plain::Plain;
use lockstep_kernels::team::GpuTeam;

/// How the rows of a launch are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compute {
    /// The plain reference. Fast.
    Plain,
    /// The GPU's team, with a host thread for each lane of a warp or wave. Very slow.
    Lanes,
}

/// The arguments of an entry point.
#[derive(Clone, Copy)]
pub(crate) struct Arguments {
    /// Of the grid: waves, or blocks whose waves share a row.
    pub(crate) teams: u32,
    /// Waves of a block.
    pub(crate) waves: u32,
    pub(crate) pointers: [*mut u8; MAX_POINTERS],
    pub(crate) words: [u64; MAX_WORDS],
}

// SAFETY: rows write different elements, and so do lanes of a row: this is what is tested.
#[allow(unsafe_code)]
unsafe impl Send for Arguments {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Arguments {}

/// An entry point.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// Whether the waves of a block share a row.
    pub(crate) block: bool,
    /// Runs all rows.
    pub(crate) run: unsafe fn(&Arguments, Compute, u32),
}

/// # Safety
/// `arguments` encode a kernel `K` over host memory.
#[allow(unsafe_code)]
unsafe fn run<K: Kernel, const V: usize>(arguments: &Arguments, compute: Compute, lanes: u32) {
    // SAFETY: the caller's.
    let decode = || unsafe { K::decode(&mut Decoder::new(arguments.pointers, arguments.words)) };
    match (compute, lanes) {
        (Compute::Plain, _) => rows::<K, V, _>(&decode(), &Plain, arguments.teams),
        (Compute::Lanes, 32) => with_lanes::<32>(|wave| {
            rows::<K, V, _>(&decode(), &GpuTeam::<_, Hard>::new(wave), arguments.teams);
        }),
        (Compute::Lanes, _) => with_lanes::<64>(|wave| {
            rows::<K, V, _>(&decode(), &GpuTeam::<_, Hard>::new(wave), arguments.teams);
        }),
    }
}

/// # Safety
/// As for [`run`].
#[allow(unsafe_code)]
unsafe fn run_block<K: Kernel, const V: usize>(arguments: &Arguments, compute: Compute, _lanes: u32) {
    // SAFETY: the caller's.
    let decode = || unsafe { K::decode(&mut Decoder::new(arguments.pointers, arguments.words)) };
    match compute {
        Compute::Plain => rows::<K, V, _>(&decode(), &Plain, arguments.teams),
        Compute::Lanes => with_block::<32>(arguments.waves, |wave| {
            rows::<K, V, _>(&decode(), &GpuTeam::<_, Hard>::new(wave), arguments.teams);
        }),
    }
}

/// Runs the rows of every team, one team after the other.
fn rows<K: Kernel, const V: usize, T: Team>(kernel: &K, team: &T, teams: u32) {
    for first in 0..teams as usize {
        for row in (first..kernel.rows()).step_by(teams as usize) {
            kernel.row_as::<V, _>(team, row);
        }
    }
}

/// Looks for an entry point among those of an op for a block.
macro_rules! blocks {
    ($name:ident $kernel:ty, [$($variant:literal $entry:ident),*]) => {};
    ($name:ident $kernel:ty, [$($variant:literal $entry:ident),*] block) => {
        $(if $name == concat!(stringify!($entry), "_block") {
            let name = concat!(stringify!($entry), "_block");
            return Some(Entry { name, block: true, run: run_block::<$kernel, $variant> });
        })*
    };
}

macro_rules! table {
    ($($name:ident: $kernel:ty, $file:literal, $row:literal, $summary:literal,
        [$($variant:literal $entry:ident),*] $($block:ident)?;)*) => {
        /// Returns the entry point of this name.
        pub(crate) fn named(name: &str) -> Option<Entry> {
            $(
                $(if name == stringify!($entry) {
                    let name = stringify!($entry);
                    return Some(Entry { name, block: false, run: run::<$kernel, $variant> });
                })*
                blocks!(name $kernel, [$($variant $entry),*] $($block)?);
            )*
            None
        }
    };
}
lockstep_core::for_each_op!(table);
