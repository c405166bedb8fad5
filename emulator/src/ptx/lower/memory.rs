//! ld, st, cvta.

use super::super::body::{Number, Operand};
use super::super::error::ParseError;
use super::super::op::{Access, Op, Step};
use super::super::types::{Kind, Ty};
use super::operands::Operands;
use super::step;
use crate::memory::Space;

type Found = Result<Option<Step>, ParseError>;

pub(super) fn lower(o: &mut Operands<'_, '_, '_>, base: &str, parts: &[&str]) -> Found {
    if base == "cvta" {
        // Generic addresses of global memory are global addresses.
        return match parts {
            ["to", "global", "u64"] | ["global", "u64"] => {
                Ok(Some(Step { d: o.target(Ty::U64)?, a: o.source(Ty::U64)?, ..step(Op::Copy) }))
            }
            _ => Ok(None),
        };
    }
    let load = base == "ld";
    // Warps take turns at barriers alone, so every access is as good as a volatile one.
    let parts =
        parts.strip_prefix(&["volatile"]).filter(|rest| rest.first() == Some(&"shared")).unwrap_or(parts);
    let [space @ ("global" | "shared" | "param"), modifiers @ .., ty] = parts else { return Ok(None) };
    let Some(ty) = Ty::parse(ty).filter(|ty| *ty != Ty::PREDICATE) else { return Ok(None) };
    // Cache hints do not change results.
    let mut rest = modifiers;
    if let ["nc", after @ ..] = rest
        && load
        && *space == "global"
    {
        rest = after;
    }
    let hints: &[&str] = if load { &["ca", "cg", "cs", "lu", "cv"] } else { &["wb", "cg", "cs", "wt"] };
    if let [hint, after @ ..] = rest
        && hints.contains(hint)
        && *space == "global"
    {
        rest = after;
    }
    let count = match rest {
        [] => 1,
        ["v2"] => 2,
        ["v4"] => 4,
        _ => return Ok(None),
    };
    if u32::from(count) * ty.bytes() > 16 || (*space == "param" && (!load || count > 1)) {
        return Ok(None);
    }
    let access = Access { bytes: ty.bytes() as u8, count, sign_to: 0 };
    let space = match *space {
        "global" => Some(Space::Global),
        "shared" => Some(Space::Shared),
        _ => None,
    };
    match space {
        Some(space) if !load => stored(o, space, access, ty),
        _ => loaded(o, space, access, ty),
    }
}

/// A load; from a parameter if there is no space.
fn loaded(o: &mut Operands<'_, '_, '_>, space: Option<Space>, access: Access, ty: Ty) -> Found {
    let targets = values(o, access.count)?;
    let (mut slots, mut widths) = (Vec::new(), Vec::new());
    for target in targets {
        let (slot, width) = target_slot(o, target, ty)?;
        slots.push(slot);
        widths.push(width);
    }
    let mut sign_to = 0;
    if ty.kind == Kind::Signed {
        // All values of a vector are sign-extended alike.
        if widths.windows(2).any(|pair| pair[0] != pair[1]) {
            return Ok(None);
        }
        sign_to = widths[0];
    }
    let access = Access { sign_to, ..access };
    let d = if access.count == 1 { slots[0] } else { o.list(&slots) };
    if let Some(space) = space {
        let (a, extra) = address(o, space)?;
        return Ok(Some(Step { d, a, extra, ..step(Op::Load(space, access)) }));
    }
    let Operand::Address(base, offset) = o.next()? else {
        return Err(o.wrong("expected the address of a parameter"));
    };
    // Parameters at computed addresses are not implemented.
    let Operand::Name(name) = &**base else { return Ok(None) };
    let found = o.lower.entry.params.iter().find(|param| param.name == name.text);
    let place = found.ok_or_else(|| o.wrong(format!("{} is no parameter", name.text)))?.place;
    let inside = *offset >= 0 && *offset + i64::from(access.bytes) <= i64::from(place.size);
    let extra = i64::from(place.offset) + offset;
    if !inside || extra % i64::from(access.bytes) != 0 {
        return Err(o.wrong(format!("bytes {offset} … of a parameter of {} bytes", place.size)));
    }
    Ok(Some(Step { d, extra, ..step(Op::LoadParam(access)) }))
}

fn stored(o: &mut Operands<'_, '_, '_>, space: Space, access: Access, ty: Ty) -> Found {
    let (a, extra) = address(o, space)?;
    let mut slots = Vec::new();
    for value in values(o, access.count)? {
        let slot =
            if ty.kind == Kind::Float { o.source_slot(value, ty)? } else { o.source_slot_wider(value, ty)? };
        slots.push(slot);
    }
    let d = if access.count == 1 { slots[0] } else { o.list(&slots) };
    Ok(Some(Step { d, a, extra, ..step(Op::Store(space, access)) }))
}

fn target_slot<'t>(
    o: &mut Operands<'_, '_, 't>,
    target: &Operand<'t>,
    ty: Ty,
) -> Result<(u32, u8), ParseError> {
    if ty.kind == Kind::Float {
        Ok((o.target_slot(target, ty)?, ty.bits))
    } else {
        o.target_slot_wider(target, ty)
    }
}

/// Returns the single value, or those in braces.
fn values<'l, 't>(o: &mut Operands<'l, '_, 't>, count: u8) -> Result<Vec<&'l Operand<'t>>, ParseError> {
    match o.next()? {
        Operand::List(list) if list.len() == usize::from(count) && count > 1 => Ok(list.iter().collect()),
        Operand::List(_) => Err(o.wrong(format!("expected {count} values"))),
        one if count == 1 => Ok(vec![one]),
        _ => Err(o.wrong(format!("expected {count} values in braces"))),
    }
}

/// `[register + offset]`; in shared memory, where a register of 32 bits suffices, also `[variable + offset]`.
fn address(o: &mut Operands<'_, '_, '_>, space: Space) -> Result<(u32, i64), ParseError> {
    let Operand::Address(base, offset) = o.next()? else { return Err(o.wrong("expected an address")) };
    let slot = match (space, &**base) {
        (Space::Shared, Operand::Shared(address)) => o.constant(Number::Int((*address).into()), Ty::U32)?,
        (Space::Shared, Operand::Register(register)) if register.ty.bits == 32 => {
            o.source_slot(base, Ty::U32)?
        }
        _ => o.source_slot(base, Ty::U64)?,
    };
    Ok((slot, *offset))
}
