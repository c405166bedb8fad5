//! Operand numbers: the register or constant that a field of an encoding selects.

use super::inst::{EXEC, M0, Src, VCC};
use super::op::Ty;
use super::{Refusal, invalid, unsupported};

/// Inline constants 240 to 248: ±0.5, ±1, ±2, ±4, 1/(2π), as binary16, binary32 and binary64.
pub const HALF: [u16; 9] = [0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118];
/// The same as binary32.
pub const SINGLE: [u32; 9] = [
    0x3f00_0000,
    0xbf00_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x4000_0000,
    0xc000_0000,
    0x4080_0000,
    0xc080_0000,
    0x3e22_f983,
];
/// The same as binary64.
pub const DOUBLE: [u64; 9] = [
    0x3fe0_0000_0000_0000,
    0xbfe0_0000_0000_0000,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    0x4000_0000_0000_0000,
    0xc000_0000_0000_0000,
    0x4010_0000_0000_0000,
    0xc010_0000_0000_0000,
    0x3fc4_5f30_6dc9_c882,
];

/// The number that means "a literal follows".
pub const LITERAL: u16 = 255;

/// Returns a scalar register to write, or a pair, from its seven-bit number.
pub fn scalar(number: u16, width: u8) -> Result<u8, Refusal> {
    let number = number as u8;
    let last = u16::from(number) + u16::from(width) - 1;
    let fits = match number {
        0..=101 => last <= 101,
        VCC | EXEC => width <= 2,
        107 | 127 | M0 => width == 1,
        102..=105 | 108..=123 => return unsupported(format!("a reserved register, number {number}")),
        // LLVM takes 125 to read as 0, which AMD's document does not say.
        _ => return unsupported(format!("scalar register {number}")),
    };
    if !fits {
        return unsupported(format!("{width} scalar registers from {number}"));
    }
    if number < 102 && !number.is_multiple_of(width.min(4)) {
        // LLVM names the aligned ones below instead.
        return unsupported(format!("{width} scalar registers from s{number}, which is not aligned"));
    }
    Ok(number)
}

/// Returns a source from its eight- or nine-bit number. `literal` is the word after the instruction, where
/// one is allowed.
pub fn source(number: u16, ty: Ty, literal: Option<u32>) -> Result<Src, Refusal> {
    Ok(match number {
        0..=127 => Src::S(scalar(number, ty.width())?),
        128..=192 => constant(i64::from(number) - 128, ty),
        193..=208 => constant(192 - i64::from(number), ty),
        235..=239 => return unsupported("an aperture as an operand".into()),
        240..=248 => {
            let which = usize::from(number - 240);
            Src::Const(match ty {
                Ty::H => u64::from(HALF[which]),
                Ty::L | Ty::D | Ty::M => DOUBLE[which],
                _ => u64::from(SINGLE[which]),
            })
        }
        251 if ty.width() == 1 => Src::Vccz,
        252 if ty.width() == 1 => Src::Execz,
        253 if ty.width() == 1 => Src::Scc,
        251..=254 => return unsupported(format!("source {number}")),
        LITERAL => match literal {
            None => return invalid("a literal where none may be".into()),
            Some(0x1_0000..) if ty == Ty::H => {
                return unsupported("a literal of 32 bits for an operand of 16".into());
            }
            Some(word) => Src::Const(match ty {
                Ty::D => u64::from(word) << 32,
                _ => u64::from(word),
            }),
        },
        256..=511 => Src::V(vector((number - 256) as u8, ty.width())?),
        _ => return invalid(format!("source {number}")),
    })
}

/// Returns the vector registers from this one on.
pub fn vector(number: u8, width: u8) -> Result<u8, Refusal> {
    if usize::from(number) + usize::from(width) > 256 {
        return invalid(format!("{width} vector registers from v{number}"));
    }
    if width > 1 && number % 2 == 1 {
        // On gfx90a and later, tuples of vector registers begin at even numbers.
        return unsupported(format!("vector registers from v{number}, which is odd"));
    }
    Ok(number)
}

fn constant(value: i64, ty: Ty) -> Src {
    Src::Const(match ty {
        Ty::L | Ty::D | Ty::M => value.cast_unsigned(),
        _ => u64::from(value as u32),
    })
}
