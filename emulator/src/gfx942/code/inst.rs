//! A decoded instruction.

use super::compare;
use super::op::{Form, Op, Spec, Ty};

/// Number of VCC among the scalar registers.
pub const VCC: u8 = 106;
/// Number of M0.
pub const M0: u8 = 124;
/// Number of EXEC.
pub const EXEC: u8 = 126;

/// Where an operand comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Src {
    /// Nowhere: there is no such operand.
    None,
    /// Scalar registers from this one: s0 to s101, VCC, M0, EXEC.
    S(u8),
    /// Vector registers from this one.
    V(u8),
    /// An inline constant or a literal, in the operand's type.
    Const(u64),
    /// Whether VCC is 0.
    Vccz,
    /// Whether EXEC is 0.
    Execz,
    /// SCC.
    Scc,
}

/// The part of a register that an SDWA operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One of four bytes.
    Byte(u8),
    /// One of two halves.
    Word(u8),
    /// All of it.
    All,
}

/// The additional fields of an SDWA instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sdwa {
    /// The part that the result goes to.
    pub dst: Part,
    /// The rest of the destination: 0 clears it, 1 sign-extends, 2 keeps it.
    pub unused: u8,
    /// Parts of the sources.
    pub src: [Part; 2],
    /// Whether the part's sign is extended.
    pub sext: [bool; 2],
}

/// How a vector instruction is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// The plain encoding of the form.
    Plain,
    /// A `Vop1`, `Vop2` or `Vopc` operation in eight bytes.
    E64,
    /// With parts of registers.
    Sdwa,
    /// With the first source from other lanes.
    Dpp,
}

/// The additional fields of a DPP instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dpp {
    /// The lane that each lane reads.
    pub control: u16,
    /// Whether a lane that reads no lane, or an inactive one, reads 0; otherwise it is left out.
    pub zero: bool,
    /// Rows of 16 lanes that take part.
    pub rows: u8,
    /// Banks of four lanes in each row that take part.
    pub banks: u8,
}

/// Not an instruction of a kernel.
pub const NOWHERE: u32 = u32::MAX;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inst {
    /// What it does.
    pub op: Op,
    /// Its form.
    pub form: Form,
    /// How it is encoded.
    pub coding: Coding,
    /// Its bytes: 4 or 8.
    pub size: u8,
    /// First register that it writes: scalar for scalar operations, comparisons and lane reads; otherwise
    /// vector.
    pub dst: u8,
    /// Mask that it also writes (carry, `v_div_scale`).
    pub sdst: u8,
    /// Sources.
    pub src: [Src; 3],
    /// Sources to negate, by bit.
    pub neg: u8,
    /// Sources whose sign is dropped, by bit.
    pub abs: u8,
    /// Clamps the result to [0, 1], or saturates it.
    pub clamp: bool,
    /// Multiplies the result by 2, 4 or ½ (1, 2, 3).
    pub omod: u8,
    /// Immediate of scalar operations and jumps, or offset of an access.
    pub imm: i32,
    /// Index of the instruction in its kernel that a jump leads to; [`NOWHERE`] until the kernel is complete,
    /// or if there is none.
    pub target: u32,
    /// Opcode of a comparison; cache bits of an access (sc0, nt, sc1).
    pub more: u8,
    /// Parts of registers.
    pub sdwa: Sdwa,
    /// Lanes of the first source.
    pub dpp: Dpp,
}

impl Inst {
    /// Creates an instruction without operands.
    pub fn new(op: Op, size: u8) -> Inst {
        Inst {
            op,
            form: op.spec().form,
            coding: Coding::Plain,
            size,
            dst: 0,
            sdst: VCC,
            src: [Src::None; 3],
            neg: 0,
            abs: 0,
            clamp: false,
            omod: 0,
            imm: 0,
            target: NOWHERE,
            more: 0,
            sdwa: Sdwa { dst: Part::All, unused: 2, src: [Part::All; 2], sext: [false; 2] },
            dpp: Dpp { control: 0xe4, zero: false, rows: 15, banks: 15 },
        }
    }

    /// Returns the table's row, for comparisons too.
    pub fn spec(&self) -> Spec {
        if self.op == Op::VCmp {
            let ty = compare::operands(self.more);
            return Spec {
                form: Form::Vopc,
                opcode: u16::from(self.more),
                name: "v_cmp",
                dst: Ty::M,
                src: [ty.0, ty.1, Ty::N],
            };
        }
        self.op.spec()
    }

    /// Returns whether `dst` is a scalar register.
    pub fn scalar_dst(&self) -> bool {
        matches!(self.form, Form::Sop1 | Form::Sop2 | Form::Sopk | Form::Smem)
            || matches!(self.op, Op::VCmp | Op::VReadfirstlane | Op::VReadlane)
    }

    /// Returns whether a carry or mask goes to `sdst`.
    pub fn has_sdst(&self) -> bool {
        use Op::*;
        matches!(
            self.op,
            VAddCo
                | VSubCo
                | VSubrevCo
                | VAddcCo
                | VSubbCo
                | VSubbrevCo
                | VDivScaleF32
                | VDivScaleF64
                | VMadU64U32
                | VMadI64I32
        )
    }

    /// Returns whether it is a jump, whose `imm` is the target.
    pub fn jumps(&self) -> bool {
        use Op::*;
        matches!(
            self.op,
            SBranch
                | SCbranchScc0
                | SCbranchScc1
                | SCbranchVccz
                | SCbranchVccnz
                | SCbranchExecz
                | SCbranchExecnz
        )
    }

    /// Returns the number of registers that a load fills or a store reads.
    pub fn words(&self) -> u8 {
        use Op::*;
        match self.op {
            GLoadX2 | GStoreX2 | SLoadX2 => 2,
            GLoadX3 | GStoreX3 => 3,
            GLoadX4 | GStoreX4 | SLoadX4 => 4,
            SLoadX8 => 8,
            SLoadX16 => 16,
            _ => 1,
        }
    }

    /// Returns whether it stores to global memory.
    pub fn stores(&self) -> bool {
        use Op::*;
        matches!(self.op, GStoreX8 | GStoreX16 | GStoreHi16 | GStoreX1 | GStoreX2 | GStoreX3 | GStoreX4)
    }
}
