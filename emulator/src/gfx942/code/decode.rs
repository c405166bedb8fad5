//! Decodes words: scalar forms, memory, and the choice of form.

use super::inst::{Inst, M0, Src};
use super::op::{Form, Op, Spec, Ty, find};
use super::operand::{LITERAL, scalar, source, vector};
use super::{Refusal, invalid, unsupported, vector as valu};

/// Decodes the instruction at the start of `code`.
pub fn decode(code: &[u32]) -> Result<Inst, Refusal> {
    let Some(&word) = code.first() else { return invalid("no bytes are left".into()) };
    let next = code.get(1).copied();
    match word >> 23 {
        0b1_0111_1101 => scalars(Form::Sop1, bits(word, 8, 8), 1, word, next),
        0b1_0111_1110 => scalars(Form::Sopc, bits(word, 16, 7), 2, word, next),
        0b1_0111_1111 => sopp(word),
        top if top >> 5 == 0b1011 => sopk(word),
        top if top >> 7 == 0b10 => scalars(Form::Sop2, bits(word, 23, 7), 2, word, next),
        top if top >> 8 == 0 => valu::short(word, next),
        top => match (top >> 3, next) {
            (0b11_0000, Some(next)) => smem(word, next),
            (0b11_0100, Some(next)) => valu::long(word, next),
            (0b11_0110, Some(next)) => ds(word, next),
            (0b11_0111, Some(next)) => global(word, next),
            (0b11_0000 | 0b11_0100 | 0b11_0110 | 0b11_0111, None) => {
                invalid("the second half is missing".into())
            }
            _ => unsupported(format!("the encoding of {word:#010x}")),
        },
    }
}

/// Returns `count` bits from bit `from` on.
pub(super) fn bits(word: u32, from: u32, count: u32) -> u16 {
    (word >> from & ((1 << count) - 1)) as u16
}

pub(super) fn named(form: Form, opcode: u16) -> Result<(Op, Spec), Refusal> {
    match find(form, opcode) {
        Some(op) => Ok((op, op.spec())),
        None => unsupported(format!("opcode {opcode} of {form:?}")),
    }
}

/// Returns the literal after a four-byte instruction, if a source is one, and the resulting size.
pub(super) fn literal(sources: &[u16], next: Option<u32>) -> Result<(Option<u32>, u8), Refusal> {
    if !sources.contains(&LITERAL) {
        return Ok((None, 4));
    }
    match next {
        Some(word) => Ok((Some(word), 8)),
        None => invalid("the literal is missing".into()),
    }
}

/// A scalar operation or comparison, with `count` sources.
fn scalars(form: Form, opcode: u16, count: usize, word: u32, next: Option<u32>) -> Result<Inst, Refusal> {
    let (op, spec) = named(form, opcode)?;
    let numbers = [bits(word, 0, 8), bits(word, 8, 8)];
    let (literal, size) = literal(&numbers[..count], next)?;
    let mut inst = Inst::new(op, size);
    if form != Form::Sopc {
        inst.dst = scalar(bits(word, 16, 7), spec.dst.width())?;
    }
    for at in 0..count {
        inst.src[at] = source(numbers[at], spec.src[at], literal)?;
    }
    Ok(inst)
}

fn sopk(word: u32) -> Result<Inst, Refusal> {
    let (op, spec) = named(Form::Sopk, bits(word, 23, 5))?;
    let mut inst = Inst::new(op, 4);
    inst.dst = scalar(bits(word, 16, 7), spec.dst.width())?;
    inst.imm = i32::from(bits(word, 0, 16) as i16);
    Ok(inst)
}

fn sopp(word: u32) -> Result<Inst, Refusal> {
    let (op, _) = named(Form::Sopp, bits(word, 16, 7))?;
    let mut inst = Inst::new(op, 4);
    inst.imm = i32::from(bits(word, 0, 16) as i16);
    if op == Op::SBarrier && inst.imm != 0 {
        return unsupported("s_barrier with an immediate".into());
    }
    Ok(inst)
}

fn smem(word: u32, next: u32) -> Result<Inst, Refusal> {
    let (op, _) = named(Form::Smem, bits(word, 18, 8))?;
    let mut inst = Inst::new(op, 8);
    inst.dst = scalar(bits(word, 6, 7), inst.words())?;
    if inst.dst >= M0 {
        return invalid(format!("a scalar load into scalar register {}", inst.dst));
    }
    inst.src[0] = Src::S(scalar(bits(word, 0, 6) << 1, 2)?);
    let (sgpr, nv, immediate) = (bits(word, 14, 1), bits(word, 15, 1), bits(word, 17, 1));
    if sgpr != 0 || nv != 0 || immediate != 1 || bits(word, 13, 1) != 0 || bits(next, 21, 11) != 0 {
        return unsupported("a scalar load whose offset is not an immediate".into());
    }
    inst.imm = (next << 11).cast_signed() >> 11;
    inst.more = bits(word, 16, 1) as u8;
    Ok(inst)
}

fn ds(word: u32, next: u32) -> Result<Inst, Refusal> {
    let (op, _) = named(Form::Ds, bits(word, 17, 8))?;
    if bits(word, 16, 1) != 0 || bits(word, 25, 1) != 0 || bits(next, 16, 8) != 0 {
        return unsupported("GDS, accumulation registers or a second datum in a DS instruction".into());
    }
    let mut inst = Inst::new(op, 8);
    inst.imm = i32::from(bits(word, 0, 16));
    inst.dst = bits(next, 24, 8) as u8;
    inst.src[0] = Src::V(bits(next, 0, 8) as u8);
    inst.src[1] = Src::V(bits(next, 8, 8) as u8);
    Ok(inst)
}

/// Sources are the address in vector registers, the base in scalar registers (or none), and the data of a
/// store.
fn global(word: u32, next: u32) -> Result<Inst, Refusal> {
    if bits(word, 14, 2) != 2 {
        return unsupported("flat and scratch accesses".into());
    }
    let (op, _) = named(Form::Global, bits(word, 18, 7))?;
    let lds = bits(word, 13, 1) != 0;
    if lds || bits(next, 23, 1) != 0 {
        return unsupported("local memory or accumulation registers in a global access".into());
    }
    let mut inst = Inst::new(op, 8);
    inst.imm = (word << 19).cast_signed() >> 19;
    inst.more = (bits(word, 16, 1) | bits(word, 17, 1) << 1 | bits(word, 25, 1) << 2) as u8;
    let (address, data, base, dst) =
        (bits(next, 0, 8), bits(next, 8, 8), bits(next, 16, 7), bits(next, 24, 8));
    if base == 0x7f {
        inst.src[0] = Src::V(vector(address as u8, 2)?);
    } else {
        inst.src[0] = Src::V(address as u8);
        inst.src[1] = Src::S(scalar(base, Ty::L.width())?);
    }
    if inst.stores() {
        inst.src[2] = Src::V(vector(data as u8, inst.words())?);
        if dst != 0 {
            return unsupported("a store with a destination".into());
        }
    } else {
        inst.dst = vector(dst as u8, inst.words())?;
        if data != 0 {
            return unsupported("a load with data".into());
        }
    }
    Ok(inst)
}
