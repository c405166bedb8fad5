//! Steps that read and write registers, for all lanes of a mask at once.
//!
//! Lanes outside of the mask are computed too if that is cheaper than testing, but not written.

use super::super::op::{Carry, Compare, Convert, Float1, Float2, Int2, Logic, Op, Step};
use super::super::types::{FloatTy, IntTy};
use super::convert::convert;
use super::int::{self, compare, int2};
use super::registers::Registers;
use super::{Done, LANES, Stop, float, lanes};
use crate::fault::FaultKind;

/// Runs a step that is neither a memory access, an exchange, nor control flow.
pub(crate) fn compute(r: &mut Registers<'_>, step: &Step, mask: u32) -> Done {
    match step.op {
        Op::Copy => r.copy(step.d, step.a, mask),
        Op::Pack(bits) => two(r, step, mask, |a, b| a | b << bits),
        Op::Unpack(bits) => {
            let low = u64::MAX >> (64 - bits);
            let high = one(r, step.a, mask, |a| a >> bits)?;
            let low = one(r, step.a, mask, |a| a & low)?;
            // Both are computed before either is written: a source may also be a destination.
            r.put(step.b, mask, &high)?;
            r.put(step.d, mask, &low)
        }
        Op::Int1(op, ty) => match ty {
            IntTy::U16 => put1(r, step, mask, |a| int::int1::<u16>(op, a)),
            IntTy::U32 => put1(r, step, mask, |a| int::int1::<u32>(op, a)),
            IntTy::U64 => put1(r, step, mask, |a| int::int1::<u64>(op, a)),
            IntTy::S16 => put1(r, step, mask, |a| int::int1::<i16>(op, a)),
            IntTy::S32 => put1(r, step, mask, |a| int::int1::<i32>(op, a)),
            IntTy::S64 => put1(r, step, mask, |a| int::int1::<i64>(op, a)),
        },
        Op::Int2(op, ty) => integers(r, step, mask, op, ty),
        Op::Int3(op, ty) => match ty {
            IntTy::U16 => three(r, step, mask, |a, b, c| int::int3::<u16>(op, a, b, c)),
            IntTy::U32 => three(r, step, mask, |a, b, c| int::int3::<u32>(op, a, b, c)),
            IntTy::U64 => three(r, step, mask, |a, b, c| int::int3::<u64>(op, a, b, c)),
            IntTy::S16 => three(r, step, mask, |a, b, c| int::int3::<i16>(op, a, b, c)),
            IntTy::S32 => three(r, step, mask, |a, b, c| int::int3::<i32>(op, a, b, c)),
            IntTy::S64 => three(r, step, mask, |a, b, c| int::int3::<i64>(op, a, b, c)),
        },
        Op::Carry(op, ty) => carry(r, step, mask, op, ty),
        Op::Wide(ty, add) => {
            let c = if add { u64::MAX } else { 0 };
            // Without an addend, the first operand stands in for the third.
            let step = &Step { c: if add { step.c } else { step.a }, ..*step };
            match ty {
                IntTy::U16 => three(r, step, mask, |a, b, x| int::wide::<u16>(a, b, x & c)),
                IntTy::S16 => three(r, step, mask, |a, b, x| int::wide::<i16>(a, b, x & c)),
                IntTy::U32 | IntTy::U64 => three(r, step, mask, |a, b, x| int::wide::<u32>(a, b, x & c)),
                IntTy::S32 | IntTy::S64 => three(r, step, mask, |a, b, x| int::wide::<i32>(a, b, x & c)),
            }
        }
        Op::Extract(ty) => match ty {
            IntTy::U32 | IntTy::U16 => three(r, step, mask, int::extract::<u32>),
            IntTy::U64 => three(r, step, mask, int::extract::<u64>),
            IntTy::S32 | IntTy::S16 => three(r, step, mask, int::extract::<i32>),
            IntTy::S64 => three(r, step, mask, int::extract::<i64>),
        },
        Op::Insert(ty) => {
            let lengths = *r.get(step.extra as u32, mask)?;
            let (a, b, c) = (r.get(step.a, mask)?, r.get(step.b, mask)?, r.get(step.c, mask)?);
            let mut values = [0; LANES];
            for lane in 0..LANES {
                values[lane] = match ty {
                    IntTy::U64 | IntTy::S64 => int::insert::<u64>(a[lane], b[lane], c[lane], lengths[lane]),
                    _ => int::insert::<u32>(a[lane], b[lane], c[lane], lengths[lane]),
                };
            }
            r.put(step.d, mask, &values)
        }
        Op::Funnel { left, wrap } => three(r, step, mask, |a, b, c| int::funnel(left, wrap, a, b, c)),
        Op::Lop3 => {
            let table = step.extra as u8;
            three(r, step, mask, |a, b, c| int::lop3(table, a, b, c))
        }
        Op::Permute => three(r, step, mask, int::permute),
        Op::Float1(op, FloatTy::F32) => match op {
            Float1::Neg => put1(r, step, mask, |a| float::single1(Float1::Neg, a)),
            Float1::Abs => put1(r, step, mask, |a| float::single1(Float1::Abs, a)),
            _ => put1(r, step, mask, |a| float::single1(op, a)),
        },
        Op::Float1(op, FloatTy::F64) => put1(r, step, mask, |a| float::double1(op, a)),
        Op::Float2(op, FloatTy::F32) => singles(r, step, mask, op),
        Op::Float2(op, FloatTy::F64) => match op {
            Float2::Add => two(r, step, mask, |a, b| float::double2(Float2::Add, a, b)),
            Float2::Sub => two(r, step, mask, |a, b| float::double2(Float2::Sub, a, b)),
            Float2::Mul => two(r, step, mask, |a, b| float::double2(Float2::Mul, a, b)),
            _ => two(r, step, mask, |a, b| float::double2(op, a, b)),
        },
        Op::Fma(FloatTy::F32) => three(r, step, mask, float::single_fma),
        Op::Fma(FloatTy::F64) => three(r, step, mask, float::double_fma),
        Op::CompareInt(op, ty) => compare_integers(r, step, mask, op, ty),
        Op::CompareFloat(op, FloatTy::F32) => {
            let nan = |a: u64, b: u64| float::single(a).is_nan() || float::single(b).is_nan();
            compare!(op, float::single, nan, |f| predicate(r, step, mask, f))
        }
        Op::CompareFloat(op, FloatTy::F64) => {
            let nan = |a: u64, b: u64| f64::from_bits(a).is_nan() || f64::from_bits(b).is_nan();
            compare!(op, f64::from_bits, nan, |f| predicate(r, step, mask, f))
        }
        Op::Select => {
            let yes = r.predicate(step.c, mask)?;
            r.select(step.d, [step.a, step.b], yes, mask)
        }
        Op::Logic(Logic::Copy) => r.copy_predicate(step.d, step.a, mask),
        Op::Logic(op @ (Logic::And | Logic::Or)) => {
            let value = r.either(step.a, step.b, op == Logic::Or, mask)?;
            r.put_predicate(step.d, mask, value)
        }
        Op::Logic(op) => {
            let (a, b) = (r.predicate(step.a, mask)?, r.predicate(step.b, mask)?);
            r.put_predicate(step.d, mask, if op == Logic::Not { !a } else { a ^ b })
        }
        Op::Convert(op) => conversions(r, step, mask, op),
        _ => Err(Stop::of(FaultKind::Unimplemented("a step that computes nothing".into()), None)),
    }
}

/// Runs conversions; common ones have their own loops, so that the loops contain no branch on the kind.
fn conversions(r: &mut Registers<'_>, step: &Step, mask: u32, op: Convert) -> Done {
    match op {
        Convert::Int { from, to, register, saturate: false } if !from.signed && !to.signed => {
            let bits = from.bits.min(to.bits).min(register);
            let low = u64::MAX >> (64 - bits);
            put1(r, step, mask, |a| a & low)
        }
        Convert::Widen => put1(r, step, mask, |a| convert(Convert::Widen, a)),
        Convert::Narrow => put1(r, step, mask, |a| convert(Convert::Narrow, a)),
        _ => put1(r, step, mask, |a| convert(op, a)),
    }
}

/// add.cc, addc, sub.cc, subc: each lane's carry is a separate predicate.
fn carry(r: &mut Registers<'_>, step: &Step, mask: u32, op: Carry, ty: IntTy) -> Done {
    let bits = if matches!(ty, IntTy::U64 | IntTy::S64) { 64 } else { 32 };
    let before = if op.takes { r.carry(mask)? } else { 0 };
    let (a, b) = (r.get(step.a, mask)?, r.get(step.b, mask)?);
    let (mut values, mut after) = ([0; LANES], 0);
    for lane in 0..LANES {
        let (x, y) = (i128::from(a[lane]), i128::from(b[lane]) + i128::from(before >> lane & 1));
        let exact = if op.sub { x - y } else { x + y };
        values[lane] = exact as u64 & (u64::MAX >> (64 - bits));
        // A borrow leaves a negative number, whose upper bits are ones.
        after |= u32::from(exact >> bits & 1 == 1) << lane;
    }
    if op.leaves {
        r.put_carry(mask, after);
    }
    r.put(step.d, mask, &values)
}

fn integers(r: &mut Registers<'_>, step: &Step, mask: u32, op: Int2, ty: IntTy) -> Done {
    if matches!(op, Int2::Div | Int2::Rem) {
        let divisors = r.get(step.b, mask)?;
        if let Some(lane) = lanes(mask).find(|lane| divisors[*lane] == 0) {
            let what = "a division by 0, whose result the PTX ISA leaves open".to_owned();
            return Err(Stop::of(FaultKind::Unimplemented(what), Some(lane as u32)));
        }
    }
    match ty {
        IntTy::U16 => int2!(op, u16, |f| two(r, step, mask, f)),
        IntTy::U32 => int2!(op, u32, |f| two(r, step, mask, f)),
        IntTy::U64 => int2!(op, u64, |f| two(r, step, mask, f)),
        IntTy::S16 => int2!(op, i16, |f| two(r, step, mask, f)),
        IntTy::S32 => int2!(op, i32, |f| two(r, step, mask, f)),
        IntTy::S64 => int2!(op, i64, |f| two(r, step, mask, f)),
    }
}

fn singles(r: &mut Registers<'_>, step: &Step, mask: u32, op: Float2) -> Done {
    float::single2!(op, |f| two(r, step, mask, f))
}

fn compare_integers(r: &mut Registers<'_>, step: &Step, mask: u32, op: Compare, ty: IntTy) -> Done {
    let never = |_: u64, _: u64| false;
    match ty {
        // Registers hold their values zero-extended.
        IntTy::U16 | IntTy::U32 | IntTy::U64 => {
            compare!(op, |a: u64| a, never, |f| predicate(r, step, mask, f))
        }
        IntTy::S16 => compare!(op, |a: u64| a as i16, never, |f| predicate(r, step, mask, f)),
        IntTy::S32 => compare!(op, |a: u64| a as i32, never, |f| predicate(r, step, mask, f)),
        IntTy::S64 => compare!(op, |a: u64| a as i64, never, |f| predicate(r, step, mask, f)),
    }
}

#[inline(always)]
fn one(r: &Registers<'_>, from: u32, mask: u32, f: impl Fn(u64) -> u64) -> Result<super::Lanes, Box<Stop>> {
    let a = r.get(from, mask)?;
    let mut values = [0; LANES];
    for lane in 0..LANES {
        values[lane] = f(a[lane]);
    }
    Ok(values)
}

#[inline(always)]
fn put1(r: &mut Registers<'_>, step: &Step, mask: u32, f: impl Fn(u64) -> u64) -> Done {
    let values = one(r, step.a, mask, f)?;
    r.put(step.d, mask, &values)
}

#[inline(always)]
fn two(r: &mut Registers<'_>, step: &Step, mask: u32, f: impl Fn(u64, u64) -> u64) -> Done {
    let (a, b) = (r.get(step.a, mask)?, r.get(step.b, mask)?);
    let mut values = [0; LANES];
    for lane in 0..LANES {
        values[lane] = f(a[lane], b[lane]);
    }
    r.put(step.d, mask, &values)
}

#[inline(always)]
fn three(r: &mut Registers<'_>, step: &Step, mask: u32, f: impl Fn(u64, u64, u64) -> u64) -> Done {
    let (a, b, c) = (r.get(step.a, mask)?, r.get(step.b, mask)?, r.get(step.c, mask)?);
    let mut values = [0; LANES];
    for lane in 0..LANES {
        values[lane] = f(a[lane], b[lane], c[lane]);
    }
    r.put(step.d, mask, &values)
}

#[inline(always)]
fn predicate(r: &mut Registers<'_>, step: &Step, mask: u32, f: impl Fn(u64, u64) -> bool) -> Done {
    let (a, b) = (r.get(step.a, mask)?, r.get(step.b, mask)?);
    let mut values = 0;
    for lane in 0..LANES {
        values |= u32::from(f(a[lane], b[lane])) << lane;
    }
    r.put_predicate(step.d, mask, values)
}
