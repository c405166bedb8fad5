//! DPP: operations whose first source comes from other lanes.

use super::decode::bits;
use super::inst::{Coding, Dpp, Inst, Src};
use super::op::{Form, Op, Spec, Ty};
use super::{Refusal, invalid, unsupported};

/// Operations with one register per operand and no carry; `v_cndmask_b32` reads VCC.
pub(super) fn decode(word: u32, next: u32, form: Form, op: Op, spec: &Spec) -> Result<Inst, Refusal> {
    let mut inst = Inst::new(op, 8);
    let narrow = |ty: Ty| ty.width() <= 1;
    let three = spec.src[2] != Ty::N;
    let implemented = matches!(form, Form::Vop1 | Form::Vop2)
        && narrow(spec.dst)
        && spec.dst != Ty::N
        && narrow(spec.src[0])
        && narrow(spec.src[1])
        && !three
        && !inst.has_sdst()
        && op != Op::VReadfirstlane;
    if !implemented {
        return unsupported(format!("DPP of {}", spec.name));
    }
    inst.coding = Coding::Dpp;
    inst.dst = bits(word, 17, 8) as u8;
    inst.src[0] = Src::V(bits(next, 0, 8) as u8);
    if spec.src[1] != Ty::N {
        inst.src[1] = Src::V(bits(word, 9, 8) as u8);
    }
    let signs = bits(next, 20, 4);
    inst.neg = (signs & 1 | signs >> 1 & 2) as u8;
    inst.abs = (signs >> 1 & 1 | signs >> 2 & 2) as u8;
    for at in 0..2 {
        if (inst.neg | inst.abs) >> at & 1 == 1 && !spec.src[at].signed() {
            return unsupported(format!("a sign modifier on operand {at} of {}", spec.name));
        }
    }
    if bits(next, 17, 2) != 0 {
        return unsupported("reserved bits of DPP".into());
    }
    let control = bits(next, 8, 9);
    if name(control).is_none() {
        return invalid(format!("DPP control {control:#x}"));
    }
    inst.dpp = Dpp {
        control,
        zero: bits(next, 19, 1) == 1,
        rows: bits(next, 28, 4) as u8,
        banks: bits(next, 24, 4) as u8,
    };
    Ok(inst)
}

/// Returns LLVM's name of a control.
pub(super) fn name(control: u16) -> Option<String> {
    let n = control & 15;
    Some(match control {
        0..=0xff => {
            let at = |q: u16| control >> (2 * q) & 3;
            format!("quad_perm:[{},{},{},{}]", at(0), at(1), at(2), at(3))
        }
        0x101..=0x10f => format!("row_shl:{n}"),
        0x111..=0x11f => format!("row_shr:{n}"),
        0x121..=0x12f => format!("row_ror:{n}"),
        0x130 => "wave_shl:1".to_owned(),
        0x134 => "wave_rol:1".to_owned(),
        0x138 => "wave_shr:1".to_owned(),
        0x13c => "wave_ror:1".to_owned(),
        0x140 => "row_mirror".to_owned(),
        0x141 => "row_half_mirror".to_owned(),
        0x142 => "row_bcast:15".to_owned(),
        0x143 => "row_bcast:31".to_owned(),
        0x150..=0x15f => format!("row_newbcast:{n}"),
        _ => return None,
    })
}

impl Dpp {
    /// Returns the lane that a lane reads, if there is one.
    pub fn source(self, lane: u8) -> Option<u8> {
        let (row, at) = (lane & 0x30, lane & 15);
        let n = (self.control & 15) as u8;
        match self.control {
            0..=0xff => Some(lane & !3 | (self.control >> (2 * (lane & 3)) & 3) as u8),
            0x101..=0x10f => (at + n < 16).then_some(lane + n),
            0x111..=0x11f => (at >= n).then(|| lane - n),
            0x121..=0x12f => Some(row | at.wrapping_sub(n) & 15),
            0x130 => (lane < 63).then_some(lane + 1),
            0x134 => Some((lane + 1) & 63),
            0x138 => (lane > 0).then(|| lane - 1),
            0x13c => Some(lane.wrapping_sub(1) & 63),
            0x140 => Some(row | (15 - at)),
            0x141 => Some(lane & !7 | (7 - (lane & 7))),
            // The last lane of the previous row; of the first half of the wave.
            0x142 => (row > 0).then(|| row - 1),
            0x143 => (lane >= 32).then_some(31),
            _ => Some(row | n),
        }
    }
}
