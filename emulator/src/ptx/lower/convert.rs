//! cvt.

use super::super::error::ParseError;
use super::super::op::{Convert, Op, Rounding, Step, Width};
use super::super::types::{FloatTy, Kind, Ty};
use super::operands::Operands;
use super::step;

pub(super) fn lower(o: &mut Operands<'_, '_, '_>, parts: &[&str]) -> Result<Option<Step>, ParseError> {
    let [modifiers @ .., to, from] = parts else { return Ok(None) };
    let (Some(to), Some(from)) = (Ty::parse(to), Ty::parse(from)) else { return Ok(None) };
    let width = |ty: Ty| match ty.kind {
        Kind::Unsigned | Kind::Signed => Some(Width { bits: ty.bits, signed: ty.signed() }),
        _ => None,
    };
    let whole = match modifiers {
        ["rni"] => Some(Rounding::Nearest),
        ["rzi"] => Some(Rounding::Zero),
        ["rmi"] => Some(Rounding::Down),
        ["rpi"] => Some(Rounding::Up),
        _ => None,
    };
    let (d, register, convert) = match (FloatTy::of(to), FloatTy::of(from)) {
        (None, None) => {
            let (Some(wide), Some(narrow)) = (width(to), width(from)) else { return Ok(None) };
            let saturate = match modifiers {
                [] => false,
                ["sat"] => true,
                _ => return Ok(None),
            };
            let (d, register) = o.target_wider(to)?;
            (d, register, Convert::Int { from: narrow, to: wide, register, saturate })
        }
        (None, Some(float)) => {
            let (Some(width), Some(rounding)) = (width(to), whole) else { return Ok(None) };
            let (d, register) = o.target_wider(to)?;
            (d, register, Convert::ToInt { from: float, rounding, to: width, register })
        }
        (Some(float), None) => {
            let (Some(width), ["rn"]) = (width(from), modifiers) else { return Ok(None) };
            (o.target(to)?, to.bits, Convert::FromInt(width, float))
        }
        (Some(FloatTy::F64), Some(FloatTy::F32)) if modifiers.is_empty() => {
            (o.target(to)?, to.bits, Convert::Widen)
        }
        (Some(FloatTy::F32), Some(FloatTy::F64)) if modifiers == ["rn"] => {
            (o.target(to)?, to.bits, Convert::Narrow)
        }
        (Some(a), Some(b)) if a == b => {
            let Some(rounding) = whole else { return Ok(None) };
            (o.target(to)?, to.bits, Convert::Whole(a, rounding))
        }
        _ => return Ok(None),
    };
    debug_assert!(register >= to.bits);
    let a = if from.kind == Kind::Float { o.source(from)? } else { o.source_wider(from)? };
    Ok(Some(Step { d, a, ..step(Op::Convert(convert)) }))
}
