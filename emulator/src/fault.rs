//! Faults that the emulator found, and their place.

use std::fmt;

/// A forbidden action of a launch, or something that the emulator does not know.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{kind} in `{entry}`, {place}, instruction {instruction}")]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// Entry point.
    pub entry: String,
    /// The team and lane.
    pub place: Place,
    /// The instruction.
    pub instruction: Instruction,
}

/// A lane of a team of a grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Block (workgroup) of the grid.
    pub block: u32,
    /// Team (warp, wave) of the block.
    pub team: u32,
    /// Lane of the team, if the fault is one lane's.
    pub lane: Option<u32>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}, team {}", self.block, self.team)?;
        self.lane.map_or(Ok(()), |lane| write!(f, ", lane {lane}"))
    }
}

/// An instruction of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// PTX: `line 12`. gfx942: `+0x1f0`, in bytes from the start of the entry point.
    pub at: String,
    /// Its text.
    pub text: String,
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.at, self.text)
    }
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// An instruction, modifier or operand that the emulator does not implement.
    #[error("not implemented: {0}")]
    Unimplemented(String),
    /// An access that is not entirely inside one allocation.
    #[error("{access} of {size} bytes at {address:#x}: {nearest}")]
    OutOfBounds {
        /// Load or store.
        access: Access,
        /// First byte.
        address: u64,
        /// Bytes.
        size: u32,
        /// The nearest allocation, and its distance.
        nearest: String,
    },
    /// An address that is not a multiple of the access's size.
    #[error("{access} of {size} bytes at {address:#x}: not aligned")]
    Misaligned {
        /// Load or store.
        access: Access,
        /// First byte.
        address: u64,
        /// Bytes.
        size: u32,
    },
    /// A load of bytes that were never written.
    #[error("load of {size} bytes at {address:#x}: byte {byte} was never written")]
    Unwritten {
        /// First byte.
        address: u64,
        /// Bytes.
        size: u32,
        /// The first unwritten byte, counted from `address`.
        byte: u32,
    },
    /// Two teams of one launch access the same byte, and at least one writes.
    #[error("{access} of {size} bytes at {address:#x}: team {other} of the grid {did} it in the same launch")]
    Race {
        /// What this team did.
        access: Access,
        /// First byte.
        address: u64,
        /// Bytes.
        size: u32,
        /// The other team: block × teams per block + team.
        other: u32,
        /// What the other did.
        did: &'static str,
    },
    /// Two lanes store different bytes to one address in one instruction.
    #[error(
        "store of {size} bytes at {address:#x}: lane {other} stores other bytes there in the same instruction"
    )]
    Clash {
        /// First byte.
        address: u64,
        /// Bytes.
        size: u32,
        /// The other lane.
        other: u32,
    },
    /// A register that is read before it was written.
    #[error("register {0} is read before it is written")]
    UnwrittenRegister(String),
    /// A register that a load may not have filled yet, because a wait is missing (gfx942).
    #[error("register {0} is used while a load into it is under way: {1}")]
    NoWait(String, String),
    /// Too few instructions between two that need some in between (gfx942).
    #[error("too soon: {0}")]
    TooSoon(String),
    /// A shuffle or barrier at which a lane is missing.
    #[error("lanes {missing:#x} do not take part: {why}")]
    Missing {
        /// The missing lanes.
        missing: u64,
        /// What the instruction requires.
        why: String,
    },
    /// A barrier of the block to which one of its teams does not come.
    #[error("team {team} of the block does not take part: {why}")]
    Barrier {
        /// The missing team.
        team: u32,
        /// What it did instead.
        why: String,
    },
    /// A condition that must hold at the end of a program does not.
    #[error("at the end: {0}")]
    End(String),
    /// A jump to an address without an instruction.
    #[error("jump to {0}")]
    Jump(String),
    /// More instructions than a launch may execute.
    #[error("no end after {0} instructions of one team")]
    Endless(u64),
    /// A launch that the module's entry point does not allow.
    #[error("launch: {0}")]
    Launch(String),
}

/// Load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// From memory.
    Load,
    /// To memory.
    Store,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Load => "load",
            Access::Store => "store",
        })
    }
}

/// A fault without its place: memory and single operations report it, and the interpreter adds the place.
impl FaultKind {
    /// Adds the instruction and the lane.
    pub fn at(self, entry: &str, place: Place, instruction: Instruction) -> Fault {
        Fault { kind: self, entry: entry.to_owned(), place, instruction }
    }
}
