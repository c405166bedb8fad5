//! Scalar operations.

use super::registers::Registers;
use super::stop::{Done, stop};
use crate::fault::FaultKind;
use crate::gfx942::code::inst::{Inst, Src};
use crate::gfx942::code::op::{Op, Ty};

/// A literal as a 64-bit operand has 32 bits: the documents do not say which bits follow above a set sign.
fn wide(registers: &Registers, src: Src, literal: bool) -> Done<u64> {
    if let (Src::Const(value @ 0x8000_0000..=0xffff_ffff), true) = (src, literal) {
        return stop(FaultKind::Unimplemented(format!("the literal {value:#x} as 64 bits")));
    }
    registers.scalar64(src)
}

/// Operations with one result of up to 64 bits and, most of them, SCC.
#[allow(clippy::too_many_lines)] // One match over one table.
pub(super) fn run(r: &mut Registers, i: &Inst) -> Done {
    use Op::*;
    let spec = i.spec();
    let literal = i.size == 8;
    if carries_on(i.op) && !whole(r, i)? {
        return partial(r, i);
    }
    let read = |at: usize| match spec.src[at] {
        Ty::N => Ok(0),
        Ty::I => r.scalar32(i.src[at]).map(u64::from),
        _ => wide(r, i.src[at], literal),
    };
    let (x, y) = (read(0)?, read(1)?);
    let (a, b) = (x as u32, y as u32);
    let (sa, sb) = (a.cast_signed(), b.cast_signed());
    let sx = x.cast_signed();
    // The result, and SCC: "not zero", or the operation's own.
    let logic = |value: u64| (Some(value), Some(value != 0));
    let some = |value: u32, scc: bool| (Some(u64::from(value)), Some(scc));
    let plain = |value: u64| (Some(value), None);
    let small = |value: u64| (Some(value & 0xffff_ffff), Some(value & 0xffff_ffff != 0));
    let is = |scc: bool| (None, Some(scc));
    let position = |found: u32, none: bool| plain(u64::from(if none { u32::MAX } else { found }));
    let (value, scc) = match i.op {
        SAddU32 => some(a.wrapping_add(b), a.checked_add(b).is_none()),
        SSubU32 => some(a.wrapping_sub(b), a < b),
        SAddI32 => some(a.wrapping_add(b), sa.checked_add(sb).is_none()),
        SSubI32 => some(a.wrapping_sub(b), sa.checked_sub(sb).is_none()),
        SAddcU32 => {
            let sum = x + y + u64::from(r.scc()?);
            some(sum as u32, sum >> 32 != 0)
        }
        SSubbU32 => {
            let borrow = u64::from(r.scc()?);
            some((x.wrapping_sub(y).wrapping_sub(borrow)) as u32, x < y + borrow)
        }
        SMinI32 => some(sa.min(sb).cast_unsigned(), sa < sb),
        SMinU32 => some(a.min(b), a < b),
        SMaxI32 => some(sa.max(sb).cast_unsigned(), sa >= sb),
        SMaxU32 => some(a.max(b), a >= b),
        SCselectB32 | SCselectB64 => plain(if r.scc()? { x } else { y }),
        SAndB32 | SAndB64 => logic(x & y),
        SOrB32 | SOrB64 => logic(x | y),
        SXorB32 | SXorB64 => logic(x ^ y),
        SAndn2B32 => small(x & !y),
        SAndn2B64 => logic(x & !y),
        SOrn2B32 => small(x | !y),
        SOrn2B64 => logic(x | !y),
        SNandB32 => small(!(x & y)),
        SNandB64 => logic(!(x & y)),
        SNorB32 => small(!(x | y)),
        SNorB64 => logic(!(x | y)),
        SXnorB32 => small(!(x ^ y)),
        SXnorB64 => logic(!(x ^ y)),
        SLshlB32 => small(u64::from(a) << (b & 31)),
        SLshlB64 => logic(x << (b & 63)),
        SLshrB32 => small(u64::from(a >> (b & 31))),
        SLshrB64 => logic(x >> (b & 63)),
        SAshrI32 => small(u64::from((sa >> (b & 31)).cast_unsigned())),
        SAshrI64 => logic((sx >> (b & 63)).cast_unsigned()),
        SBfmB32 => plain(u64::from(((1u32 << (a & 31)) - 1) << (b & 31))),
        SBfmB64 => plain(((1u64 << (a & 63)) - 1) << (b & 63)),
        SMulI32 => plain(u64::from(a.wrapping_mul(b))),
        SMulHiU32 => plain((x * y) >> 32),
        SMulHiI32 => plain(((i64::from(sa) * i64::from(sb)) >> 32).cast_unsigned() & 0xffff_ffff),
        SBfeU32 => small(bfe(x, b & 31, b >> 16 & 127, 32, false)),
        SBfeI32 => small(bfe(x, b & 31, b >> 16 & 127, 32, true)),
        SBfeU64 => logic(bfe(x, b & 63, b >> 16 & 127, 64, false)),
        SBfeI64 => logic(bfe(x, b & 63, b >> 16 & 127, 64, true)),
        SAbsdiffI32 => small(u64::from(sa.wrapping_sub(sb).wrapping_abs().cast_unsigned())),
        SLshl1AddU32 | SLshl2AddU32 | SLshl3AddU32 | SLshl4AddU32 => {
            let by = u32::from(spec.opcode) - 45;
            let sum = (x << by) + y;
            some(sum as u32, sum >> 32 != 0)
        }
        SPackLl => plain(x & 0xffff | (y & 0xffff) << 16),
        SPackLh => plain(x & 0xffff | y & 0xffff_0000),
        SPackHh => plain(x >> 16 | y & 0xffff_0000),
        SMovB32 | SMovB64 => plain(x),
        SCmovB32 | SCmovB64 => (r.scc()?.then_some(x), None),
        SNotB32 => small(!x),
        SNotB64 => logic(!x),
        SBrevB32 => plain(u64::from(a.reverse_bits())),
        SBrevB64 => plain(x.reverse_bits()),
        SBcnt0B32 => logic(u64::from(a.count_zeros())),
        SBcnt0B64 => logic(u64::from(x.count_zeros())),
        SBcnt1B32 | SBcnt1B64 => logic(u64::from(x.count_ones())),
        SFf0B32 => position(a.trailing_ones(), a == u32::MAX),
        SFf0B64 => position(x.trailing_ones(), x == u64::MAX),
        SFf1B32 | SFf1B64 => position(x.trailing_zeros(), x == 0),
        SFlbitB32 => position(a.leading_zeros(), a == 0),
        SFlbitB64 => position(x.leading_zeros(), x == 0),
        SFlbitI32 => position((sa ^ (sa >> 31)).leading_zeros(), sa == 0 || sa == -1),
        SFlbitI64 => position((sx ^ (sx >> 63)).leading_zeros(), sx == 0 || sx == -1),
        SSextI8 => plain(u64::from(i32::from(a as i8).cast_unsigned())),
        SSextI16 => plain(u64::from(i32::from(a as i16).cast_unsigned())),
        SBitset0B32 => plain(u64::from(r.s32(i.dst)? & !(1 << (a & 31)))),
        SBitset1B32 => plain(u64::from(r.s32(i.dst)? | 1 << (a & 31))),
        SBitset0B64 => plain(r.s64(i.dst)? & !(1 << (a & 63))),
        SBitset1B64 => plain(r.s64(i.dst)? | 1 << (a & 63)),
        SAndSaveexec | SOrSaveexec | SXorSaveexec | SAndn2Saveexec | SOrn2Saveexec | SNandSaveexec
        | SNorSaveexec | SXnorSaveexec | SAndn1Saveexec | SOrn1Saveexec | SAndn1Wrexec | SAndn2Wrexec => {
            let old = r.exec;
            let new = match i.op {
                SAndSaveexec => x & old,
                SOrSaveexec => x | old,
                SXorSaveexec => x ^ old,
                SAndn2Saveexec | SAndn2Wrexec => x & !old,
                SOrn2Saveexec => x | !old,
                SNandSaveexec => !(x & old),
                SNorSaveexec => !(x | old),
                SXnorSaveexec => !(x ^ old),
                SOrn1Saveexec => !x | old,
                _ => !x & old,
            };
            let writes = matches!(i.op, SAndn1Wrexec | SAndn2Wrexec);
            r.set64(i.dst, if writes { new } else { old })?;
            r.exec = new;
            is(new != 0)
        }
        SAbsI32 => small(u64::from(sa.wrapping_abs().cast_unsigned())),
        SCmpEqI32 | SCmpEqU32 | SCmpEqU64 => is(x == y),
        SCmpLgI32 | SCmpLgU32 | SCmpLgU64 => is(x != y),
        SCmpGtI32 => is(sa > sb),
        SCmpGeI32 => is(sa >= sb),
        SCmpLtI32 => is(sa < sb),
        SCmpLeI32 => is(sa <= sb),
        SCmpGtU32 => is(a > b),
        SCmpGeU32 => is(a >= b),
        SCmpLtU32 => is(a < b),
        SCmpLeU32 => is(a <= b),
        SBitcmp0B32 => is(a >> (b & 31) & 1 == 0),
        SBitcmp1B32 => is(a >> (b & 31) & 1 == 1),
        SBitcmp0B64 => is(x >> (b & 63) & 1 == 0),
        SBitcmp1B64 => is(x >> (b & 63) & 1 == 1),
        _ => return immediate(r, i),
    };
    if let Some(value) = value {
        if spec.dst.width() == 2 { r.set64(i.dst, value)? } else { r.set32(i.dst, value as u32)? }
    }
    if let Some(scc) = scc {
        r.set_scc(scc);
    }
    Ok(())
}

/// Operations on bits, and moves: bits without a value stay without one.
fn carries_on(op: Op) -> bool {
    use Op::*;
    matches!(
        op,
        SAndB32
            | SAndB64
            | SOrB32
            | SOrB64
            | SXorB32
            | SXorB64
            | SAndn2B32
            | SAndn2B64
            | SOrn2B32
            | SOrn2B64
            | SNandB32
            | SNandB64
            | SNorB32
            | SNorB64
            | SXnorB32
            | SXnorB64
            | SNotB32
            | SNotB64
            | SMovB32
            | SMovB64
            | SCselectB32
            | SCselectB64
            | SAndSaveexec
            | SOrSaveexec
            | SAndn2Saveexec
    )
}

/// Returns a source, and which of its bits hold a value.
fn known(r: &Registers, src: Src, ty: Ty) -> Done<(u64, u64)> {
    match (src, ty.width()) {
        (Src::S(number), 2) => r.known64(number),
        (Src::S(number), 1) => {
            r.known32(number).map(|(value, bits)| (value.into(), u64::from(bits) | 0xffff_ffff << 32))
        }
        (_, 0) => Ok((0, u64::MAX)),
        (_, 1) => r.scalar32(src).map(|value| (value.into(), u64::MAX)),
        _ => r.scalar64(src).map(|value| (value, u64::MAX)),
    }
}

#[inline(always)]
fn whole(r: &Registers, i: &Inst) -> Done<bool> {
    let spec = i.spec();
    Ok(known(r, i.src[0], spec.src[0])?.1 & known(r, i.src[1], spec.src[1])?.1 == u64::MAX)
}

/// An operation on bits, some of which hold no value: a bit of the result holds a value if it is the same
/// whatever those are.
#[cold]
fn partial(r: &mut Registers, i: &Inst) -> Done {
    use Op::*;
    let spec = i.spec();
    let ((x, known_x), (y, known_y)) = (known(r, i.src[0], spec.src[0])?, known(r, i.src[1], spec.src[1])?);
    let width = spec.dst.width();
    match i.op {
        SMovB32 | SMovB64 => return r.set_known(i.dst, width, x, known_x),
        SCselectB32 | SCselectB64 => {
            let (value, known) = if r.scc()? { (x, known_x) } else { (y, known_y) };
            return r.set_known(i.dst, width, value, known);
        }
        _ => {}
    }
    let exec = r.exec;
    let saves = matches!(i.op, SAndSaveexec | SOrSaveexec | SAndn2Saveexec);
    let (y, known_y) = if saves { (exec, u64::MAX) } else { (y, known_y) };
    let f = |x: u64, y: u64| match i.op {
        SAndB32 | SAndB64 | SAndSaveexec => x & y,
        SOrB32 | SOrB64 | SOrSaveexec => x | y,
        SXorB32 | SXorB64 => x ^ y,
        SAndn2B32 | SAndn2B64 | SAndn2Saveexec => x & !y,
        SOrn2B32 | SOrn2B64 => x | !y,
        SNandB32 | SNandB64 => !(x & y),
        SNorB32 | SNorB64 => !(x | y),
        SXnorB32 | SXnorB64 => !(x ^ y),
        _ => !x,
    };
    let ([x0, x1], [y0, y1]) = ([x & known_x, x | !known_x], [y & known_y, y | !known_y]);
    let all = [f(x0, y0), f(x0, y1), f(x1, y0), f(x1, y1)];
    let mask = if width == 1 { 0xffff_ffff } else { u64::MAX };
    let value = all[0] & mask;
    let same = all.iter().fold(u64::MAX, |same, other| same & !(all[0] ^ other)) | !mask;
    if saves {
        if same != u64::MAX {
            return stop(FaultKind::UnwrittenRegister(format!("what {} writes to exec", spec.name)));
        }
        r.set64(i.dst, exec)?;
        r.exec = value;
    } else {
        r.set_known(i.dst, width, value, same)?;
    }
    r.set_scc_known(if value & same != 0 {
        Some(true)
    } else if same == u64::MAX {
        Some(false)
    } else {
        None
    });
    Ok(())
}

/// Returns `width` bits from bit `from` on, of a value of `of` bits.
fn bfe(x: u64, from: u32, width: u32, of: u32, signed: bool) -> u64 {
    if width == 0 {
        return 0;
    }
    let x = x >> from;
    // Bits beyond the value are zeros, or its sign.
    let width = width.min(of - from);
    let shift = 64 - width;
    if signed { (x << shift).cast_signed().wrapping_shr(shift).cast_unsigned() } else { x << shift >> shift }
}

/// Operations with an immediate of 16 bits.
fn immediate(r: &mut Registers, i: &Inst) -> Done {
    use Op::*;
    let imm = i.imm;
    let unsigned = imm.cast_unsigned() & 0xffff;
    match i.op {
        SMovkI32 => return r.set32(i.dst, imm.cast_unsigned()),
        SCmovkI32 => return if r.scc()? { r.set32(i.dst, imm.cast_unsigned()) } else { Ok(()) },
        _ => {}
    }
    let a = r.s32(i.dst)?;
    let sa = a.cast_signed();
    let scc = match i.op {
        SCmpkEqI32 => sa == imm,
        SCmpkLgI32 => sa != imm,
        SCmpkGtI32 => sa > imm,
        SCmpkGeI32 => sa >= imm,
        SCmpkLtI32 => sa < imm,
        SCmpkLeI32 => sa <= imm,
        SCmpkEqU32 => a == unsigned,
        SCmpkLgU32 => a != unsigned,
        SCmpkGtU32 => a > unsigned,
        SCmpkGeU32 => a >= unsigned,
        SCmpkLtU32 => a < unsigned,
        SCmpkLeU32 => a <= unsigned,
        SAddkI32 => {
            r.set32(i.dst, a.wrapping_add_signed(imm))?;
            sa.checked_add(imm).is_none()
        }
        SMulkI32 => return r.set32(i.dst, sa.wrapping_mul(imm).cast_unsigned()),
        _ => return stop(FaultKind::Unimplemented(i.to_string())),
    };
    r.set_scc(scc);
    Ok(())
}
