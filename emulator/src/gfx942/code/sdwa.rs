//! SDWA: operations on bytes and halves of registers.

use super::decode::bits;
use super::inst::{Coding, Inst, Part, Sdwa, Src, VCC};
use super::op::{Form, Op, Spec, Ty};
use super::operand::scalar;
use super::{Refusal, invalid, unsupported};

fn part(number: u16) -> Result<Part, Refusal> {
    Ok(match number {
        0..=3 => Part::Byte(number as u8),
        4 | 5 => Part::Word(number as u8 - 4),
        6 => Part::All,
        _ => return invalid(format!("part {number} of a register")),
    })
}

/// Integer operations and comparisons of 32 and 16 bits: modifiers of floats are not implemented.
pub(super) fn decode(
    word: u32,
    next: u32,
    form: Form,
    op: Op,
    spec: &Spec,
    more: u8,
) -> Result<Inst, Refusal> {
    let whole = |ty: Ty| matches!(ty, Ty::I | Ty::H | Ty::N);
    let implemented = spec.src.iter().all(|ty| whole(*ty))
        && (whole(spec.dst) && form == Form::Vop2
            || matches!(op, Op::VMovB32 | Op::VCvtF32U32)
            || form == Form::Vopc)
        && !matches!(op, Op::VAddCo | Op::VSubCo | Op::VSubrevCo);
    if !implemented {
        return unsupported(format!("SDWA of {}", spec.name));
    }
    let mask = form == Form::Vopc;
    let mut inst = Inst::new(op, 8);
    inst.coding = Coding::Sdwa;
    inst.more = more;
    inst.sdst = VCC;
    // In a comparison, these bits select the scalar registers for the mask, if not VCC.
    inst.dst = match (mask, bits(next, 15, 1)) {
        (false, _) => bits(word, 17, 8) as u8,
        (true, 0) if bits(next, 8, 7) != 0 => {
            return unsupported("an SDWA mask that is VCC by two ways".into());
        }
        (true, 0) => VCC,
        (true, _) => scalar(bits(next, 8, 7), 2)?,
    };
    let unused = if mask { 2 } else { bits(next, 11, 2) as u8 };
    if unused == 3 {
        return unsupported("dst_unused 3".into());
    }
    let output = if mask { 0 } else { bits(next, 13, 3) };
    let modifiers = output | bits(next, 20, 2) | bits(next, 28, 2);
    if modifiers != 0 || bits(next, 22, 1) != 0 || bits(next, 30, 1) != 0 {
        return unsupported("modifiers of SDWA".into());
    }
    let operand = |number: u16, scalar_register: bool| {
        if scalar_register { scalar(number, 1).map(Src::S) } else { Ok(Src::V(number as u8)) }
    };
    if bits(next, 23, 1) != 0 && bits(next, 7, 1) != 0 {
        return unsupported("an SDWA operand beyond scalar registers".into());
    }
    inst.src[0] = operand(bits(next, 0, 8), bits(next, 23, 1) != 0)?;
    let one = spec.src[1] == Ty::N;
    if one {
        if bits(next, 24, 8) != 0 {
            return unsupported("a second operand of SDWA".into());
        }
    } else {
        let number = bits(word, 9, 8);
        if bits(next, 31, 1) != 0 && number > 127 {
            return unsupported("an SDWA operand beyond scalar registers".into());
        }
        inst.src[1] = operand(number, bits(next, 31, 1) != 0)?;
    }
    inst.sdwa = Sdwa {
        dst: if mask { Part::All } else { part(bits(next, 8, 3))? },
        unused,
        src: [part(bits(next, 16, 3))?, if one { Part::All } else { part(bits(next, 24, 3))? }],
        sext: [bits(next, 19, 1) != 0, bits(next, 27, 1) != 0],
    };
    Ok(inst)
}
