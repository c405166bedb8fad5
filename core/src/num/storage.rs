//! Number formats in which a large array may be stored: `f32`, and the two half precisions.
//!
//! A kernel computes in binary32 whatever the format. Reading is exact; writing rounds to nearest, ties to
//! even, so the result is that of `f32` arrays, rounded once at the end.

use core::cell::Cell;

/// A number in bfloat16, as its bits: 8 bits of exponent and 7 of mantissa. Layout as `u16`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// A number in IEEE binary16, as its bits: 5 bits of exponent and 10 of mantissa. Layout as `u16`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

macro_rules! of_bits {
    ($($half:ident)*) => {$(
        #[allow(unsafe_code)]
        impl $half {
            /// Numbers from their bits, as the crate `half` hands them out (`reinterpret_cast`).
            pub const fn of_bits(bits: &[u16]) -> &[Self] {
                // SAFETY: the layout of `u16`, in which every pattern is valid.
                unsafe { core::slice::from_raw_parts(bits.as_ptr().cast(), bits.len()) }
            }

            /// [`of_bits`](Self::of_bits), for writing.
            pub const fn of_bits_mut(bits: &mut [u16]) -> &mut [Self] {
                // SAFETY: as above.
                unsafe { core::slice::from_raw_parts_mut(bits.as_mut_ptr().cast(), bits.len()) }
            }
        }
    )*};
}
of_bits! { Bf16 F16 }

/// A format that a kernel reads and writes as binary32: `f32`, [`Bf16`] or [`F16`].
pub trait Storage: Copy + Default + Send + Sync + 'static + private::Sealed {
    /// The suffix of an op's name in this format: `""`, `"_bf16"` or `"_f16"`.
    const SUFFIX: Suffix;

    /// Whether [`narrow`](Storage::narrow) makes every NaN the canonical one.
    const CANONICAL: bool = true;

    /// The value in binary32, exactly. A NaN may keep its payload.
    fn widen(self) -> f32;

    /// x to nearest, ties to even.
    fn narrow(x: f32) -> Self;

    /// An alarm as [`flag::finite`](crate::ragged::flag::finite), unless x is finite in this format.
    fn finite(x: f32) -> u32;

    /// The values themselves, if they are `f32`.
    #[inline(always)]
    fn numbers(values: &[Self]) -> Option<&[f32]> {
        let _ = values;
        None
    }

    /// The cells themselves, if they hold `f32`.
    #[inline(always)]
    fn cells(cells: &[Cell<Self>]) -> Option<&[Cell<f32>]> {
        let _ = cells;
        None
    }
}

/// Which format an op's name ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suffix {
    /// None: `f32`.
    None,
    /// `_bf16`.
    Bf16,
    /// `_f16`.
    F16,
}

impl Suffix {
    /// The name that an op has in this format, from its names in all three.
    pub const fn of(self, [f32, bf16, f16]: [&'static str; 3]) -> &'static str {
        match self {
            Suffix::None => f32,
            Suffix::Bf16 => bf16,
            Suffix::F16 => f16,
        }
    }
}

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for super::Bf16 {}
    impl Sealed for super::F16 {}
}

/// All bits but the sign.
const MAGNITUDE: u32 = 0x7fff_ffff;
/// The bits of infinity; those of a NaN are above.
const INFINITY: u32 = 0x7f80_0000;
/// The smallest number that rounds to infinity in bfloat16.
const BEYOND_BF16: u32 = 0x7f7f_8000;
/// 65520, the smallest number that rounds to infinity in binary16.
const BEYOND_F16: u32 = 0x477f_f000;
/// 2⁻¹⁴, the smallest normal number of binary16.
const NORMAL_F16: u32 = 0x3880_0000;
/// 2⁻²⁵, half the smallest number of binary16.
const TINY_F16: u32 = 0x3300_0000;
/// What the biases of the exponents differ by, in place.
const BIAS: u32 = (127 - 15) << 23;

impl Storage for f32 {
    const SUFFIX: Suffix = Suffix::None;
    const CANONICAL: bool = false;

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn finite(x: f32) -> u32 {
        x.to_bits() & MAGNITUDE
    }

    #[inline(always)]
    fn numbers(values: &[f32]) -> Option<&[f32]> {
        Some(values)
    }

    #[inline(always)]
    fn cells(cells: &[Cell<f32>]) -> Option<&[Cell<f32>]> {
        Some(cells)
    }
}

impl Storage for Bf16 {
    const SUFFIX: Suffix = Suffix::Bf16;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    fn narrow(x: f32) -> Bf16 {
        let bits = if x.to_bits() & MAGNITUDE > INFINITY { 0x7fc0_0000 } else { x.to_bits() };
        Bf16((bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }

    #[inline(always)]
    fn finite(x: f32) -> u32 {
        (x.to_bits() & MAGNITUDE) + (INFINITY - BEYOND_BF16)
    }
}

impl Storage for F16 {
    const SUFFIX: Suffix = Suffix::F16;

    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.0);
        let (sign, magnitude) = ((bits & 0x8000) << 16, bits & 0x7fff);
        // Infinity and NaN keep the largest exponent: the bias twice.
        let beyond = if magnitude >= 0x7c00 { BIAS } else { 0 };
        let normal = (magnitude << 13) + BIAS + beyond;
        // A normal number less 2⁻¹⁴, for targets that flush subnormal numbers.
        let subnormal = f32::from_bits(normal + (1 << 23)) - f32::from_bits(NORMAL_F16);
        f32::from_bits(sign | if magnitude < 0x0400 { subnormal.to_bits() } else { normal })
    }

    #[inline(always)]
    fn narrow(x: f32) -> F16 {
        let (sign, magnitude) = ((x.to_bits() >> 16) & 0x8000, x.to_bits() & MAGNITUDE);
        // A multiple of 2⁻²⁴, in integers: LLVM pairs an addition on gfx942. Below 2⁻²⁵ nothing is left.
        let shift = 126u32.wrapping_sub(magnitude >> 23 & 0x7f) & 31;
        let mantissa = if magnitude < TINY_F16 { 0 } else { magnitude & 0x007f_ffff | 0x0080_0000 };
        let subnormal = (mantissa + (((1 << shift) - 1) >> 1) + (mantissa >> shift & 1)) >> shift;
        let normal = magnitude.wrapping_sub(BIAS).wrapping_add(0x0fff + (magnitude >> 13 & 1)) >> 13;
        let finite = if magnitude < NORMAL_F16 { subnormal } else { normal };
        let bits = sign | if magnitude < BEYOND_F16 { finite } else { 0x7c00 };
        F16(if magnitude > INFINITY { 0x7e00 } else { bits } as u16)
    }

    #[inline(always)]
    fn finite(x: f32) -> u32 {
        (x.to_bits() & MAGNITUDE) + (INFINITY - BEYOND_F16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ragged::flag;

    /// The value of a half precision with `exponent` and `mantissa` bits, from the definition of IEEE 754.
    fn value(bits: u16, exponent: u32, mantissa: u32) -> f64 {
        let bits = u32::from(bits);
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let (e, m) = (bits >> mantissa & ((1 << exponent) - 1), bits & ((1 << mantissa) - 1));
        let bias = (1 << (exponent - 1)) - 1;
        let fraction = f64::from(m) / f64::from(1u32 << mantissa);
        let two = |power: i32| f64::from_bits(((1023 + power) as u64) << 52);
        if e == (1 << exponent) - 1 {
            return if m == 0 { sign * f64::INFINITY } else { f64::NAN };
        }
        if e == 0 { sign * fraction * two(1 - bias) } else { sign * (1.0 + fraction) * two(e as i32 - bias) }
    }

    /// Every number of the format, what lies half way to its neighbour, and the numbers next to that.
    fn check<S: Storage>(of: fn(u16) -> S, to: fn(S) -> u16, exponent: u32, mantissa: u32) {
        let infinite = ((1u16 << exponent) - 1) << mantissa;
        for bits in 0..=u16::MAX {
            let (wanted, got) = (value(bits, exponent, mantissa), of(bits).widen());
            if wanted.is_nan() {
                assert!(got.is_nan() && to(S::narrow(got)) == infinite | 1 << (mantissa - 1), "{bits:#x}");
                continue;
            }
            assert_eq!(f64::from(got).to_bits(), wanted.to_bits(), "{bits:#x}");
            assert_eq!(to(S::narrow(got)), bits, "{bits:#x}");
            assert_eq!(S::finite(got) > flag::LIMIT, wanted.is_infinite(), "{bits:#x}");
            if bits & 0x7fff >= infinite {
                continue;
            }
            // Infinity stands for the number that would follow the largest.
            let next = match bits & 0x7fff == infinite - 1 {
                true => 2.0 * wanted - value(bits - 1, exponent, mantissa),
                false => value(bits + 1, exponent, mantissa),
            };
            let half = (wanted + (next - wanted) / 2.0) as f32;
            let even = if bits % 2 == 0 { bits } else { bits + 1 };
            for (x, wanted) in [
                (half, even),
                (f32::from_bits(half.to_bits() - 1), bits),
                (f32::from_bits(half.to_bits() + 1), bits + 1),
            ] {
                assert_eq!(to(S::narrow(x)), wanted, "{x:e} between {bits:#x} and the next");
                assert_eq!(S::finite(x) > flag::LIMIT, wanted & 0x7fff == infinite, "{x:e}");
            }
        }
        for (x, wanted) in [(f32::MAX, infinite), (f32::INFINITY, infinite), (-f32::MAX, infinite | 0x8000)] {
            assert_eq!((to(S::narrow(x)), S::finite(x) > flag::LIMIT), (wanted, true), "{x:e}");
        }
        assert!(S::finite(f32::NAN) > flag::LIMIT && S::finite(-f32::NAN) > flag::LIMIT);
    }

    #[test]
    fn bf16_is_exact_and_rounds_to_even() {
        check(Bf16, |x| x.0, 8, 7);
    }

    #[test]
    fn f16_is_exact_and_rounds_to_even() {
        check(F16, |x| x.0, 5, 10);
    }
}
