//! Vector comparisons: an opcode is a type and a condition.

use super::op::Ty;

/// The operands of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    ClassF32,
    ClassF64,
    F32,
    F64,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
}

/// Conditions of floats, including NaN, by the lower four bits: bit 0 less, bit 1 equal, bit 2 greater; from
/// 8 on, the negations of the first eight, in reverse.
pub const FLOAT: [&str; 16] =
    ["f", "lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt", "tru"];
/// Conditions of integers, by the lower three bits: less, equal, greater.
pub const INTEGER: [&str; 8] = ["f", "lt", "eq", "le", "gt", "ne", "ge", "t"];

/// Returns what an opcode compares, and whether it also writes EXEC; `None` if not implemented.
pub fn kind(opcode: u8) -> Option<(Kind, bool)> {
    use Kind::*;
    Some(match opcode {
        0x10 => (ClassF32, false),
        0x11 => (ClassF32, true),
        0x12 => (ClassF64, false),
        0x13 => (ClassF64, true),
        0x40..=0x4f => (F32, false),
        0x50..=0x5f => (F32, true),
        0x60..=0x6f => (F64, false),
        0x70..=0x7f => (F64, true),
        0xa0..=0xff => {
            let kind = match opcode & 0x68 {
                0x20 => I16,
                0x28 => U16,
                0x40 => I32,
                0x48 => U32,
                0x60 => I64,
                _ => U64,
            };
            (kind, opcode & 0x10 != 0)
        }
        _ => return None,
    })
}

/// Returns the types of the two operands.
pub fn operands(opcode: u8) -> (Ty, Ty) {
    match kind(opcode).map(|(kind, _)| kind) {
        Some(Kind::ClassF32) => (Ty::F, Ty::I),
        Some(Kind::ClassF64) => (Ty::D, Ty::I),
        Some(Kind::F32) => (Ty::F, Ty::F),
        Some(Kind::F64) => (Ty::D, Ty::D),
        Some(Kind::I16 | Kind::U16) => (Ty::H, Ty::H),
        Some(Kind::I32 | Kind::U32) => (Ty::I, Ty::I),
        Some(Kind::I64 | Kind::U64) => (Ty::L, Ty::L),
        None => (Ty::N, Ty::N),
    }
}

/// Returns its name without suffix.
pub fn name(opcode: u8) -> String {
    let Some((kind, exec)) = kind(opcode) else { return "?".to_owned() };
    let (ty, float) = match kind {
        Kind::ClassF32 => return format!("v_cmp{}_class_f32", if exec { "x" } else { "" }),
        Kind::ClassF64 => return format!("v_cmp{}_class_f64", if exec { "x" } else { "" }),
        Kind::F32 => ("f32", true),
        Kind::F64 => ("f64", true),
        Kind::I16 => ("i16", false),
        Kind::U16 => ("u16", false),
        Kind::I32 => ("i32", false),
        Kind::U32 => ("u32", false),
        Kind::I64 => ("i64", false),
        Kind::U64 => ("u64", false),
    };
    let condition = if float { FLOAT[usize::from(opcode & 15)] } else { INTEGER[usize::from(opcode & 7)] };
    format!("v_cmp{}_{condition}_{ty}", if exec { "x" } else { "" })
}
