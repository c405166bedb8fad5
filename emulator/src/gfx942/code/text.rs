//! The text of an instruction, as LLVM prints it.

use super::inst::{Coding, EXEC, Inst, M0, Part, Src, VCC};
use super::op::{Form, Op, Spec, Ty};
use super::operand::{DOUBLE, SINGLE};
use super::{compare, dpp};
use std::fmt;

const NAMES: [&str; 8] = ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"];

/// Returns the name of scalar registers.
pub fn scalar(number: u8, width: u8) -> String {
    let low_high = |name: &str| match (width, number % 2) {
        (2, _) => name.to_owned(),
        (_, 0) => format!("{name}_lo"),
        _ => format!("{name}_hi"),
    };
    match number {
        VCC | 107 => low_high("vcc"),
        EXEC | 127 => low_high("exec"),
        M0 => "m0".to_owned(),
        _ => registers('s', number, width),
    }
}

/// Returns the name of vector registers.
pub fn vector(number: u8, width: u8) -> String {
    registers('v', number, width)
}

fn registers(kind: char, number: u8, width: u8) -> String {
    if width == 1 {
        format!("{kind}{number}")
    } else {
        format!("{kind}[{number}:{}]", u16::from(number) + u16::from(width) - 1)
    }
}

fn integer(value: i64) -> Option<String> {
    (-16..=64).contains(&value).then(|| value.to_string())
}

fn constant(value: u64, ty: Ty) -> String {
    let (signed, name) = match ty {
        Ty::H => (i64::from(value as i32), None),
        Ty::L | Ty::D | Ty::M => (value.cast_signed(), DOUBLE.iter().position(|c| *c == value)),
        _ => (i64::from(value as i32), SINGLE.iter().position(|c| *c == value as u32)),
    };
    if let Some(text) = integer(signed) {
        return text;
    }
    match name {
        Some(8) if ty.width() == 2 => "0.15915494309189532".to_owned(),
        Some(8) => "0.15915494".to_owned(),
        Some(which) => NAMES[which].to_owned(),
        None if ty == Ty::D => format!("{:#x}", value >> 32),
        None if ty == Ty::H => format!("{:#x}", value as u16),
        None => format!("{value:#x}"),
    }
}

/// Returns the name or value of a source.
pub fn source(src: Src, ty: Ty) -> String {
    match src {
        Src::None => "off".to_owned(),
        Src::S(number) => scalar(number, ty.width()),
        Src::V(number) => vector(number, ty.width()),
        Src::Const(value) => constant(value, ty),
        Src::Vccz => "src_vccz".to_owned(),
        Src::Execz => "src_execz".to_owned(),
        Src::Scc => "src_scc".to_owned(),
    }
}

fn part(part: Part) -> String {
    match part {
        Part::Byte(number) => format!("BYTE_{number}"),
        Part::Word(number) => format!("WORD_{number}"),
        Part::All => "DWORD".to_owned(),
    }
}

fn hex(value: i32) -> String {
    if value < 0 { format!("-{:#x}", value.unsigned_abs()) } else { format!("{value:#x}") }
}

impl Inst {
    /// Returns its name with the suffix of its encoding.
    pub fn name(&self) -> String {
        let spec = self.spec();
        let base = if self.op == Op::VCmp { compare::name(self.more) } else { spec.name.to_owned() };
        let bare = matches!(self.op, Op::VFmamk | Op::VFmaak | Op::VReadfirstlane)
            || (self.op == Op::VNop && self.coding == Coding::Plain);
        match (spec.form, self.coding) {
            _ if bare => base,
            (Form::Vop1 | Form::Vop2 | Form::Vopc, Coding::Plain) => base + "_e32",
            (Form::Vop1 | Form::Vop2 | Form::Vopc, Coding::E64) => base + "_e64",
            (_, Coding::Sdwa) => base + "_sdwa",
            (_, Coding::Dpp) => base + "_dpp",
            _ => base,
        }
    }

    fn operand(&self, at: usize, ty: Ty) -> String {
        let constant = match self.op {
            Op::VFmamk => at == 1,
            Op::VFmaak => at == 2,
            _ => false,
        };
        if let (true, Src::Const(value)) = (constant, self.src[at]) {
            return format!("{value:#x}");
        }
        let text = source(self.src[at], ty);
        let (neg, abs) = (self.neg >> at & 1 == 1, self.abs >> at & 1 == 1);
        if self.coding == Coding::Sdwa {
            return if self.sdwa.sext[at] { format!("sext({text})") } else { text };
        }
        let text = if abs { format!("|{text}|") } else { text };
        match neg {
            false => text,
            // A minus before a constant would read as part of the constant.
            true if matches!(self.src[at], Src::Const(_)) && !abs => format!("neg({text})"),
            true => format!("-{text}"),
        }
    }

    fn vector_text(&self, spec: &Spec) -> String {
        let mut operands = Vec::new();
        match (self.scalar_dst(), spec.dst) {
            (_, Ty::N) => {}
            (true, ty) => operands.push(scalar(self.dst, ty.width())),
            (false, ty) => operands.push(vector(self.dst, ty.width())),
        }
        if self.has_sdst() {
            operands.push(scalar(self.sdst, 2));
        }
        for (at, ty) in spec.src.into_iter().enumerate() {
            if ty != Ty::N {
                operands.push(self.operand(at, ty));
            }
        }
        let mut text = operands.join(", ");
        if self.clamp {
            text += " clamp";
        }
        text += ["", " mul:2", " mul:4", " div:2"][usize::from(self.omod & 3)];
        if self.coding == Coding::Dpp {
            let name = dpp::name(self.dpp.control).unwrap_or_default();
            text += &format!(" {name} row_mask:{:#x} bank_mask:{:#x}", self.dpp.rows, self.dpp.banks);
            if self.dpp.zero {
                text += " bound_ctrl:1";
            }
        }
        if self.coding == Coding::Sdwa {
            let unused =
                ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"][usize::from(self.sdwa.unused.min(2))];
            if spec.form != Form::Vopc {
                text += &format!(" dst_sel:{} dst_unused:{unused}", part(self.sdwa.dst));
            }
            text += &format!(" src0_sel:{}", part(self.sdwa.src[0]));
            if spec.src[1] != Ty::N {
                text += &format!(" src1_sel:{}", part(self.sdwa.src[1]));
            }
        }
        text
    }

    fn waits(&self) -> String {
        let (vm, exp, lgkm) = self.counters();
        let parts = [(vm, 63, "vmcnt"), (exp, 7, "expcnt"), (lgkm, 15, "lgkmcnt")];
        let all = parts.iter().all(|(count, most, _)| count == most);
        let shown = parts.iter().filter(|(count, most, _)| all || count != most);
        shown.map(|(count, _, name)| format!("{name}({count})")).collect::<Vec<_>>().join(" ")
    }

    /// Returns the counters of `s_waitcnt`: vmcnt, expcnt, lgkmcnt.
    pub fn counters(&self) -> (u32, u32, u32) {
        let imm = self.imm.cast_unsigned();
        (imm & 15 | imm >> 10 & 0x30, imm >> 4 & 7, imm >> 8 & 15)
    }

    fn offset(&self) -> String {
        if self.imm == 0 { String::new() } else { format!(" offset:{}", self.imm) }
    }

    fn operands(&self) -> String {
        let spec = self.spec();
        match spec.form {
            Form::Sopp => match self.op {
                Op::SWaitcnt => self.waits(),
                Op::SEndpgm if self.imm == 0 => String::new(),
                Op::SBarrier => String::new(),
                _ if self.jumps() || self.op == Op::SEndpgm => (self.imm as u16).to_string(),
                _ => integer(i64::from(self.imm as u16)).unwrap_or_else(|| format!("{:#x}", self.imm as u16)),
            },
            Form::Sopk => format!("{}, {:#x}", scalar(self.dst, 1), self.imm as u16),
            Form::Smem => {
                let glc = if self.more == 0 { "" } else { " glc" };
                format!(
                    "{}, {}, {}{glc}",
                    scalar(self.dst, self.words()),
                    source(self.src[0], Ty::L),
                    hex(self.imm)
                )
            }
            Form::Ds => {
                let [address, data, _] = self.src;
                format!(
                    "{}, {}, {}{}",
                    vector(self.dst, 1),
                    source(address, Ty::I),
                    source(data, Ty::I),
                    self.offset()
                )
            }
            Form::Global => {
                let [address, base, data] = self.src;
                let width = if base == Src::None { Ty::L } else { Ty::I };
                let mut parts = vec![source(address, width)];
                if let Src::V(data) = data {
                    parts.push(vector(data, self.words()));
                } else {
                    parts.insert(0, vector(self.dst, self.words()));
                }
                parts.push(source(base, Ty::L));
                let mut text = parts.join(", ") + &self.offset();
                for (bit, name) in [(0, " sc0"), (1, " nt"), (2, " sc1")] {
                    if self.more >> bit & 1 == 1 {
                        text += name;
                    }
                }
                text
            }
            Form::Sop1 | Form::Sop2 | Form::Sopc | Form::Vop1 | Form::Vop2 | Form::Vopc | Form::Vop3 => {
                if matches!(spec.form, Form::Vop1 | Form::Vop2 | Form::Vopc | Form::Vop3) {
                    return self.vector_text(&spec);
                }
                let dst = (spec.dst != Ty::N).then(|| scalar(self.dst, spec.dst.width()));
                let sources = spec.src.into_iter().enumerate().filter(|(_, ty)| *ty != Ty::N);
                let sources = sources.map(|(at, ty)| source(self.src[at], ty));
                dst.into_iter().chain(sources).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operands = self.operands();
        if operands.is_empty() { f.write_str(&self.name()) } else { write!(f, "{} {operands}", self.name()) }
    }
}
