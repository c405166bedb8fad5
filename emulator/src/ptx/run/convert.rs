//! cvt.

use super::super::op::{Convert, Rounding, Width};
use super::super::types::FloatTy;
use super::float::{double_bits, single, single_bits};

/// Returns the value of a register's low bits.
fn value(width: Width, bits: u64) -> i128 {
    let spare = 64 - u32::from(width.bits);
    let up = bits << spare;
    if width.signed { i128::from((up as i64) >> spare) } else { i128::from(up >> spare) }
}

/// Returns the smallest and largest value of a type.
fn range(width: Width) -> (i128, i128) {
    let bits = u32::from(width.bits);
    if width.signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// Extends a value by signs or zeros to a register of this many bits.
fn extended(width: Width, value: i128, register: u8) -> u64 {
    let low = (value as u64) << (64 - width.bits) >> (64 - width.bits);
    let wide = if width.signed { self::value(width, low) as u64 } else { low };
    wide & (u64::MAX >> (64 - register))
}

/// Converts one value.
#[inline(always)]
pub(crate) fn convert(op: Convert, a: u64) -> u64 {
    match op {
        Convert::Int { from, to, register, saturate } => {
            let value = value(from, a);
            let (least, most) = range(to);
            extended(to, if saturate { value.clamp(least, most) } else { value }, register)
        }
        // A NaN keeps its sign and payload.
        Convert::Widen => {
            let x = f64::from(single(a));
            if x.is_nan() {
                (a & 0x8000_0000) << 32 | 0x7ff8_0000_0000_0000 | (a & 0x7f_ffff) << 29
            } else {
                x.to_bits()
            }
        }
        Convert::Narrow => single_bits(f64::from_bits(a) as f32),
        Convert::Whole(FloatTy::F32, rounding) => single_bits(whole32(single(a), rounding)),
        Convert::Whole(FloatTy::F64, rounding) => {
            let x = f64::from_bits(a);
            double_bits(whole(x, rounding), [x])
        }
        Convert::FromInt(width, FloatTy::F32) => single_bits(value(width, a) as f32),
        Convert::FromInt(width, FloatTy::F64) => (value(width, a) as f64).to_bits(),
        Convert::ToInt { from, rounding, to, register } => {
            let x = if from == FloatTy::F32 { f64::from(single(a)) } else { f64::from_bits(a) };
            if x.is_nan() {
                // 0 from f32 to at most 32 bits, otherwise the bits of the smallest signed number (PTX ISA,
                // cvt).
                let zero = from == FloatTy::F32 && to.bits < 64;
                return if zero { 0 } else { extended(to, 1 << (to.bits - 1), register) };
            }
            let (least, most) = range(to);
            extended(to, (whole(x, rounding) as i128).clamp(least, most), register)
        }
    }
}

fn whole(x: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => x.round_ties_even(),
        Rounding::Zero => x.trunc(),
        Rounding::Down => x.floor(),
        Rounding::Up => x.ceil(),
    }
}

fn whole32(x: f32, rounding: Rounding) -> f32 {
    match rounding {
        Rounding::Nearest => x.round_ties_even(),
        Rounding::Zero => x.trunc(),
        Rounding::Down => x.floor(),
        Rounding::Up => x.ceil(),
    }
}
