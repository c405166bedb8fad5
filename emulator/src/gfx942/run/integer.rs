//! Vector operations on integers and bits.

use super::operands::{Wide, blend};
use super::registers::{Lanes, Registers};
use super::stop::{Done, stop};
use crate::fault::FaultKind;
use crate::gfx942::code::inst::{Coding, Inst, Src};
use crate::gfx942::code::op::Op;

impl Registers {
    /// Runs an operation on one 32-bit source. The result is not clamped.
    #[inline(always)]
    pub(super) fn unary(&mut self, i: &Inst, f: impl Fn(u32) -> u32) -> Done {
        let mut buffer = [0; 64];
        let a = self.read32(i, 0, &mut buffer)?;
        let mut out: Lanes = [0; 64];
        for lane in 0..64 {
            out[lane] = f(a[lane]);
        }
        self.put32(i, &out)
    }

    #[inline(always)]
    fn binary(&mut self, i: &Inst, f: impl Fn(u32, u32) -> u32) -> Done {
        let mut buffers = [[0; 64]; 2];
        let [first, second] = &mut buffers;
        let (a, b) = (self.read32(i, 0, first)?, self.read32(i, 1, second)?);
        let mut out: Lanes = [0; 64];
        for lane in 0..64 {
            out[lane] = f(a[lane], b[lane]);
        }
        self.put32(i, &out)
    }

    #[inline(always)]
    fn ternary(&mut self, i: &Inst, f: impl Fn(u32, u32, u32) -> u32) -> Done {
        let mut buffers = [[0; 64]; 3];
        let [first, second, third] = &mut buffers;
        let (a, b, c) = (self.read32(i, 0, first)?, self.read32(i, 1, second)?, self.read32(i, 2, third)?);
        let mut out: Lanes = [0; 64];
        for lane in 0..64 {
            out[lane] = f(a[lane], b[lane], c[lane]);
        }
        self.put32(i, &out)
    }

    /// A 64-bit shift: the count is the first source.
    #[inline(always)]
    fn shift(&mut self, i: &Inst, f: impl Fn(u64, u32) -> u64) -> Done {
        let mut buffer = [0; 64];
        let by = self.read32(i, 0, &mut buffer)?;
        let (mut x, mut out): (Wide, Wide) = ([0; 64], [0; 64]);
        self.read64(i, 1, &mut x)?;
        for lane in 0..64 {
            out[lane] = f(x[lane], by[lane] & 63);
        }
        self.put64(i, &out)
    }

    /// A sum with a carry out and, if the third source is a mask, a carry in.
    #[inline(always)]
    fn carry(&mut self, i: &Inst, f: impl Fn(u32, u32, bool) -> (u32, bool)) -> Done {
        let carries = match i.src[2] {
            Src::S(number) => self.mask(number)?,
            _ => 0,
        };
        let mut buffers = [[0; 64]; 2];
        let [first, second] = &mut buffers;
        let (a, b) = (self.read32(i, 0, first)?, self.read32(i, 1, second)?);
        let (mut out, mut mask) = ([0; 64], 0u64);
        for lane in 0..64 {
            let (value, carry) = f(a[lane], b[lane], carries >> lane & 1 == 1);
            out[lane] = value;
            mask |= u64::from(carry) << lane;
        }
        self.put32(i, &out)?;
        let exec = self.exec;
        self.set64(i.sdst, mask & exec)
    }

    /// A product of two 32-bit numbers plus 64 bits.
    fn multiply_add(&mut self, i: &Inst, f: impl Fn(u32, u32, u64) -> (u64, bool)) -> Done {
        let mut buffers = [[0; 64]; 2];
        let [first, second] = &mut buffers;
        let (a, b) = (self.read32(i, 0, first)?, self.read32(i, 1, second)?);
        let (mut c, mut out, mut mask): (Wide, Wide, u64) = ([0; 64], [0; 64], 0);
        self.read64(i, 2, &mut c)?;
        for lane in 0..64 {
            let (value, carry) = f(a[lane], b[lane], c[lane]);
            out[lane] = value;
            mask |= u64::from(carry) << lane;
        }
        self.put64(i, &out)?;
        let exec = self.exec;
        self.set64(i.sdst, mask & exec)
    }

    /// Returns the lanes of a source that hold a value.
    fn lanes_of(&self, src: Src, width: u8) -> Done<u64> {
        match (src, width) {
            (Src::V(number), _) => self.holding(number, width),
            (Src::S(number), 1) => Ok(if self.known32(number)?.1 == u32::MAX { u64::MAX } else { 0 }),
            (Src::S(number), _) => Ok(if self.known64(number)?.1 == u64::MAX { u64::MAX } else { 0 }),
            _ => Ok(u64::MAX),
        }
    }

    fn cndmask(&mut self, i: &Inst) -> Done {
        let Src::S(number) = i.src[2] else { return stop(FaultKind::Unimplemented(i.to_string())) };
        let mask = self.mask(number)?;
        let known = mask & self.lanes_of(i.src[1], 1)? | !mask & self.lanes_of(i.src[0], 1)?;
        let mut buffers = [[0; 64]; 2];
        let [first, second] = &mut buffers;
        let (a, b) = (self.unchecked32(i, 0, first)?, self.unchecked32(i, 1, second)?);
        let mut out: Lanes = [0; 64];
        for lane in 0..64 {
            let take = 0u32.wrapping_sub((mask >> lane & 1) as u32);
            out[lane] = b[lane] & take | a[lane] & !take;
        }
        let exec = self.exec;
        self.wrote_known(i.dst, 1, exec, known)?;
        blend(&mut self.v[usize::from(i.dst)], &out, exec);
        Ok(())
    }

    /// `v_mov_b32`, `v_mov_b64`: lanes without a value stay without one.
    fn move_words(&mut self, i: &Inst, width: u8) -> Done {
        let parts = matches!(i.coding, Coding::Sdwa | Coding::Dpp);
        let known = if parts { u64::MAX } else { self.lanes_of(i.src[0], width)? };
        let exec = self.exec;
        if exec & !known == 0 {
            if width == 1 {
                return self.unary(i, |a| a);
            }
            let mut x: Wide = [0; 64];
            self.read64(i, 0, &mut x)?;
            return self.put64(i, &x);
        }
        self.wrote_known(i.dst, width, exec, known)?;
        for word in 0..width {
            let mut out = [0; 64];
            match i.src[0] {
                Src::V(number) => out = self.v[usize::from(number + word)],
                Src::S(number) => out.fill(self.known32(number + word)?.0),
                _ => {}
            }
            blend(&mut self.v[usize::from(i.dst + word)], &out, exec);
        }
        Ok(())
    }

    fn shift_add_wide(&mut self, i: &Inst) -> Done {
        let mut buffer = [0; 64];
        let by = self.read32(i, 1, &mut buffer)?;
        let (mut a, mut c): (Wide, Wide) = ([0; 64], [0; 64]);
        self.read64(i, 0, &mut a)?;
        self.read64(i, 2, &mut c)?;
        for lane in 0..64 {
            // The document limits the count to 4 and leaves larger ones open.
            if by[lane] > 4 && self.exec >> lane & 1 == 1 {
                return stop(FaultKind::Unimplemented(format!("v_lshl_add_u64 by {}", by[lane])));
            }
            a[lane] = (a[lane] << (by[lane] & 7)).wrapping_add(c[lane]);
        }
        self.put64(i, &a)
    }

    /// Counts bits of a mask below each lane.
    fn count_below(&mut self, i: &Inst, high: bool) -> Done {
        let mut buffers = [[0; 64]; 2];
        let [first, second] = &mut buffers;
        let (a, b) = (self.read32(i, 0, first)?, self.read32(i, 1, second)?);
        let mut out: Lanes = [0; 64];
        for lane in 0..64u32 {
            let below = (1u64 << lane) - 1;
            let below = if high { (below >> 32) as u32 } else { below as u32 };
            let at = lane as usize;
            out[at] = (a[at] & below).count_ones().wrapping_add(b[at]);
        }
        self.put32(i, &out)
    }

    /// Runs an integer operation; any other continues in [`float`](super::float).
    #[allow(clippy::too_many_lines)] // One match over one table.
    pub(super) fn integer(&mut self, i: &Inst) -> Done {
        use Op::*;
        let signed = |x: u32| x.cast_signed();
        // The low 24 bits, as a signed number.
        let s24 = |x: u32| i64::from((x << 8).cast_signed() >> 8);
        let u24 = |x: u32| u64::from(x & 0x00ff_ffff);
        let half = |x: u32| x & 0xffff;
        let clamp = i.clamp;
        match i.op {
            VNop => Ok(()),
            VMovB32 => self.move_words(i, 1),
            VMovB64 => self.move_words(i, 2),
            VNotB32 => self.unary(i, |a| !a),
            VBfrevB32 => self.unary(i, u32::reverse_bits),
            VFfbhU32 => self.unary(i, |a| if a == 0 { u32::MAX } else { a.leading_zeros() }),
            VFfblB32 => self.unary(i, |a| if a == 0 { u32::MAX } else { a.trailing_zeros() }),
            VFfbhI32 => self.unary(i, |a| {
                let flipped = a ^ (signed(a) >> 31).cast_unsigned();
                if flipped == 0 { u32::MAX } else { flipped.leading_zeros() }
            }),
            VCndmask => self.cndmask(i),
            VMulI24 => self.binary(i, |a, b| (s24(a) * s24(b)) as u32),
            VMulHiI24 => self.binary(i, |a, b| ((s24(a) * s24(b)) >> 32) as u32),
            VMulU24 => self.binary(i, |a, b| (u24(a) * u24(b)) as u32),
            VMulHiU24 => self.binary(i, |a, b| ((u24(a) * u24(b)) >> 32) as u32),
            VMinI32 => self.binary(i, |a, b| signed(a).min(signed(b)).cast_unsigned()),
            VMaxI32 => self.binary(i, |a, b| signed(a).max(signed(b)).cast_unsigned()),
            VMinU32 => self.binary(i, u32::min),
            VMaxU32 => self.binary(i, u32::max),
            VLshrrevB32 => self.binary(i, |a, b| b >> (a & 31)),
            VAshrrevI32 => self.binary(i, |a, b| (signed(b) >> (a & 31)).cast_unsigned()),
            VLshlrevB32 => self.binary(i, |a, b| b << (a & 31)),
            VAndB32 => self.binary(i, |a, b| a & b),
            VOrB32 => self.binary(i, |a, b| a | b),
            VXorB32 => self.binary(i, |a, b| a ^ b),
            VXnorB32 => self.binary(i, |a, b| !(a ^ b)),
            VAddU32 if clamp => self.binary(i, u32::saturating_add),
            VAddU32 | VAddI32 => self.binary(i, u32::wrapping_add),
            VSubU32 if clamp => self.binary(i, u32::saturating_sub),
            VSubU32 | VSubI32 => self.binary(i, u32::wrapping_sub),
            VSubrevU32 if clamp => self.binary(i, |a, b| b.saturating_sub(a)),
            VSubrevU32 => self.binary(i, |a, b| b.wrapping_sub(a)),
            VAddU16 => self.binary(i, |a, b| half(a.wrapping_add(b))),
            VSubU16 => self.binary(i, |a, b| half(a.wrapping_sub(b))),
            VSubrevU16 => self.binary(i, |a, b| half(b.wrapping_sub(a))),
            VMulLoU16 => self.binary(i, |a, b| half(a.wrapping_mul(b))),
            VLshlrevB16 => self.binary(i, |a, b| half(b << (a & 15))),
            VLshrrevB16 => self.binary(i, |a, b| half(b) >> (a & 15)),
            VAshrrevI16 => self.binary(i, |a, b| half(i32::from((b as i16) >> (a & 15)).cast_unsigned())),
            VMaxU16 => self.binary(i, |a, b| half(a).max(half(b))),
            VMinU16 => self.binary(i, |a, b| half(a).min(half(b))),
            VMaxI16 => self.binary(i, |a, b| u32::from((a as i16).max(b as i16).cast_unsigned())),
            VMinI16 => self.binary(i, |a, b| u32::from((a as i16).min(b as i16).cast_unsigned())),
            VAddCo | VAddcCo => self.carry(i, |a, b, c| {
                let sum = u64::from(a) + u64::from(b) + u64::from(c);
                (sum as u32, sum >> 32 != 0)
            }),
            VSubCo | VSubbCo => self.carry(i, borrow),
            VSubrevCo | VSubbrevCo => self.carry(i, |a, b, c| borrow(b, a, c)),
            VMadI24 => self.ternary(i, |a, b, c| ((s24(a) * s24(b)) as u32).wrapping_add(c)),
            VMadU24 => self.ternary(i, |a, b, c| ((u24(a) * u24(b)) as u32).wrapping_add(c)),
            VBfeU32 => self.ternary(i, |a, b, c| {
                let (from, width) = (b & 31, c & 31);
                a >> from & ((1u32 << width) - 1)
            }),
            VBfeI32 => self.ternary(i, |a, b, c| {
                let (from, width) = (b & 31, c & 31);
                if width == 0 {
                    0
                } else {
                    ((i64::from(signed(a)) >> from << (64 - width)) >> (64 - width)) as u32
                }
            }),
            VBfiB32 => self.ternary(i, |a, b, c| a & b | !a & c),
            VAlignbit => self.ternary(i, |a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32),
            VAlignbyte => {
                self.ternary(i, |a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32)
            }
            VMin3I32 => self.ternary(i, |a, b, c| signed(a).min(signed(b)).min(signed(c)).cast_unsigned()),
            VMin3U32 => self.ternary(i, |a, b, c| a.min(b).min(c)),
            VMax3I32 => self.ternary(i, |a, b, c| signed(a).max(signed(b)).max(signed(c)).cast_unsigned()),
            VMax3U32 => self.ternary(i, |a, b, c| a.max(b).max(c)),
            VMed3I32 => self.ternary(i, |a, b, c| {
                let (a, b, c) = (signed(a), signed(b), signed(c));
                a.max(b).min(a.min(b).max(c)).cast_unsigned()
            }),
            VMed3U32 => self.ternary(i, |a, b, c| a.max(b).min(a.min(b).max(c))),
            VMadU64U32 => self.multiply_add(i, |a, b, c| (u64::from(a) * u64::from(b)).overflowing_add(c)),
            VMadI64I32 => self.multiply_add(i, |a, b, c| {
                // The carry is the sign of the whole sum.
                let product = i128::from(signed(a)) * i128::from(signed(b));
                let sum = product + i128::from(c.cast_signed());
                (sum as u64, sum < 0)
            }),
            VPermB32 => self.ternary(i, permute),
            VXadU32 => self.ternary(i, |a, b, c| (a ^ b).wrapping_add(c)),
            VLshlAddU32 => self.ternary(i, |a, b, c| (a << (b & 31)).wrapping_add(c)),
            VAddLshlU32 => self.ternary(i, |a, b, c| a.wrapping_add(b) << (c & 31)),
            VAdd3U32 => self.ternary(i, |a, b, c| a.wrapping_add(b).wrapping_add(c)),
            VLshlOrB32 => self.ternary(i, |a, b, c| a << (b & 31) | c),
            VAndOrB32 => self.ternary(i, |a, b, c| a & b | c),
            VOr3B32 => self.ternary(i, |a, b, c| a | b | c),
            VLshlAddU64 => self.shift_add_wide(i),
            VMulLoU32 => self.binary(i, u32::wrapping_mul),
            VMulHiU32 => self.binary(i, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
            VMulHiI32 => self.binary(i, |a, b| ((i64::from(signed(a)) * i64::from(signed(b))) >> 32) as u32),
            VBcnt => self.binary(i, |a, b| a.count_ones().wrapping_add(b)),
            VMbcntLo => self.count_below(i, false),
            VMbcntHi => self.count_below(i, true),
            VLshlrevB64 => self.shift(i, |x, by| x << by),
            VLshrrevB64 => self.shift(i, |x, by| x >> by),
            VAshrrevI64 => self.shift(i, |x, by| (x.cast_signed() >> by).cast_unsigned()),
            VBfmB32 => self.binary(i, |a, b| ((1u32 << (a & 31)) - 1) << (b & 31)),
            _ => self.float(i),
        }
    }
}

fn borrow(a: u32, b: u32, c: bool) -> (u32, bool) {
    let taken = u64::from(b) + u64::from(c);
    (a.wrapping_sub(b).wrapping_sub(u32::from(c)), u64::from(a) < taken)
}

/// Returns bytes of `a` and `b`, as selected by each byte of `selector`.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(a) << 32 | u64::from(b);
    let mut out = 0;
    for at in 0..4 {
        let byte = match selector >> (8 * at) & 0xff {
            s @ 0..=7 => (bytes >> (8 * s)) as u32 & 0xff,
            // The signs of the four halves.
            s @ 8..=11 => ((bytes >> (16 * (s - 8) + 15)) as u32 & 1) * 0xff,
            12 => 0,
            _ => 0xff,
        };
        out |= byte << (8 * at);
    }
    out
}
