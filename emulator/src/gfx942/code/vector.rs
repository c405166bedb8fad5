//! Decodes vector instructions: VOP1, VOP2 and VOPC in four bytes, and VOP3.

use super::decode::{bits, literal, named};
use super::inst::{Coding, EXEC, Inst, Src, VCC};
use super::op::{Form, Op, Spec, Ty};
use super::operand::{scalar, source, vector};
use super::{Refusal, compare, dpp, invalid, sdwa, unsupported};

/// Values of source 0 that announce a second word.
const SDWA: u16 = 249;
const DPP: u16 = 250;

/// Returns the operation of a short form, its row, and the value of `more`.
fn operation(form: Form, opcode: u16) -> Result<(Op, Spec, u8), Refusal> {
    if form != Form::Vopc {
        return named(form, opcode).map(|(op, spec)| (op, spec, 0));
    }
    let more = opcode as u8;
    if compare::kind(more).is_none() {
        return unsupported(format!("opcode {opcode} of Vopc"));
    }
    let mut inst = Inst::new(Op::VCmp, 4);
    inst.more = more;
    Ok((Op::VCmp, inst.spec(), more))
}

/// Decodes four bytes, or eight with a literal or SDWA.
pub(super) fn short(word: u32, next: Option<u32>) -> Result<Inst, Refusal> {
    let (form, opcode) = match bits(word, 25, 6) {
        0x3f => (Form::Vop1, bits(word, 9, 8)),
        0x3e => (Form::Vopc, bits(word, 17, 8)),
        opcode => (Form::Vop2, opcode),
    };
    let (op, spec, more) = operation(form, opcode)?;
    let first = bits(word, 0, 9);
    if first == DPP {
        let Some(next) = next else { return invalid("the second half is missing".into()) };
        return dpp::decode(word, next, form, op, &spec);
    }
    if first == SDWA {
        let Some(next) = next else { return invalid("the second half is missing".into()) };
        return sdwa::decode(word, next, form, op, &spec, more);
    }
    let constant = matches!(op, Op::VFmamk | Op::VFmaak);
    let (mut literal, mut size) = literal(&[first], next)?;
    if constant {
        let Some(word) = next else { return invalid("the constant is missing".into()) };
        (literal, size) = (Some(word), 8);
    }
    let mut inst = Inst::new(op, size);
    inst.more = more;
    if spec.src[0] != Ty::N {
        inst.src[0] = source(first, spec.src[0], literal)?;
    } else if first != 0 || bits(word, 17, 8) != 0 {
        return unsupported("v_nop with operands".into());
    }
    if form == Form::Vop1 {
        inst.dst = destination(op, &spec, bits(word, 17, 8))?;
        return lanes(inst);
    }
    inst.src[1] = Src::V(vector(bits(word, 9, 8) as u8, spec.src[1].width())?);
    if form == Form::Vopc {
        inst.dst = VCC;
        return Ok(inst);
    }
    inst.dst = destination(op, &spec, bits(word, 17, 8))?;
    match op {
        Op::VFmamk => {
            inst.src[2] = inst.src[1];
            inst.src[1] = Src::Const(u64::from(literal.unwrap_or_default()));
        }
        Op::VFmaak => inst.src[2] = Src::Const(u64::from(literal.unwrap_or_default())),
        _ if spec.src[2] == Ty::M => inst.src[2] = Src::S(VCC),
        _ => {}
    }
    Ok(inst)
}

fn destination(op: Op, spec: &Spec, number: u16) -> Result<u8, Refusal> {
    if matches!(op, Op::VReadfirstlane | Op::VReadlane) {
        if number > 127 {
            return unsupported(format!("scalar register {number}"));
        }
        return scalar(number, 1);
    }
    vector(number as u8, spec.dst.width())
}

/// Checks reads and writes of single lanes: which operands must be vector registers, and which must not.
fn lanes(inst: Inst) -> Result<Inst, Refusal> {
    let vector = |at: usize| matches!(inst.src[at], Src::V(_));
    let wrong = match inst.op {
        Op::VReadfirstlane => !vector(0),
        Op::VReadlane => !vector(0) || vector(1),
        Op::VWritelane => vector(0) || vector(1),
        _ => false,
    };
    if wrong { unsupported(format!("{} of such operands", inst.spec().name)) } else { Ok(inst) }
}

/// Decodes eight bytes with three sources and modifiers.
pub(super) fn long(word: u32, next: u32) -> Result<Inst, Refusal> {
    let opcode = bits(word, 16, 10);
    let (form, opcode) = match opcode {
        0..0x100 => (Form::Vopc, opcode),
        0x100..0x140 => (Form::Vop2, opcode - 0x100),
        0x140..0x1c0 => (Form::Vop1, opcode - 0x140),
        _ => (Form::Vop3, opcode),
    };
    let (op, spec, more) = operation(form, opcode)?;
    if matches!(op, Op::VFmamk | Op::VFmaak | Op::VReadfirstlane) {
        return invalid(format!("{} has no long form", spec.name));
    }
    let mut inst = Inst::new(op, 8);
    inst.more = more;
    inst.coding = if form == Form::Vop3 { Coding::Plain } else { Coding::E64 };
    let numbers = [bits(next, 0, 9), bits(next, 9, 9), bits(next, 18, 9)];
    for (at, number) in numbers.into_iter().enumerate() {
        match spec.src[at] {
            Ty::N if number != 0 => {
                return unsupported(format!("operand {at} of {}, which has none", spec.name));
            }
            Ty::N => {}
            Ty::M if number == u16::from(EXEC) => return invalid("EXEC as a mask".into()),
            Ty::M if number > 127 => return unsupported(format!("source {number} as a mask")),
            ty => inst.src[at] = source(number, ty, None)?,
        }
    }
    if form == Form::Vopc {
        if bits(word, 7, 1) != 0 {
            return unsupported("a comparison to something else than scalar registers".into());
        }
        inst.dst = scalar(bits(word, 0, 7), 2)?;
    } else {
        inst.dst = destination(op, &spec, bits(word, 0, 8))?;
    }
    inst.neg = bits(next, 29, 3) as u8;
    inst.omod = bits(next, 27, 2) as u8;
    inst.clamp = bits(word, 15, 1) != 0;
    if inst.has_sdst() {
        inst.sdst = scalar(bits(word, 8, 7), 2)?;
    } else {
        inst.abs = bits(word, 8, 3) as u8;
        if bits(word, 11, 4) != 0 {
            return unsupported("op_sel".into());
        }
    }
    modifiers(&inst, &spec)?;
    lanes(inst)
}

/// Modifiers are allowed only where the operand or result is a float.
fn modifiers(inst: &Inst, spec: &Spec) -> Result<(), Refusal> {
    for at in 0..3 {
        if (inst.neg | inst.abs) >> at & 1 == 1 && !spec.src[at].signed() {
            return unsupported(format!("a sign modifier on operand {at} of {}", spec.name));
        }
    }
    let float = matches!(spec.dst, Ty::F | Ty::D);
    if inst.omod != 0 && !float {
        return unsupported(format!("an output multiplier of {}", spec.name));
    }
    if inst.clamp && !float && !clamps(inst.op) {
        return unsupported(format!("clamp of {}", spec.name));
    }
    Ok(())
}

/// Returns whether an integer operation saturates if `clamp` is set.
pub(super) fn clamps(op: Op) -> bool {
    matches!(op, Op::VAddU32 | Op::VSubU32 | Op::VSubrevU32)
}
