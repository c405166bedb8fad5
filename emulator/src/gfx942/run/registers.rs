//! Registers of a wave, and their state: whether they were written, and whether a load into them is pending.

use super::hazards::Hazards;
use super::number::Approximation;
use super::stop::{Done, Stop, stop};
use super::waits::Pending;
use crate::fault::FaultKind;
use crate::gfx942::code::inst::{EXEC, Src, VCC};
use crate::gfx942::code::text;
use std::collections::VecDeque;

/// One word of each lane.
pub(super) type Lanes = [u32; 64];

pub(super) struct Registers {
    pub(super) v: Vec<Lanes>,
    /// Lanes that were written.
    pub(super) written: [u64; 256],
    /// Lanes that were written and have no pending load.
    pub(super) ready: [u64; 256],
    /// Pending loads into a register.
    pub(super) filling: [u8; 256],
    pub(super) s: [u32; 128],
    /// Bits that hold a value, and those of them that no pending load will replace. Tracked by bit, because
    /// LLVM joins masks whose lanes are written on different paths.
    pub(super) s_written: [u32; 128],
    pub(super) s_ready: [u32; 128],
    pub(super) s_filling: [u8; 128],
    pub(super) exec: u64,
    /// The first source of a DPP operation, gathered from the lanes that it reads.
    pub(super) crossed: Lanes,
    scc: Option<bool>,
    pub(super) vm: VecDeque<Pending>,
    pub(super) lgkm: VecDeque<Pending>,
    pub(super) hazards: Hazards,
    pub(super) ieee: bool,
    pub(super) dx10_clamp: bool,
    pub(super) approximation: Approximation,
}

impl Registers {
    pub(super) fn new() -> Registers {
        Registers {
            v: vec![[0; 64]; 256],
            written: [0; 256],
            ready: [0; 256],
            filling: [0; 256],
            s: [0; 128],
            s_written: [0; 128],
            s_ready: [0; 128],
            s_filling: [0; 128],
            exec: 0,
            crossed: [0; 64],
            scc: None,
            vm: VecDeque::new(),
            lgkm: VecDeque::new(),
            hazards: Hazards::new(),
            ieee: true,
            dx10_clamp: true,
            approximation: Approximation::default(),
        }
    }

    /// Resets for the next wave: nothing is written, and every lane of `exec` is active.
    pub(super) fn clear(&mut self, exec: u64) {
        self.written.fill(0);
        self.ready.fill(0);
        self.filling.fill(0);
        self.s_written.fill(0);
        self.s_ready.fill(0);
        self.s_filling.fill(0);
        self.exec = exec;
        self.hazards.clear();
        self.scc = None;
        self.vm.clear();
        self.lgkm.clear();
    }

    #[cold]
    fn unready(&self, number: u8, width: u8, lanes: u64) -> Box<Stop> {
        for at in number..number + width {
            let missing = lanes & !self.ready[usize::from(at)];
            if missing != 0 {
                let never = missing & !self.written[usize::from(at)];
                let name = text::vector(at, 1);
                let kind = if never == 0 {
                    self.no_wait(false, at, name)
                } else {
                    FaultKind::UnwrittenRegister(name)
                };
                let lane = if never == 0 { missing } else { never }.trailing_zeros();
                return Box::new(Stop { kind, lane: Some(lane) });
            }
        }
        Box::new(Stop { kind: FaultKind::UnwrittenRegister(text::vector(number, width)), lane: None })
    }

    /// Checks that lanes of vector registers hold values.
    #[inline(always)]
    pub(super) fn have(&self, number: u8, width: u8, lanes: u64) -> Done {
        let mut missing = lanes & !self.ready[usize::from(number)];
        if width > 1 {
            for at in number..number + width {
                missing |= lanes & !self.ready[usize::from(at)];
            }
        }
        if missing == 0 { Ok(()) } else { Err(self.unready(number, width, lanes)) }
    }

    /// Returns the lanes of vector registers that hold values, if no load into them is pending. Moves and
    /// selections propagate lanes without values: LLVM lets them read what a path not taken would have
    /// written.
    #[inline(always)]
    pub(super) fn holding(&self, number: u8, width: u8) -> Done<u64> {
        let mut lanes = u64::MAX;
        for at in number..number + width {
            if self.filling[usize::from(at)] != 0 && self.exec != 0 {
                return Err(self.unready(at, 1, self.exec));
            }
            lanes &= self.ready[usize::from(at)];
        }
        Ok(lanes)
    }

    /// Marks `lanes` of vector registers as written, but without a value where not `known`.
    #[inline(always)]
    pub(super) fn wrote_known(&mut self, number: u8, width: u8, lanes: u64, known: u64) -> Done {
        self.wrote(number, width, lanes)?;
        if lanes & !known != 0 {
            for at in usize::from(number)..usize::from(number) + usize::from(width) {
                self.written[at] &= !lanes | known;
                self.ready[at] = self.written[at];
            }
        }
        Ok(())
    }

    /// Checks that no pending load will overwrite vector registers that are about to be written, and marks
    /// `lanes` of them as written.
    #[inline(always)]
    pub(super) fn wrote(&mut self, number: u8, width: u8, lanes: u64) -> Done {
        for at in usize::from(number)..usize::from(number) + usize::from(width) {
            if self.filling[at] != 0 {
                return stop(self.no_wait(false, at as u8, text::vector(at as u8, 1)));
            }
            self.written[at] |= lanes;
            self.ready[at] |= lanes;
        }
        Ok(())
    }

    /// Returns a scalar register.
    #[inline(always)]
    pub(super) fn s32(&self, number: u8) -> Done<u32> {
        if number & 126 == EXEC {
            return Ok((self.exec >> (32 * u32::from(number & 1))) as u32);
        }
        if self.s_ready[usize::from(number & 127)] != u32::MAX {
            return stop(self.s_unready(number));
        }
        Ok(self.s[usize::from(number & 127)])
    }

    /// Returns a pair of scalar registers.
    #[inline(always)]
    pub(super) fn s64(&self, number: u8) -> Done<u64> {
        if number == EXEC {
            return Ok(self.exec);
        }
        Ok(u64::from(self.s32(number)?) | u64::from(self.s32(number + 1)?) << 32)
    }

    /// Returns a pair, and which of its bits hold a value. No load into it may be pending.
    #[inline(always)]
    pub(super) fn known64(&self, number: u8) -> Done<(u64, u64)> {
        if number == EXEC {
            return Ok((self.exec, u64::MAX));
        }
        let at = usize::from(number & 126);
        if self.s_filling[at] | self.s_filling[at + 1] != 0 {
            let filling = number + u8::from(self.s_filling[at] == 0);
            return stop(self.s_unready(filling));
        }
        let both = |of: &[u32; 128]| u64::from(of[at]) | u64::from(of[at + 1]) << 32;
        Ok((both(&self.s), both(&self.s_ready)))
    }

    /// Returns a register, and which of its bits hold a value.
    #[inline(always)]
    pub(super) fn known32(&self, number: u8) -> Done<(u32, u32)> {
        if number & 126 == EXEC {
            return self.s32(number).map(|value| (value, u32::MAX));
        }
        let at = usize::from(number & 127);
        if self.s_filling[at] != 0 {
            return stop(self.s_unready(number));
        }
        Ok((self.s[at], self.s_ready[at]))
    }

    /// Returns a pair as a mask: the bits of active lanes must hold a value.
    #[inline(always)]
    pub(super) fn mask(&self, number: u8) -> Done<u64> {
        let (mask, known) = self.known64(number)?;
        if self.exec & !known != 0 {
            let lane = Some((self.exec & !known).trailing_zeros());
            return Err(Box::new(Stop { kind: FaultKind::UnwrittenRegister(text::scalar(number, 2)), lane }));
        }
        Ok(mask)
    }

    /// Returns whether a pair is not 0: a single 1 bit decides, whatever the others are.
    pub(super) fn any(&self, number: u8) -> Done<bool> {
        let (mask, known) = self.known64(number)?;
        if mask & known == 0 && known != u64::MAX {
            return stop(FaultKind::UnwrittenRegister(text::scalar(number, 2)));
        }
        Ok(mask & known != 0)
    }

    #[cold]
    fn s_unready(&self, number: u8) -> FaultKind {
        let name = text::scalar(number, 1);
        if self.s_filling[usize::from(number)] != 0 {
            self.no_wait(true, number, name)
        } else {
            FaultKind::UnwrittenRegister(name)
        }
    }

    /// Writes a scalar register.
    #[inline(always)]
    pub(super) fn set32(&mut self, number: u8, value: u32) -> Done {
        let at = usize::from(number & 127);
        if number & 126 == EXEC {
            let shift = 32 * u32::from(number & 1);
            self.exec = self.exec & !(0xffff_ffff << shift) | u64::from(value) << shift;
            return Ok(());
        }
        if self.s_filling[at] != 0 {
            return stop(self.no_wait(true, number, text::scalar(number, 1)));
        }
        self.s[at] = value;
        self.s_written[at] = u32::MAX;
        self.s_ready[at] = u32::MAX;
        Ok(())
    }

    /// Writes a register or a pair, some of whose bits hold no value.
    pub(super) fn set_known(&mut self, number: u8, width: u8, value: u64, known: u64) -> Done {
        let bits = if width == 2 { known } else { known | 0xffff_ffff << 32 };
        if number & 126 == EXEC && bits != u64::MAX {
            return stop(FaultKind::UnwrittenRegister("what is written to exec".into()));
        }
        for at in 0..width {
            let shift = 32 * u32::from(at);
            self.set32(number + at, (value >> shift) as u32)?;
            if number & 126 != EXEC {
                let place = usize::from((number + at) & 127);
                self.s_written[place] = (known >> shift) as u32;
                self.s_ready[place] = self.s_written[place];
            }
        }
        Ok(())
    }

    /// Writes a pair of scalar registers.
    #[inline(always)]
    pub(super) fn set64(&mut self, number: u8, value: u64) -> Done {
        if number == EXEC {
            self.exec = value;
            return Ok(());
        }
        self.set32(number, value as u32)?;
        self.set32(number + 1, (value >> 32) as u32)
    }

    pub(super) fn scc(&self) -> Done<bool> {
        self.scc.map_or_else(|| stop(FaultKind::UnwrittenRegister("scc".into())), Ok)
    }

    #[inline(always)]
    pub(super) fn set_scc(&mut self, value: bool) {
        self.scc = Some(value);
    }

    /// Sets SCC for a result some of whose bits hold no value; `None` if it is undetermined.
    pub(super) fn set_scc_known(&mut self, value: Option<bool>) {
        self.scc = value;
    }

    /// Returns a scalar source.
    #[inline(always)]
    pub(super) fn scalar32(&self, src: Src) -> Done<u32> {
        match src {
            Src::S(number) => self.s32(number),
            Src::Const(value) => Ok(value as u32),
            Src::Vccz => Ok(u32::from(!self.any(VCC)?)),
            Src::Execz => Ok(u32::from(self.exec == 0)),
            Src::Scc => self.scc().map(u32::from),
            Src::V(_) | Src::None => {
                stop(FaultKind::Unimplemented("a vector register as a scalar operand".into()))
            }
        }
    }

    /// Returns a 64-bit scalar source.
    #[inline(always)]
    pub(super) fn scalar64(&self, src: Src) -> Done<u64> {
        match src {
            Src::S(number) => self.s64(number),
            Src::Const(value) => Ok(value),
            _ => stop(FaultKind::Unimplemented(
                "an operand of 64 bits that is neither a register nor a constant".into(),
            )),
        }
    }
}
