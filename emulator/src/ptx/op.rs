//! Instructions in executable form: the [`Op`] says what to do, and slots of the register file hold the
//! operands. Constants and special registers have slots too.

use super::types::{FloatTy, IntTy};
use crate::memory::Space;

/// No slot, no guard.
pub(crate) const NONE: u32 = u32::MAX;

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    /// Twice the slot of its predicate, plus 1 if the predicate must be false.
    pub(crate) guard: u32,
    /// The destination.
    pub(crate) d: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
    /// An offset, a fourth operand, or the position of a list of operands.
    pub(crate) extra: i64,
}

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// `d = a`: mov, cvta.
    Copy,
    /// `d = a | b << bits`.
    Pack(u8),
    /// `d` and `b` are the lower and upper halves, this many bits each, of `a`.
    Unpack(u8),
    Int1(Int1, IntTy),
    Int2(Int2, IntTy),
    Int3(Int3, IntTy),
    /// A sum or difference that produces a carry, uses one, or both.
    Carry(Carry, IntTy),
    /// A product of twice the width; with `true`, `c` is added.
    Wide(IntTy, bool),
    /// `c` bits of `a` from bit `b` on.
    Extract(IntTy),
    /// Replaces bits of `b` from bit `c` on by those of `a`; `extra` is the slot of their number.
    Insert(IntTy),
    /// Funnel shift of `b:a` by `c`: left or right, with the amount wrapped or clamped.
    Funnel {
        left: bool,
        wrap: bool,
    },
    /// Any function of three bits: `extra` is its truth table.
    Lop3,
    /// Bytes of `b:a` selected by `c`.
    Permute,
    Float1(Float1, FloatTy),
    Float2(Float2, FloatTy),
    Fma(FloatTy),
    CompareInt(Compare, IntTy),
    CompareFloat(Compare, FloatTy),
    /// `d = c ? a : b`, `c` a predicate.
    Select,
    Logic(Logic),
    Convert(Convert),
    /// `bytes` of each of `count` values from the parameters at `extra`.
    LoadParam(Access),
    Load(Space, Access),
    Store(Space, Access),
    /// `list[extra ..]`: the member mask's slot, and that of the predicate or `NONE`.
    Shuffle(Shuffle),
    /// `b` is the member mask's slot, `a` a predicate.
    Vote(Vote),
    /// `b` is the member mask's slot: reduces all words of `a` with one operation.
    Reduce(Int2, IntTy),
    /// `b` is the member mask's slot: its lanes reconverge.
    Meet,
    /// All warps of the block wait for each other; `extra` is the number of threads that it names, or 0.
    Barrier,
    /// Branches to `extra`. `true`: the text says that all lanes agree.
    Branch(bool),
    /// Branches to the entry of table `extra` selected by `a`.
    BranchTable(bool),
    Exit,
    Trap,
    /// Position after the last instruction.
    End,
    /// `extra` is the message's index.
    Unimplemented,
}

/// A load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Bytes of a value.
    pub(crate) bytes: u8,
    /// Number of values: 1, 2 or 4. If more than one, `d` is the position of the list of slots.
    pub(crate) count: u8,
    /// Bits to sign-extend to; 0 to zero-extend.
    pub(crate) sign_to: u8,
}

/// How a sum or difference uses the carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carry {
    /// A difference: the carry is a borrow.
    pub(crate) sub: bool,
    pub(crate) takes: bool,
    pub(crate) leaves: bool,
}

/// Operations on one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int1 {
    Neg,
    Abs,
    Not,
    /// 1 where it is 0, otherwise 0.
    LogicalNot,
    Reverse,
    LeadingZeros,
    CountOnes,
}

/// Operations on two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int2 {
    Add,
    Sub,
    MulLo,
    MulHi,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

/// Operations on three integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int3 {
    MadLo,
    MadHi,
    SumOfDifferences,
}

/// Operations on one float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float1 {
    Neg,
    Abs,
    Sqrt,
    Reciprocal,
}

/// Operations on two floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float2 {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    /// NaN if either is NaN.
    MinNan,
    MaxNan,
    CopySign,
}

/// Comparisons of two values. `Equ` … are true if either is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

/// Operations on predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    Copy,
    Not,
    And,
    Or,
    Xor,
}

/// Rounding directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// Ties to even.
    Nearest,
    Zero,
    Down,
    Up,
}

/// An integer's width and sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Width {
    pub(crate) bits: u8,
    pub(crate) signed: bool,
}

/// Conversions. `register`: bits to which the result is extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Convert {
    Int {
        from: Width,
        to: Width,
        register: u8,
        saturate: bool,
    },
    /// f32 to f64, exact.
    Widen,
    /// f64 to f32, rounded to nearest.
    Narrow,
    /// Rounds to an integer of the same floating-point type.
    Whole(FloatTy, Rounding),
    /// Rounded to nearest.
    FromInt(Width, FloatTy),
    ToInt {
        from: FloatTy,
        rounding: Rounding,
        to: Width,
        register: u8,
    },
}

/// Which lane's word a lane gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// The question of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}
