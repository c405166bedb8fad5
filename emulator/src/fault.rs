//! What the emulator found, and where.

use std::fmt;

/// A launch that did what it must not, or what the emulator does not know.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{kind} in `{entry}`, {place}, instruction {instruction}")]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// Entry point.
    pub entry: String,
    /// Which team, which lane.
    pub place: Place,
    /// Which instruction.
    pub instruction: Instruction,
}

/// A lane of a team of a grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Block (workgroup) of the grid.
    pub block: u32,
    /// Team (warp, wave) of the block.
    pub team: u32,
    /// Lane of the team, where it is one lane's fault.
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
    /// PTX: `line 12`. gfx942: `+0x1f0`, bytes from the entry point's first.
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
    /// An access that no allocation contains whole.
    #[error("{access} of {size} bytes at {address:#x}: {nearest}")]
    OutOfBounds {
        /// Load or store.
        access: Access,
        /// First byte.
        address: u64,
        /// Bytes.
        size: u32,
        /// The allocation that is nearest, and how far away.
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
    /// A load of bytes that nobody wrote.
    #[error("load of {size} bytes at {address:#x}: byte {byte} was never written")]
    Unwritten {
        /// First byte.
        address: u64,
        /// Bytes.
        size: u32,
        /// The first byte that was not written, from `address`.
        byte: u32,
    },
    /// Two teams of one launch, one of which writes.
    #[error("{access} of {size} bytes at {address:#x}: team {other} of the grid {did} it in the same launch")]
    Race {
        /// What this team does.
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
    /// Two lanes that store different bytes to one address in one instruction.
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
    /// A register that is read before anything wrote it.
    #[error("register {0} is read before it is written")]
    UnwrittenRegister(String),
    /// A register that a load has not filled yet, for want of a wait (gfx942).
    #[error("register {0} is used while a load into it is under way: {1}")]
    NoWait(String, String),
    /// Too few instructions between two that need some between them (gfx942).
    #[error("too soon: {0}")]
    TooSoon(String),
    /// A shuffle or barrier at which a lane is missing.
    #[error("lanes {missing:#x} do not take part: {why}")]
    Missing {
        /// The lanes that are not there.
        missing: u64,
        /// What the instruction asks for.
        why: String,
    },
    /// What must hold at the end of a program does not.
    #[error("at the end: {0}")]
    End(String),
    /// A jump to where no instruction is.
    #[error("jump to {0}")]
    Jump(String),
    /// More instructions than a launch may take.
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

/// A fault without its place: what memory and single operations report; the interpreter adds where.
impl FaultKind {
    /// At an instruction of a lane.
    pub fn at(self, entry: &str, place: Place, instruction: Instruction) -> Fault {
        Fault { kind: self, entry: entry.to_owned(), place, instruction }
    }
}
