//! Vector comparisons: the result is a mask with zeros for inactive lanes.

use super::number::{class32, class64};
use super::operands::Wide;
use super::registers::Registers;
use super::stop::{Done, stop};
use crate::fault::FaultKind;
use crate::gfx942::code::compare::{Kind, kind};
use crate::gfx942::code::inst::Inst;
use std::cmp::Ordering;

/// Returns the bit of a relation in the lower three bits of an opcode.
#[inline(always)]
fn relation(order: Ordering) -> u32 {
    match order {
        Ordering::Less => 1,
        Ordering::Equal => 2,
        Ordering::Greater => 4,
    }
}

impl Registers {
    #[inline(always)]
    fn mask32(&self, i: &Inst, f: impl Fn(u32, u32) -> bool) -> Done<u64> {
        let mut buffers = [[0; 64]; 2];
        let [first, second] = &mut buffers;
        let (a, b) = (self.read32(i, 0, first)?, self.read32(i, 1, second)?);
        let mut mask = 0;
        for lane in 0..64 {
            mask |= u64::from(f(a[lane], b[lane])) << lane;
        }
        Ok(mask)
    }

    #[inline(always)]
    fn mask64(&self, i: &Inst, f: impl Fn(u64, u64) -> bool) -> Done<u64> {
        let (mut a, mut b): (Wide, Wide) = ([0; 64], [0; 64]);
        self.read64(i, 0, &mut a)?;
        self.read64(i, 1, &mut b)?;
        let mut mask = 0;
        for lane in 0..64 {
            mask |= u64::from(f(a[lane], b[lane])) << lane;
        }
        Ok(mask)
    }

    /// Tests the class of each lane's number against a mask of classes.
    fn classes(&self, i: &Inst, wide: bool) -> Done<u64> {
        let mut buffers = [[0; 64]; 2];
        let [first, second] = &mut buffers;
        let wanted = self.read32(i, 1, second)?;
        let mut mask = 0;
        if wide {
            let mut a: Wide = [0; 64];
            self.read64(i, 0, &mut a)?;
            for lane in 0..64 {
                mask |= u64::from(class64(a[lane]) & wanted[lane] != 0) << lane;
            }
        } else {
            let a = self.read32(i, 0, first)?;
            for lane in 0..64 {
                mask |= u64::from(class32(a[lane]) & wanted[lane] != 0) << lane;
            }
        }
        Ok(mask)
    }

    pub(super) fn compare(&mut self, i: &Inst) -> Done {
        let Some((kind, exec)) = kind(i.more) else { return stop(FaultKind::Unimplemented(i.to_string())) };
        let condition = u32::from(i.more & 7);
        let holds = |order: Ordering| condition & relation(order) != 0;
        // Conditions with bit 3 are the negations of the first eight, in reverse.
        let negated = i.more & 8 != 0;
        let ordered = u32::from(if negated { !i.more } else { i.more } & 7);
        let float = |order: Option<Ordering>| order.is_some_and(|o| ordered & relation(o) != 0) != negated;
        let mask = match kind {
            Kind::ClassF32 => self.classes(i, false)?,
            Kind::ClassF64 => self.classes(i, true)?,
            Kind::F32 => self.mask32(i, |a, b| float(f32::from_bits(a).partial_cmp(&f32::from_bits(b))))?,
            Kind::F64 => self.mask64(i, |a, b| float(f64::from_bits(a).partial_cmp(&f64::from_bits(b))))?,
            Kind::I16 => self.mask32(i, |a, b| holds((a as i16).cmp(&(b as i16))))?,
            Kind::U16 => self.mask32(i, |a, b| holds((a as u16).cmp(&(b as u16))))?,
            Kind::I32 => self.mask32(i, |a, b| holds(a.cast_signed().cmp(&b.cast_signed())))?,
            Kind::U32 => self.mask32(i, |a, b| holds(a.cmp(&b)))?,
            Kind::I64 => self.mask64(i, |a, b| holds(a.cast_signed().cmp(&b.cast_signed())))?,
            Kind::U64 => self.mask64(i, |a, b| holds(a.cmp(&b)))?,
        };
        let mask = mask & self.exec;
        self.set64(i.dst, mask)?;
        if exec {
            self.exec = mask;
        }
        Ok(())
    }
}
