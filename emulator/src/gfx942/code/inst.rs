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

/// Which part of a register an SDWA operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One of four bytes.
    Byte(u8),
    /// One of two halves.
    Word(u8),
    /// All of it.
    All,
}

/// What an SDWA instruction says besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sdwa {
    /// Where the result goes.
    pub dst: Part,
    /// The rest of the destination: 0 becomes 0, 1 gets the sign, 2 stays.
    pub unused: u8,
    /// Parts of the sources.
    pub src: [Part; 2],
    /// Whether the part's sign is extended.
    pub sext: [bool; 2],
}

/// How a vector instruction is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// As the form says.
    Plain,
    /// A `Vop1`, `Vop2` or `Vopc` operation in eight bytes.
    E64,
    /// With parts of registers.
    Sdwa,
    /// With the first source from other lanes.
    Dpp,
}

/// What a DPP instruction says besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dpp {
    /// Which lane each lane reads.
    pub control: u16,
    /// A lane that reads none, or one that is not active, reads 0; else it is left out.
    pub zero: bool,
    /// Rows of 16 lanes that take part.
    pub rows: u8,
    /// Banks of four lanes in each row that take part.
    pub banks: u8,
}

/// No instruction of a kernel.
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
    /// First register that it writes: scalar for scalar operations, comparisons and reads of lanes, vector
    /// otherwise.
    pub dst: u8,
    /// Mask that it writes besides (carry, `v_div_scale`).
    pub sdst: u8,
    /// Sources.
    pub src: [Src; 3],
    /// Sources to negate, by bit.
    pub neg: u8,
    /// Sources whose sign to drop, by bit.
    pub abs: u8,
    /// Result to [0, 1], or saturated.
    pub clamp: bool,
    /// Result times 2, 4 or ½ (1, 2, 3).
    pub omod: u8,
    /// Immediate: of scalar operations and jumps, offset of an access.
    pub imm: i32,
    /// Number of the instruction in its kernel that a jump leads to; [`NOWHERE`] before the kernel is whole,
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
    /// One without operands.
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

    /// The table's row, of comparisons too.
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

    /// Whether `dst` is a scalar register.
    pub fn scalar_dst(&self) -> bool {
        matches!(self.form, Form::Sop1 | Form::Sop2 | Form::Sopk | Form::Smem)
            || matches!(self.op, Op::VCmp | Op::VReadfirstlane | Op::VReadlane)
    }

    /// Whether a carry or a mask goes to `sdst`.
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

    /// Whether it is a jump, whose `imm` is where to.
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

    /// Registers that a load fills or a store takes.
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

    /// Whether it stores to global memory.
    pub fn stores(&self) -> bool {
        use Op::*;
        matches!(self.op, GStoreX8 | GStoreX16 | GStoreX1 | GStoreX2 | GStoreX3 | GStoreX4)
    }
}
