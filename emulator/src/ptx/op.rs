//! Instructions as they run: what an operation does is in its [`Op`], what with in slots of the register
//! file. Constants and special registers have slots too.

use super::types::{FloatTy, IntTy};

/// No slot, no guard.
pub(crate) const NONE: u32 = u32::MAX;

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    /// Twice the slot of its predicate, plus 1 where it must be false.
    pub(crate) guard: u32,
    /// What it writes.
    pub(crate) d: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
    /// An offset, a fourth operand, or where a list of operands is.
    pub(crate) extra: i64,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// `d = a`: mov, cvta.
    Copy,
    /// `d = a | b << bits`.
    Pack(u8),
    /// `d` and `b` are the lower and upper halves, of so many bits, of `a`.
    Unpack(u8),
    Int1(Int1, IntTy),
    Int2(Int2, IntTy),
    Int3(Int3, IntTy),
    /// A sum or difference that leaves a carry, takes one, or both.
    Carry(Carry, IntTy),
    /// A product of twice the width; with `true`, `c` is added.
    Wide(IntTy, bool),
    /// Bits `b` … of `a`, `c` of them.
    Extract(IntTy),
    /// Bits `c` … of `b` are those of `a`; `extra` has the slot of their number.
    Insert(IntTy),
    /// Funnel shift of `b:a` by `c`: left or right, the amount wrapped or clamped.
    Funnel {
        left: bool,
        wrap: bool,
    },
    /// Any function of three bits: `extra` is its table.
    Lop3,
    /// Bytes of `b:a` that `c` chooses.
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
    LoadGlobal(Access),
    StoreGlobal(Access),
    /// `list[extra ..]`: the member mask's slot, and that of the predicate or `NONE`.
    Shuffle(Shuffle),
    /// `b` is the member mask's slot, `a` a predicate.
    Vote(Vote),
    /// `b` is the member mask's slot: all words of `a` by one operation.
    Reduce(Int2, IntTy),
    /// `b` is the member mask's slot: its lanes go on together.
    Meet,
    /// To `extra`. `true`: all lanes agree, says the text.
    Branch(bool),
    /// To an entry of table `extra`, which `a` chooses.
    BranchTable(bool),
    Exit,
    Trap,
    /// Behind the last instruction.
    End,
    /// `extra` is the number of the message.
    Unimplemented,
}

/// A load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Bytes of a value.
    pub(crate) bytes: u8,
    /// Values: 1, 2 or 4. Of more than one, `d` is the place of the list of slots.
    pub(crate) count: u8,
    /// Bits to extend the sign to; 0: to extend by zeros.
    pub(crate) sign_to: u8,
}

/// What a sum or difference does with the carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carry {
    /// A difference: the carry is a borrow.
    pub(crate) sub: bool,
    pub(crate) takes: bool,
    pub(crate) leaves: bool,
}

/// One integer.
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

/// Two integers.
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

/// Three integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Int3 {
    MadLo,
    MadHi,
    SumOfDifferences,
}

/// One number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float1 {
    Neg,
    Abs,
    Sqrt,
    Reciprocal,
}

/// Two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float2 {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    /// Of which one is NaN: NaN.
    MinNan,
    MaxNan,
    CopySign,
}

/// How two values compare. `Equ` … are true where one is NaN.
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

/// Predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    Copy,
    Not,
    And,
    Or,
    Xor,
}

/// To where a number is rounded.
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

/// Conversions. `register`: bits that the result is extended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Convert {
    Int {
        from: Width,
        to: Width,
        register: u8,
        saturate: bool,
    },
    /// f32 to f64: exact.
    Widen,
    /// f64 to f32, to nearest.
    Narrow,
    /// To a whole number of the same type.
    Whole(FloatTy, Rounding),
    /// To nearest.
    FromInt(Width, FloatTy),
    ToInt {
        from: FloatTy,
        rounding: Rounding,
        to: Width,
        register: u8,
    },
}

/// Whose word a lane gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What a vote asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}
