//! Wait states that the hardware does not insert: instructions required between two others (CDNA3 ISA 4.5,
//! and LLVM's `GCNHazardRecognizer` for gfx940). An instruction counts 1, `s_nop n` counts n + 1.
//!
//! | first | then | between |
//! |---|---|---|
//! | vector operation writes a scalar register or VCC | vector operation reads it | 2 |
//! | | `v_readlane`, `v_writelane` with it as lane, `v_div_fmas` with VCC | 4 |
//! | | access to global memory with it as base; VCC and `vccz` as an operand | 5 |
//! | `v_cmpx` writes EXEC | `v_readlane`, `v_readfirstlane`, `v_writelane` | 4 |
//! | | `execz` as an operand; DPP | 5 |
//! | vector operation writes a vector register | `v_readlane`, `v_readfirstlane` reads it | 1 |
//! | | DPP reads it from other lanes | 2 |
//! | reciprocal or root writes a vector register | other vector operation reads it | 1 |
//! | SDWA writes part of a vector register | vector operation reads it | 1 |
//! | store of 12 or 16 bytes | vector operation overwrites its data | 2 |

use crate::gfx942::code::compare;
use crate::gfx942::code::inst::{Coding, Inst, Part, Src, VCC};
use crate::gfx942::code::op::{Form, Op, Ty};
use crate::gfx942::code::text;

/// Longer ago than any hazard lasts.
const START: u64 = 16;

/// The times, in wait states, at which registers were written.
pub(super) struct Hazards {
    now: u64,
    scalar: [u64; 128],
    /// The latest of them, which usually decides quickly.
    latest_scalar: u64,
    exec: u64,
    vector: [u64; 256],
    /// The latest reciprocal or root, partial write, and wide store: first register, number of registers,
    /// time.
    rough: (u8, u8, u64),
    partial: (u8, u8, u64),
    store: (u8, u8, u64),
}

fn overlap(a: u8, a_width: u8, b: u8, b_width: u8) -> bool {
    u16::from(a) < u16::from(b) + u16::from(b_width) && u16::from(b) < u16::from(a) + u16::from(a_width)
}

fn is_rough(op: Op) -> bool {
    matches!(op, Op::VRcpF32 | Op::VRcpF64 | Op::VRsqF32 | Op::VRsqF64 | Op::VSqrtF32 | Op::VSqrtF64)
}

impl Hazards {
    pub(super) fn new() -> Hazards {
        let mut new = Hazards {
            now: START,
            scalar: [0; 128],
            latest_scalar: 0,
            exec: 0,
            vector: [0; 256],
            rough: (0, 0, 0),
            partial: (0, 0, 0),
            store: (0, 0, 0),
        };
        new.clear();
        new
    }

    /// Resets for the next wave.
    pub(super) fn clear(&mut self) {
        // Times only grow, so only recent ones need to be forgotten.
        self.now += START;
    }

    /// Counts an instruction that is not a vector operation.
    #[inline(always)]
    pub(super) fn pass(&mut self, states: u64) {
        self.now += states;
    }

    #[inline(always)]
    fn soon(&self, when: u64, states: u64) -> bool {
        self.now < when + states
    }

    fn scalar_soon(&self, src: Src, width: u8, states: u64) -> Option<String> {
        let (first, width) = match src {
            Src::S(number) => (number, width.max(1)),
            Src::Vccz => (VCC, 2),
            _ => return None,
        };
        let soon = (first..first + width).any(|at| self.soon(self.scalar[usize::from(at & 127)], states));
        soon.then(|| {
            format!(
                "{} was written by a vector operation less than {states} wait states ago",
                text::scalar(first, width)
            )
        })
    }

    /// Returns the hazard that an access to global memory violates.
    #[inline(always)]
    pub(super) fn access(&mut self, i: &Inst) -> Option<String> {
        if self.soon(self.latest_scalar, 5)
            && let Some(why) = self.scalar_soon(i.src[1], 2, 5)
        {
            return Some(why);
        }
        self.now += 1;
        if let (true, Src::V(data)) = (i.stores() && i.words() > 2, i.src[2]) {
            self.store = (data, i.words(), self.now);
        }
        None
    }

    /// Returns the hazard that a vector operation violates, and records the operation.
    #[inline(always)]
    pub(super) fn vector(&mut self, i: &Inst) -> Option<String> {
        let recent = self.soon(self.latest_scalar, 5) || self.soon(self.exec, 5);
        let recent = recent
            || self.soon(self.rough.2, 1)
            || self.soon(self.partial.2, 1)
            || self.soon(self.store.2, 2);
        let crossing =
            i.coding == Coding::Dpp || matches!(i.op, Op::VReadfirstlane | Op::VReadlane | Op::VWritelane);
        if (recent || crossing)
            && let Some(why) = self.too_soon(i, crossing)
        {
            return Some(why);
        }
        self.now += 1;
        self.done(i);
        None
    }

    fn too_soon(&self, i: &Inst, crossing: bool) -> Option<String> {
        let spec = i.spec();
        let states_of_lane = if matches!(i.op, Op::VReadlane | Op::VWritelane) { 4 } else { 2 };
        for (at, ty) in spec.src.into_iter().enumerate() {
            let states = match (i.src[at], at) {
                (Src::Vccz | Src::Execz, _) => 5,
                (_, 1) => states_of_lane,
                _ => 2,
            };
            if i.src[at] == Src::Execz && self.soon(self.exec, 5) {
                return Some("EXEC was written by a vector operation less than 5 wait states ago".to_owned());
            }
            if let Some(why) = self.scalar_soon(i.src[at], ty.width(), states) {
                return Some(why);
            }
            if let Src::V(number) = i.src[at]
                && let Some(why) = self.vector_soon(i, number, ty.width(), crossing && at == 0)
            {
                return Some(why);
            }
        }
        if matches!(i.op, Op::VDivFmasF32 | Op::VDivFmasF64) && self.scalar_soon(Src::S(VCC), 2, 4).is_some()
        {
            return Some("vcc was written by a vector operation less than 4 wait states ago".to_owned());
        }
        let states = if i.coding == Coding::Dpp { 5 } else { 4 };
        if crossing && self.soon(self.exec, states) {
            return Some(format!(
                "EXEC was written by a vector operation less than {states} wait states ago"
            ));
        }
        let width = spec.dst.width();
        if matches!(i.op, Op::VFmacF32 | Op::VFmacF64)
            && let Some(why) = self.vector_soon(i, i.dst, width, false)
        {
            return Some(why);
        }
        let (first, count, when) = self.store;
        let overwrites = !i.scalar_dst() && width > 0 && overlap(i.dst, width, first, count);
        (overwrites && self.soon(when, 2)).then(|| {
            format!("{} is the data of a store less than 2 wait states ago", text::vector(i.dst, width))
        })
    }

    fn vector_soon(&self, i: &Inst, number: u8, width: u8, crossing: bool) -> Option<String> {
        let hit =
            |(first, count, when): (u8, u8, u64)| overlap(number, width, first, count) && self.soon(when, 1);
        let name = || text::vector(number, width);
        if hit(self.rough) && !is_rough(i.op) {
            return Some(format!("{} was written by a reciprocal or root just before", name()));
        }
        if hit(self.partial) {
            return Some(format!("a part of {} was written just before", name()));
        }
        (crossing && self.soon(self.vector[usize::from(number)], 1))
            .then(|| format!("{} was written just before", name()))
    }

    #[inline(always)]
    fn done(&mut self, i: &Inst) {
        let now = self.now;
        let mut scalar = |number: u8, width: u8| {
            for at in number..number + width {
                self.scalar[usize::from(at & 127)] = now;
            }
            self.latest_scalar = now;
        };
        if i.form == Form::Vopc {
            scalar(i.dst, 2);
            if compare::kind(i.more).is_some_and(|(_, exec)| exec) {
                self.exec = now;
            }
            return;
        }
        if i.has_sdst() {
            scalar(i.sdst, 2);
        }
        if i.scalar_dst() {
            scalar(i.dst, 1);
            return;
        }
        let width = i.width();
        for at in 0..width {
            self.vector[usize::from(i.dst.wrapping_add(at))] = now;
        }
        if is_rough(i.op) {
            self.rough = (i.dst, width, now);
        }
        if i.coding == Coding::Sdwa && i.sdwa.dst != Part::All {
            self.partial = (i.dst, width, now);
        }
    }
}

impl Inst {
    /// Returns the number of registers that a vector operation writes.
    #[inline(always)]
    fn width(&self) -> u8 {
        match self.spec().dst {
            Ty::N => 0,
            ty => ty.width(),
        }
    }
}
