//! Operands and results of vector operations, all lanes at once.

use super::registers::{Lanes, Registers};
use super::stop::Done;
use crate::gfx942::code::inst::{Coding, Inst, Part, Src};

/// 64 bits per lane.
pub(super) type Wide = [u64; 64];

fn part(x: u32, part: Part, sext: bool) -> u32 {
    match (part, sext) {
        (Part::Byte(n), false) => x >> (8 * n) & 0xff,
        (Part::Byte(n), true) => i32::from((x >> (8 * n)) as i8).cast_unsigned(),
        (Part::Word(n), false) => x >> (16 * n) & 0xffff,
        (Part::Word(n), true) => i32::from((x >> (16 * n)) as i16).cast_unsigned(),
        (Part::All, _) => x,
    }
}

impl Registers {
    /// Returns 32-bit source `at`, with its modifiers applied. It is not copied if there are none.
    #[inline(always)]
    pub(super) fn read32<'b>(&'b self, i: &Inst, at: usize, buffer: &'b mut Lanes) -> Done<&'b Lanes> {
        match i.src[at] {
            // `across` has checked.
            Src::V(_) if at == 0 && i.coding == Coding::Dpp => {}
            Src::V(number) => self.have(number, 1, self.exec)?,
            Src::S(number) => {
                self.s32(number)?;
            }
            _ => {}
        }
        self.unchecked32(i, at, buffer)
    }

    /// Like `read32`, if the caller handles lanes without a value.
    #[inline(always)]
    pub(super) fn unchecked32<'b>(&'b self, i: &Inst, at: usize, buffer: &'b mut Lanes) -> Done<&'b Lanes> {
        let signs = (i.neg | i.abs) >> at & 1 == 1;
        let own = i.coding != Coding::Sdwa && (i.coding != Coding::Dpp || at > 0);
        if let (Src::V(number), false, true) = (i.src[at], signs, own) {
            return Ok(&self.v[usize::from(number)]);
        }
        match i.src[at] {
            Src::V(_) if at == 0 && i.coding == Coding::Dpp => *buffer = self.crossed,
            Src::V(number) => *buffer = self.v[usize::from(number)],
            Src::S(number) => buffer.fill(self.known32(number)?.0),
            constant => buffer.fill(self.scalar32(constant)?),
        }
        if signs {
            let keep = if i.abs >> at & 1 == 1 { 0x7fff_ffff } else { u32::MAX };
            let flip = u32::from(i.neg >> at & 1) << 31;
            for x in buffer.iter_mut() {
                *x = *x & keep ^ flip;
            }
        }
        if i.coding == Coding::Sdwa && at < 2 {
            for x in buffer.iter_mut() {
                *x = part(*x, i.sdwa.src[at], i.sdwa.sext[at]);
            }
        }
        Ok(buffer)
    }

    /// Reads 64-bit source `at`, with its modifiers applied.
    #[inline(always)]
    pub(super) fn read64(&self, i: &Inst, at: usize, out: &mut Wide) -> Done {
        match i.src[at] {
            Src::V(number) => {
                self.have(number, 2, self.exec)?;
                let (low, high) = (&self.v[usize::from(number)], &self.v[usize::from(number) + 1]);
                for lane in 0..64 {
                    out[lane] = u64::from(low[lane]) | u64::from(high[lane]) << 32;
                }
            }
            scalar => out.fill(self.scalar64(scalar)?),
        }
        if (i.neg | i.abs) >> at & 1 == 1 {
            let keep = if i.abs >> at & 1 == 1 { u64::MAX >> 1 } else { u64::MAX };
            let flip = u64::from(i.neg >> at & 1) << 63;
            for x in out {
                *x = *x & keep ^ flip;
            }
        }
        Ok(())
    }

    /// Writes a 32-bit result to the active lanes.
    #[inline(always)]
    pub(super) fn put32(&mut self, i: &Inst, out: &Lanes) -> Done {
        if i.coding == Coding::Sdwa && i.sdwa.dst != Part::All {
            return self.put_part(i, out);
        }
        let exec = self.exec;
        self.wrote(i.dst, 1, exec)?;
        blend(&mut self.v[usize::from(i.dst)], out, exec);
        Ok(())
    }

    /// Writes a 64-bit result to the active lanes.
    #[inline(always)]
    pub(super) fn put64(&mut self, i: &Inst, out: &Wide) -> Done {
        let exec = self.exec;
        self.wrote(i.dst, 2, exec)?;
        let (mut low, mut high) = ([0; 64], [0; 64]);
        for lane in 0..64 {
            low[lane] = out[lane] as u32;
            high[lane] = (out[lane] >> 32) as u32;
        }
        blend(&mut self.v[usize::from(i.dst)], &low, exec);
        blend(&mut self.v[usize::from(i.dst) + 1], &high, exec);
        Ok(())
    }

    /// Writes part of a register: the rest becomes zeros, the sign, or stays.
    #[cold]
    fn put_part(&mut self, i: &Inst, out: &Lanes) -> Done {
        let (shift, mask) = match i.sdwa.dst {
            Part::Byte(n) => (u32::from(n) * 8, 0xffu32),
            Part::Word(n) => (u32::from(n) * 16, 0xffff),
            Part::All => (0, u32::MAX),
        };
        if i.sdwa.unused == 2 {
            self.have(i.dst, 1, self.exec)?;
        }
        let old = self.v[usize::from(i.dst)];
        let mut new = [0; 64];
        for lane in 0..64 {
            let value = out[lane] & mask;
            let rest = match i.sdwa.unused {
                0 => 0,
                // The sign fills the bits above the part; the bits below are zeros.
                1 if value & (mask ^ mask >> 1) != 0 => !(mask << shift | ((1u32 << shift) - 1)),
                1 => 0,
                _ => old[lane] & !(mask << shift),
            };
            new[lane] = value << shift | rest;
        }
        let exec = self.exec;
        self.wrote(i.dst, 1, exec)?;
        blend(&mut self.v[usize::from(i.dst)], &new, exec);
        Ok(())
    }
}

/// Copies the active lanes.
#[inline(always)]
pub(super) fn blend(register: &mut Lanes, out: &Lanes, exec: u64) {
    if exec == u64::MAX {
        *register = *out;
    } else {
        for lane in 0..64 {
            let mask = 0u32.wrapping_sub((exec >> lane & 1) as u32);
            register[lane] = out[lane] & mask | register[lane] & !mask;
        }
    }
}
