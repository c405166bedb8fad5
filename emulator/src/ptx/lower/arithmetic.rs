//! Moves, arithmetic, logic and comparisons. A modifier must match exactly one pattern; otherwise the
//! instruction is not implemented.

use super::super::body::{Number, Operand};
use super::super::error::ParseError;
use super::super::op::{Carry, Compare, Float1, Float2, Int1, Int2, Int3, Logic, Op, Step};
use super::super::types::{FloatTy, IntTy, Kind, Ty};
use super::operands::Operands;
use super::step;

type Found = Result<Option<Step>, ParseError>;

pub(super) fn lower(o: &mut Operands<'_, '_, '_>, base: &str, parts: &[&str]) -> Found {
    // The type is last; what precedes it are modifiers.
    let Some((name, modifiers)) = parts.split_last() else { return Ok(None) };
    let Some(ty) = Ty::parse(name).filter(|ty| ty.bits != 8) else { return Ok(None) };
    let plain = modifiers.is_empty();
    match (base, ty.kind) {
        ("mov", _) if plain => moved(o, ty),
        ("selp", kind) if plain && kind != Kind::Predicate => {
            let (d, a, b) = (o.target(ty)?, o.source(ty)?, o.source(ty)?);
            Ok(Some(Step { d, a, b, c: o.predicate()?, ..step(Op::Select) }))
        }
        ("setp", _) => compare(o, modifiers, ty),
        (_, Kind::Float) => float(o, base, modifiers, ty),
        (_, Kind::Predicate) if plain => logic(o, base),
        (_, Kind::Unsigned | Kind::Signed | Kind::Bits) => integer(o, base, modifiers, ty),
        _ => Ok(None),
    }
}

fn moved(o: &mut Operands<'_, '_, '_>, ty: Ty) -> Found {
    if ty == Ty::PREDICATE {
        return logic(o, "mov");
    }
    let half = Ty { kind: Kind::Bits, bits: ty.bits / 2 };
    let pairs = ty.kind == Kind::Bits && ty.bits >= 32;
    if let Some(Operand::List(list)) = o.peek() {
        let ([low, high], true) = (&list[..], pairs) else { return Ok(None) };
        o.next()?;
        let (d, b) = (o.target_slot(low, half)?, o.target_slot(high, half)?);
        return Ok(Some(Step { d, b, a: o.source(ty)?, ..step(Op::Unpack(half.bits)) }));
    }
    let d = o.target(ty)?;
    if let Some(Operand::List(list)) = o.peek() {
        let ([low, high], true) = (&list[..], pairs) else { return Ok(None) };
        o.next()?;
        let (a, b) = (o.source_slot(low, half)?, o.source_slot(high, half)?);
        return Ok(Some(Step { d, a, b, ..step(Op::Pack(half.bits)) }));
    }
    let a = match o.peek() {
        Some(Operand::Shared(address)) if ty.kind != Kind::Float && ty.bits >= 32 => {
            o.next()?;
            o.constant(Number::Int((*address).into()), ty)?
        }
        _ => o.source(ty)?,
    };
    Ok(Some(Step { d, a, ..step(Op::Copy) }))
}

fn logic(o: &mut Operands<'_, '_, '_>, base: &str) -> Found {
    let (op, two) = match base {
        "mov" => (Logic::Copy, false),
        "not" => (Logic::Not, false),
        "and" => (Logic::And, true),
        "or" => (Logic::Or, true),
        "xor" => (Logic::Xor, true),
        _ => return Ok(None),
    };
    let (d, a) = (o.target(Ty::PREDICATE)?, o.predicate()?);
    let b = if two { o.predicate()? } else { a };
    Ok(Some(Step { d, a, b, ..step(Op::Logic(op)) }))
}

fn compare(o: &mut Operands<'_, '_, '_>, modifiers: &[&str], ty: Ty) -> Found {
    let [name] = modifiers else { return Ok(None) };
    let (compare, ordered) = match *name {
        "eq" => (Compare::Eq, false),
        "ne" => (Compare::Ne, false),
        "lt" | "lo" => (Compare::Lt, true),
        "le" | "ls" => (Compare::Le, true),
        "gt" | "hi" => (Compare::Gt, true),
        "ge" | "hs" => (Compare::Ge, true),
        "equ" => (Compare::Equ, true),
        "neu" => (Compare::Neu, true),
        "ltu" => (Compare::Ltu, true),
        "leu" => (Compare::Leu, true),
        "gtu" => (Compare::Gtu, true),
        "geu" => (Compare::Geu, true),
        "num" => (Compare::Num, true),
        "nan" => (Compare::Nan, true),
        _ => return Ok(None),
    };
    // lo, ls, hi and hs apply to unsigned integers, equ … to floats only, and bits have no order.
    let fits = match ty.kind {
        Kind::Float => !matches!(*name, "lo" | "ls" | "hi" | "hs"),
        Kind::Unsigned => !matches!(*name, "equ" | "neu" | "ltu" | "leu" | "gtu" | "geu" | "num" | "nan"),
        Kind::Signed => matches!(*name, "eq" | "ne" | "lt" | "le" | "gt" | "ge"),
        Kind::Bits => !ordered,
        Kind::Predicate => false,
    };
    let op = match (FloatTy::of(ty), IntTy::of(ty)) {
        _ if !fits => return Ok(None),
        (Some(ty), _) => Op::CompareFloat(compare, ty),
        (_, Some(ty)) => Op::CompareInt(compare, ty),
        _ => return Ok(None),
    };
    // A second destination or a third source would make it another instruction, which is not implemented.
    if matches!(o.peek(), Some(Operand::Two(..))) {
        return Ok(None);
    }
    Ok(Some(Step { d: o.target(Ty::PREDICATE)?, a: o.source(ty)?, b: o.source(ty)?, ..step(op) }))
}

fn float(o: &mut Operands<'_, '_, '_>, base: &str, modifiers: &[&str], ty: Ty) -> Found {
    let Some(float) = FloatTy::of(ty) else { return Ok(None) };
    // Without .rn, the assembler may contract an addition or multiplication, so its bits are not determined.
    let op = match (base, modifiers) {
        ("add", ["rn"]) => Op::Float2(Float2::Add, float),
        ("sub", ["rn"]) => Op::Float2(Float2::Sub, float),
        ("mul", ["rn"]) => Op::Float2(Float2::Mul, float),
        ("div", ["rn"]) => Op::Float2(Float2::Div, float),
        ("min", []) => Op::Float2(Float2::Min, float),
        ("max", []) => Op::Float2(Float2::Max, float),
        ("min", ["NaN"]) if float == FloatTy::F32 => Op::Float2(Float2::MinNan, float),
        ("max", ["NaN"]) if float == FloatTy::F32 => Op::Float2(Float2::MaxNan, float),
        ("copysign", []) => Op::Float2(Float2::CopySign, float),
        ("neg", []) => Op::Float1(Float1::Neg, float),
        ("abs", []) => Op::Float1(Float1::Abs, float),
        ("sqrt", ["rn"]) => Op::Float1(Float1::Sqrt, float),
        ("rcp", ["rn"]) => Op::Float1(Float1::Reciprocal, float),
        // mad.rn is fused since sm_20.
        ("fma" | "mad", ["rn"]) => Op::Fma(float),
        _ => return Ok(None),
    };
    let (d, a) = (o.target(ty)?, o.source(ty)?);
    let (mut b, mut c) = (a, a);
    if matches!(op, Op::Float2(..) | Op::Fma(_)) {
        b = o.source(ty)?;
    }
    if matches!(op, Op::Fma(_)) {
        c = o.source(ty)?;
    }
    Ok(Some(Step { d, a, b, c, ..step(op) }))
}

fn integer(o: &mut Operands<'_, '_, '_>, base: &str, modifiers: &[&str], ty: Ty) -> Found {
    let Some(int) = IntTy::of(ty) else { return Ok(None) };
    let bits = ty.kind == Kind::Bits;
    if let (
        "add" | "addc" | "sub" | "subc" | "mul" | "div" | "rem" | "min" | "max" | "mad" | "sad" | "neg"
        | "abs",
        true,
    ) = (base, bits)
    {
        return Ok(None);
    }
    let wide = Ty { kind: ty.kind, bits: ty.bits.saturating_mul(2) };
    match (base, modifiers) {
        ("mul", ["wide"]) if ty.bits < 64 => {
            return Ok(Some(Step {
                d: o.target(wide)?,
                a: o.source(ty)?,
                b: o.source(ty)?,
                ..step(Op::Wide(int, false))
            }));
        }
        ("mad", ["wide"]) if ty.bits < 64 => {
            let (d, a, b, c) = (o.target(wide)?, o.source(ty)?, o.source(ty)?, o.source(wide)?);
            return Ok(Some(Step { d, a, b, c, ..step(Op::Wide(int, true)) }));
        }
        ("add" | "sub", ["cc"]) | ("addc" | "subc", [] | ["cc"]) if ty.bits >= 32 => {
            let carry = Carry {
                sub: base.starts_with("sub"),
                takes: base.ends_with('c'),
                leaves: !modifiers.is_empty(),
            };
            let (d, a, b) = (o.target(ty)?, o.source(ty)?, o.source(ty)?);
            return Ok(Some(Step { d, a, b, ..step(Op::Carry(carry, int)) }));
        }
        ("mad", ["lo"]) => return three(o, Int3::MadLo, int, ty),
        ("mad", ["hi"]) => return three(o, Int3::MadHi, int, ty),
        ("sad", []) => return three(o, Int3::SumOfDifferences, int, ty),
        _ => {}
    }
    let two = match (base, modifiers) {
        ("add", []) => Int2::Add,
        ("sub", []) => Int2::Sub,
        ("mul", ["lo"]) => Int2::MulLo,
        ("mul", ["hi"]) => Int2::MulHi,
        ("div", []) => Int2::Div,
        ("rem", []) => Int2::Rem,
        ("min", []) => Int2::Min,
        ("max", []) => Int2::Max,
        ("and", []) if bits => Int2::And,
        ("or", []) if bits => Int2::Or,
        ("xor", []) if bits => Int2::Xor,
        ("shl", []) if bits => Int2::Shl,
        ("shr", []) => Int2::Shr,
        _ => return other(o, base, modifiers, ty, int),
    };
    let (d, a) = (o.target(ty)?, o.source(ty)?);
    let amount = matches!(two, Int2::Shl | Int2::Shr);
    let b = o.source(if amount { Ty::U32 } else { ty })?;
    Ok(Some(Step { d, a, b, ..step(Op::Int2(two, int)) }))
}

fn three(o: &mut Operands<'_, '_, '_>, op: Int3, int: IntTy, ty: Ty) -> Found {
    let (d, a, b, c) = (o.target(ty)?, o.source(ty)?, o.source(ty)?, o.source(ty)?);
    Ok(Some(Step { d, a, b, c, ..step(Op::Int3(op, int)) }))
}

/// Single-operand integer operations, and bit fields.
fn other(o: &mut Operands<'_, '_, '_>, base: &str, modifiers: &[&str], ty: Ty, int: IntTy) -> Found {
    let bits = ty.kind == Kind::Bits;
    let one = match (base, modifiers) {
        ("neg", []) if ty.signed() => Int1::Neg,
        ("abs", []) if ty.signed() => Int1::Abs,
        ("not", []) if bits => Int1::Not,
        ("cnot", []) if bits => Int1::LogicalNot,
        ("brev", []) if bits && ty.bits >= 32 => Int1::Reverse,
        ("clz", []) if bits && ty.bits >= 32 => Int1::LeadingZeros,
        ("popc", []) if bits && ty.bits >= 32 => Int1::CountOnes,
        ("bfe", []) if !bits && ty.bits >= 32 => {
            let (d, a, b, c) = (o.target(ty)?, o.source(ty)?, o.source(Ty::U32)?, o.source(Ty::U32)?);
            return Ok(Some(Step { d, a, b, c, ..step(Op::Extract(int)) }));
        }
        ("bfi", []) if bits && ty.bits >= 32 => {
            let (d, a, b, c) = (o.target(ty)?, o.source(ty)?, o.source(ty)?, o.source(Ty::U32)?);
            let extra = i64::from(o.source(Ty::U32)?);
            return Ok(Some(Step { d, a, b, c, extra, ..step(Op::Insert(int)) }));
        }
        ("shf", [side @ ("l" | "r"), mode @ ("wrap" | "clamp")]) if ty == Ty::B32 => {
            let (d, a, b, c) = (o.target(ty)?, o.source(ty)?, o.source(ty)?, o.source(Ty::U32)?);
            let op = Op::Funnel { left: *side == "l", wrap: *mode == "wrap" };
            return Ok(Some(Step { d, a, b, c, ..step(op) }));
        }
        ("lop3", []) if ty == Ty::B32 => {
            let (d, a, b, c) = (o.target(ty)?, o.source(ty)?, o.source(ty)?, o.source(ty)?);
            let table = o.immediate()?;
            let extra = i64::from(u8::try_from(table).map_err(|_| o.wrong("a table beyond 8 bits"))?);
            return Ok(Some(Step { d, a, b, c, extra, ..step(Op::Lop3) }));
        }
        ("prmt", []) if ty == Ty::B32 => {
            let (d, a, b, c) = (o.target(ty)?, o.source(ty)?, o.source(ty)?, o.source(ty)?);
            return Ok(Some(Step { d, a, b, c, ..step(Op::Permute) }));
        }
        _ => return Ok(None),
    };
    let counts = matches!(one, Int1::LeadingZeros | Int1::CountOnes);
    let d = o.target(if counts { Ty::U32 } else { ty })?;
    Ok(Some(Step { d, a: o.source(ty)?, ..step(Op::Int1(one, int)) }))
}
