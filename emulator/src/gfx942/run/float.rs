//! Vector operations on binary32 and binary64.

use super::divide;
use super::number::{self, is_nan32, is_nan64};
use super::operands::Wide;
use super::registers::{Lanes, Registers};
use super::stop::{Done, stop};
use crate::fault::FaultKind;
use crate::gfx942::code::inst::{Inst, Src, VCC};
use crate::gfx942::code::op::Op;

fn f32_of(x: u32) -> f32 {
    f32::from_bits(x)
}

fn f64_of(x: u64) -> f64 {
    f64::from_bits(x)
}

/// Clamps a result to 0 … 1; `None` for a NaN that stays as it is.
#[inline(always)]
fn clamped(value: f64, nan_is_zero: bool) -> Option<f64> {
    match value {
        nan if nan.is_nan() => nan_is_zero.then_some(0.0),
        // -0 and negative numbers.
        value if value <= 0.0 => Some(0.0),
        value => Some(value.min(1.0)),
    }
}

impl Registers {
    /// Returns 32-bit sources; a missing third one is the destination of a `v_fmac`.
    #[inline(always)]
    fn three32<'b>(&'b self, i: &Inst, buffers: &'b mut [Lanes; 3], count: usize) -> Done<[&'b Lanes; 3]> {
        let [first, second, third] = buffers;
        let a = self.read32(i, 0, first)?;
        let b = if count > 1 { self.read32(i, 1, second)? } else { a };
        let c = match count {
            3 if i.src[2] == Src::None => {
                self.have(i.dst, 1, self.exec)?;
                &self.v[usize::from(i.dst)]
            }
            3 => self.read32(i, 2, third)?,
            _ => a,
        };
        Ok([a, b, c])
    }

    #[inline(always)]
    fn three64(&self, i: &Inst, out: &mut [Wide; 3], count: usize) -> Done {
        let [a, b, c] = out;
        self.read64(i, 0, a)?;
        if count > 1 {
            self.read64(i, 1, b)?;
        }
        if count > 2 {
            if i.src[2] == Src::None {
                let own = Inst { src: [Src::V(i.dst); 3], neg: 0, abs: 0, ..*i };
                self.read64(&own, 0, c)?;
            } else {
                self.read64(i, 2, c)?;
            }
        }
        Ok(())
    }

    /// Runs an operation that rounds. Its NaN is not left to the host.
    #[inline(always)]
    fn single(&mut self, i: &Inst, count: usize, f: impl Fn(f32, f32, f32) -> f32) -> Done {
        let mut buffers = [[0; 64]; 3];
        let [a, b, c] = self.three32(i, &mut buffers, count)?;
        let (mut out, mut nan): (Lanes, bool) = ([0; 64], false);
        for lane in 0..64 {
            out[lane] = f(f32_of(a[lane]), f32_of(b[lane]), f32_of(c[lane])).to_bits();
            nan |= is_nan32(out[lane]);
        }
        if nan {
            for lane in 0..64 {
                if is_nan32(out[lane]) {
                    out[lane] = self.approximation.nan32(&[a[lane], b[lane], c[lane]][..count]);
                }
            }
        }
        self.finish32(i, out)
    }

    #[inline(always)]
    fn double(&mut self, i: &Inst, count: usize, f: impl Fn(f64, f64, f64) -> f64) -> Done {
        let mut buffers = [[0; 64]; 3];
        self.three64(i, &mut buffers, count)?;
        let [a, b, c] = &buffers;
        let (mut out, mut nan): (Wide, bool) = ([0; 64], false);
        for lane in 0..64 {
            out[lane] = f(f64_of(a[lane]), f64_of(b[lane]), f64_of(c[lane])).to_bits();
            nan |= is_nan64(out[lane]);
        }
        if nan {
            for lane in 0..64 {
                if is_nan64(out[lane]) {
                    out[lane] = self.approximation.nan64(&[a[lane], b[lane], c[lane]][..count]);
                }
            }
        }
        self.finish64(i, out)
    }

    /// Runs an operation on binary32 bits, which chooses its own NaN.
    #[inline(always)]
    fn bits32(&mut self, i: &Inst, count: usize, f: impl Fn(u32, u32, u32) -> u32) -> Done {
        let mut buffers = [[0; 64]; 3];
        let [a, b, c] = self.three32(i, &mut buffers, count)?;
        let mut out: Lanes = [0; 64];
        for lane in 0..64 {
            out[lane] = f(a[lane], b[lane], c[lane]);
        }
        self.finish32(i, out)
    }

    #[inline(always)]
    fn bits64(&mut self, i: &Inst, count: usize, f: impl Fn(u64, u64, u64) -> u64) -> Done {
        let mut buffers = [[0; 64]; 3];
        self.three64(i, &mut buffers, count)?;
        let [a, b, c] = &buffers;
        let mut out: Wide = [0; 64];
        for lane in 0..64 {
            out[lane] = f(a[lane], b[lane], c[lane]);
        }
        self.finish64(i, out)
    }

    /// Runs a conversion from 32 bits to 64.
    #[inline(always)]
    fn widen(&mut self, i: &Inst, f: impl Fn(u32) -> u64) -> Done {
        let mut buffer = [0; 64];
        let a = self.read32(i, 0, &mut buffer)?;
        let mut out: Wide = [0; 64];
        for lane in 0..64 {
            out[lane] = f(a[lane]);
        }
        self.finish64(i, out)
    }

    /// Runs a conversion from 64 bits to 32.
    #[inline(always)]
    fn narrow(&mut self, i: &Inst, f: impl Fn(u64) -> u32) -> Done {
        let mut a: Wide = [0; 64];
        self.read64(i, 0, &mut a)?;
        let mut out: Lanes = [0; 64];
        for lane in 0..64 {
            out[lane] = f(a[lane]);
        }
        self.finish32(i, out)
    }

    #[inline(always)]
    fn finish32(&mut self, i: &Inst, mut out: Lanes) -> Done {
        if i.clamp {
            for x in &mut out {
                // Exact both ways: binary64 holds every binary32.
                if let Some(value) = clamped(f32_of(*x).into(), self.dx10_clamp) {
                    *x = (value as f32).to_bits();
                }
            }
        }
        self.put32(i, &out)
    }

    #[inline(always)]
    fn finish64(&mut self, i: &Inst, mut out: Wide) -> Done {
        if i.clamp {
            for x in &mut out {
                if let Some(value) = clamped(f64_of(*x), self.dx10_clamp) {
                    *x = value.to_bits();
                }
            }
        }
        self.put64(i, &out)
    }

    fn div_scale(&mut self, i: &Inst) -> Done {
        let mut mask = 0u64;
        if i.op == Op::VDivScaleF32 {
            let mut buffers = [[0; 64]; 3];
            let [a, b, c] = self.three32(i, &mut buffers, 3)?;
            let mut out: Lanes = [0; 64];
            for lane in 0..64 {
                let (value, later) = divide::scale32(a[lane], b[lane], c[lane]);
                out[lane] = value;
                mask |= u64::from(later) << lane;
            }
            self.finish32(i, out)?;
        } else {
            let mut buffers = [[0; 64]; 3];
            self.three64(i, &mut buffers, 3)?;
            let mut out: Wide = [0; 64];
            for lane in 0..64 {
                let (value, later) = divide::scale64(buffers[0][lane], buffers[1][lane], buffers[2][lane]);
                out[lane] = value;
                mask |= u64::from(later) << lane;
            }
            self.finish64(i, out)?;
        }
        let exec = self.exec;
        self.set64(i.sdst, mask & exec)
    }

    fn div_fmas(&mut self, i: &Inst) -> Done {
        let scaled = self.mask(VCC)?;
        let at = |lane: usize| scaled >> lane & 1 == 1;
        if i.op == Op::VDivFmasF32 {
            let mut buffers = [[0; 64]; 3];
            let [a, b, c] = self.three32(i, &mut buffers, 3)?;
            let mut out: Lanes = [0; 64];
            for lane in 0..64 {
                out[lane] =
                    divide::fmas32(f32_of(a[lane]), f32_of(b[lane]), f32_of(c[lane]), at(lane)).to_bits();
                if is_nan32(out[lane]) {
                    out[lane] = self.approximation.nan32(&[a[lane], b[lane], c[lane]]);
                }
            }
            return self.finish32(i, out);
        }
        let mut buffers = [[0; 64]; 3];
        self.three64(i, &mut buffers, 3)?;
        let [a, b, c] = &buffers;
        let mut out: Wide = [0; 64];
        for lane in 0..64 {
            out[lane] = divide::fmas64(f64_of(a[lane]), f64_of(b[lane]), f64_of(c[lane]), at(lane)).to_bits();
            if is_nan64(out[lane]) {
                out[lane] = self.approximation.nan64(&[a[lane], b[lane], c[lane]]);
            }
        }
        self.finish64(i, out)
    }

    fn ldexp_wide(&mut self, i: &Inst) -> Done {
        let mut buffer = [0; 64];
        let by = self.read32(i, 1, &mut buffer)?;
        let (mut x, mut out): (Wide, Wide) = ([0; 64], [0; 64]);
        self.read64(i, 0, &mut x)?;
        for lane in 0..64 {
            out[lane] = number::ldexp64(f64_of(x[lane]), by[lane].cast_signed()).to_bits();
            if is_nan64(x[lane]) {
                out[lane] = self.approximation.nan64(&[x[lane]]);
            }
        }
        self.finish64(i, out)
    }

    #[allow(clippy::too_many_lines)] // One match over one table.
    pub(super) fn float(&mut self, i: &Inst) -> Done {
        use Op::*;
        let ieee = self.ieee;
        let near = self.approximation;
        match i.op {
            VAddF32 => self.single(i, 2, |a, b, _| a + b),
            VSubF32 => self.single(i, 2, |a, b, _| a - b),
            VSubrevF32 => self.single(i, 2, |a, b, _| b - a),
            VMulF32 => self.single(i, 2, |a, b, _| a * b),
            VFmaF32 | VFmacF32 | VFmaak | VFmamk => self.single(i, 3, f32::mul_add),
            VAddF64 => self.double(i, 2, |a, b, _| a + b),
            VMulF64 => self.double(i, 2, |a, b, _| a * b),
            VFmaF64 | VFmacF64 => self.double(i, 3, f64::mul_add),
            VMinF32 => self.bits32(i, 2, |a, b, _| number::min32(a, b, ieee)),
            VMaxF32 => self.bits32(i, 2, |a, b, _| number::max32(a, b, ieee)),
            VMinF64 => self.bits64(i, 2, |a, b, _| number::min64(a, b, ieee)),
            VMaxF64 => self.bits64(i, 2, |a, b, _| number::max64(a, b, ieee)),
            VMin3F32 => self.bits32(i, 3, |a, b, c| number::min32(number::min32(a, b, ieee), c, ieee)),
            VMax3F32 => self.bits32(i, 3, |a, b, c| number::max32(number::max32(a, b, ieee), c, ieee)),
            VMed3F32 => self.bits32(i, 3, |a, b, c| median(a, b, c, ieee)),
            VLdexpF64 => self.ldexp_wide(i),
            VLdexpF32 => self.single(i, 2, |a, by, _| number::ldexp32(a, by.to_bits().cast_signed())),
            VRcpF32 => self.single(i, 1, |a, _, _| near.near32(1.0 / a, a.to_bits(), 1)),
            VRcpF64 => self.double(i, 1, |a, _, _| near.near64(1.0 / a, a.to_bits(), 1 << 29)),
            VRsqF32 => {
                self.single(i, 1, |a, _, _| near.near32((1.0 / f64::from(a).sqrt()) as f32, a.to_bits(), 1))
            }
            VRsqF64 => self.double(i, 1, |a, _, _| near.near64(1.0 / a.sqrt(), a.to_bits(), 1 << 29)),
            VSqrtF32 => self.single(i, 1, |a, _, _| near.near32(a.sqrt(), a.to_bits(), 1)),
            VSqrtF64 => self.double(i, 1, |a, _, _| near.near64(a.sqrt(), a.to_bits(), 1 << 29)),
            VTruncF32 => self.single(i, 1, |a, _, _| a.trunc()),
            VCeilF32 => self.single(i, 1, |a, _, _| a.ceil()),
            VFloorF32 => self.single(i, 1, |a, _, _| a.floor()),
            VRndneF32 => self.single(i, 1, |a, _, _| a.round_ties_even()),
            VTruncF64 => self.double(i, 1, |a, _, _| a.trunc()),
            VCeilF64 => self.double(i, 1, |a, _, _| a.ceil()),
            VFloorF64 => self.double(i, 1, |a, _, _| a.floor()),
            VRndneF64 => self.double(i, 1, |a, _, _| a.round_ties_even()),
            VDivScaleF32 | VDivScaleF64 => self.div_scale(i),
            VDivFmasF32 | VDivFmasF64 => self.div_fmas(i),
            VDivFixupF32 => self.bits32(i, 3, divide::fixup32),
            VDivFixupF64 => self.bits64(i, 3, divide::fixup64),
            VCvtF64F32 => {
                self.widen(
                    i,
                    |a| if is_nan32(a) { number::widen_nan(a) } else { f64::from(f32_of(a)).to_bits() },
                )
            }
            VCvtF32F64 => {
                self.narrow(
                    i,
                    |a| if is_nan64(a) { number::narrow_nan(a) } else { (f64_of(a) as f32).to_bits() },
                )
            }
            VCvtF64I32 => self.widen(i, |a| f64::from(a.cast_signed()).to_bits()),
            VCvtF64U32 => self.widen(i, |a| f64::from(a).to_bits()),
            VCvtF32I32 => self.bits32(i, 1, |a, _, _| (a.cast_signed() as f32).to_bits()),
            VCvtF32U32 => self.bits32(i, 1, |a, _, _| (a as f32).to_bits()),
            VCvtF32Ubyte0 => self.bits32(i, 1, |a, _, _| f32::from(a as u8).to_bits()),
            VCvtF32Ubyte1 => self.bits32(i, 1, |a, _, _| f32::from((a >> 8) as u8).to_bits()),
            VCvtF32Ubyte2 => self.bits32(i, 1, |a, _, _| f32::from((a >> 16) as u8).to_bits()),
            VCvtF32Ubyte3 => self.bits32(i, 1, |a, _, _| f32::from((a >> 24) as u8).to_bits()),
            // Towards zero, out-of-range values to the limit, NaN to 0: like Rust's `as`.
            VCvtU32F32 => self.unary(i, |a| f32_of(a) as u32),
            VCvtI32F32 => self.unary(i, |a| (f32_of(a) as i32).cast_unsigned()),
            VCvtU32F64 => self.narrow_integer(i, |a| f64_of(a) as u32),
            VCvtI32F64 => self.narrow_integer(i, |a| (f64_of(a) as i32).cast_unsigned()),
            VFrexpMantF32 => self.single(i, 1, |a, _, _| number::frexp(f64::from(a)).0 as f32),
            VFrexpExpF32 => self.unary(i, |a| number::frexp(f64::from(f32_of(a))).1.cast_unsigned()),
            VFrexpMantF64 => self.double(i, 1, |a, _, _| number::frexp(a).0),
            VFrexpExpF64 => self.narrow_integer(i, |a| number::frexp(f64_of(a)).1.cast_unsigned()),
            _ => stop(FaultKind::Unimplemented(i.to_string())),
        }
    }

    #[inline(always)]
    fn narrow_integer(&mut self, i: &Inst, f: impl Fn(u64) -> u32) -> Done {
        let mut a: Wide = [0; 64];
        self.read64(i, 0, &mut a)?;
        let mut out: Lanes = [0; 64];
        for lane in 0..64 {
            out[lane] = f(a[lane]);
        }
        self.put32(i, &out)
    }
}

/// Returns the median; with a NaN among them, the smallest.
fn median(a: u32, b: u32, c: u32, ieee: bool) -> u32 {
    let (min, max) = (number::min32, number::max32);
    if is_nan32(a) || is_nan32(b) || is_nan32(c) {
        return min(min(a, b, ieee), c, ieee);
    }
    max(min(a, b, ieee), min(max(a, b, ieee), c, ieee), ieee)
}
