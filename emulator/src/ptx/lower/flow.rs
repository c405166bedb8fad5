//! Jumps, ends, and exchanges between lanes.

use super::super::body::{Number, Operand};
use super::super::error::ParseError;
use super::super::lex::Token;
use super::super::op::{Int2, Op, Shuffle, Step, Vote};
use super::super::parse::wrong;
use super::super::types::{IntTy, Kind, Ty};
use super::operands::Operands;
use super::step;

type Found = Result<Option<Step>, ParseError>;

pub(super) fn lower(o: &mut Operands<'_, '_, '_>, base: &str, parts: &[&str]) -> Found {
    match (base, parts) {
        ("ret", [] | ["uni"]) | ("exit", []) => Ok(Some(step(Op::Exit))),
        ("trap", []) => Ok(Some(step(Op::Trap))),
        ("bra", [] | ["uni"]) => {
            let Operand::Name(name) = o.next()? else { return Err(o.wrong("expected a label")) };
            let extra = i64::from(target(o, *name)?);
            Ok(Some(Step { extra, ..step(Op::Branch(!parts.is_empty())) }))
        }
        ("brx", ["idx"] | ["idx", "uni"]) => {
            let a = o.source(Ty::U32)?;
            let Operand::Name(name) = o.next()? else { return Err(o.wrong("expected a branch table")) };
            let extra = i64::from(table(o, *name)?);
            Ok(Some(Step { a, extra, ..step(Op::BranchTable(parts.len() == 2)) }))
        }
        ("shfl", ["sync", mode, "b32"]) => {
            let mode = match *mode {
                "up" => Shuffle::Up,
                "down" => Shuffle::Down,
                "bfly" => Shuffle::Butterfly,
                "idx" => Shuffle::Index,
                _ => return Ok(None),
            };
            let (d, predicate) = o.target_two(Ty::B32)?;
            let (a, b, c) = (o.source(Ty::B32)?, o.source(Ty::B32)?, o.source(Ty::B32)?);
            let members = o.source(Ty::B32)?;
            let extra = i64::from(o.list(&[members, predicate]));
            Ok(Some(Step { d, a, b, c, extra, ..step(Op::Shuffle(mode)) }))
        }
        ("redux", ["sync", op, name]) => {
            let Some(ty) = Ty::parse(name).filter(|ty| ty.bits == 32) else { return Ok(None) };
            let op = match (*op, ty.kind) {
                ("add", Kind::Unsigned | Kind::Signed) => Int2::Add,
                ("min", Kind::Unsigned | Kind::Signed) => Int2::Min,
                ("max", Kind::Unsigned | Kind::Signed) => Int2::Max,
                ("and", Kind::Bits) => Int2::And,
                ("or", Kind::Bits) => Int2::Or,
                ("xor", Kind::Bits) => Int2::Xor,
                _ => return Ok(None),
            };
            let Some(int) = IntTy::of(ty) else { return Ok(None) };
            let (d, a) = (o.target(ty)?, o.source(ty)?);
            Ok(Some(Step { d, a, b: o.source(Ty::B32)?, ..step(Op::Reduce(op, int)) }))
        }
        ("bar", ["warp", "sync"]) => Ok(Some(Step { b: o.source(Ty::B32)?, ..step(Op::Meet) })),
        ("bar", ["sync"] | ["cta", "sync"])
        | ("barrier", ["sync"] | ["sync", "aligned"] | ["cta", "sync"] | ["cta", "sync", "aligned"]) => {
            // Other barriers than 0, and numbers in registers, are not implemented.
            let Operand::Number(Number::Int(0)) = o.next()? else { return Ok(None) };
            let extra = match o.peek() {
                None => 0,
                Some(Operand::Number(Number::Int(threads))) if (1..=1024).contains(threads) => {
                    o.next()?;
                    *threads as i64
                }
                Some(_) => return Ok(None),
            };
            o.lower.entry.barrier = true;
            Ok(Some(Step { extra, ..step(Op::Barrier) }))
        }
        ("vote", ["sync", mode, ty]) => {
            let (mode, to) = match (*mode, *ty) {
                ("all", "pred") => (Vote::All, Ty::PREDICATE),
                ("any", "pred") => (Vote::Any, Ty::PREDICATE),
                ("uni", "pred") => (Vote::Uniform, Ty::PREDICATE),
                ("ballot", "b32") => (Vote::Ballot, Ty::B32),
                _ => return Ok(None),
            };
            let (d, a) = (o.target(to)?, o.predicate()?);
            Ok(Some(Step { d, a, b: o.source(Ty::B32)?, ..step(Op::Vote(mode)) }))
        }
        _ => Ok(None),
    }
}

fn target(o: &Operands<'_, '_, '_>, label: Token<'_>) -> Result<u32, ParseError> {
    let found = o.lower.body.labels.get(label.text).copied();
    found.ok_or_else(|| wrong(label, "is no label"))
}

fn table<'t>(o: &mut Operands<'_, '_, 't>, name: Token<'t>) -> Result<u32, ParseError> {
    if let Some(known) = o.lower.tables.get(name.text) {
        return Ok(*known);
    }
    let body = o.lower.body;
    let labels = body.tables.get(name.text).ok_or_else(|| wrong(name, "is no branch table"))?;
    let targets = labels.iter().map(|label| target(o, *label)).collect::<Result<Vec<u32>, _>>()?;
    o.lower.entry.tables.push(targets);
    let at = o.lower.entry.tables.len() as u32 - 1;
    o.lower.tables.insert(name.text, at);
    Ok(at)
}
