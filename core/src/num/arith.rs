//! The few hardware-dependent operations, chosen by type. Each has one exact result, so the choice affects
//! speed and never bits.

/// Operations that IEEE-754 defines exactly (one rounding) but whose fastest implementation depends on the
/// machine.
///
/// Kernels get an implementation through [`Team::Arith`](crate::team::Team::Arith) and pass it on to the
/// scalar functions: `num::exp::<T::Arith>(x)`. A NaN result may have any payload here;
/// [`num::fma`](crate::num::fma()) and [`num::sqrt`](crate::num::sqrt()) return the canonical NaN.
pub trait Arith: Copy + Send + Sync + 'static {
    /// a·b + c with one rounding, to nearest, ties to even.
    fn fma(a: f32, b: f32, c: f32) -> f32;
    /// √x, correctly rounded.
    fn sqrt(x: f32) -> f32;
    /// √x in binary64, correctly rounded.
    fn sqrt64(x: f64) -> f64;

    /// Whether [`at_least`](Arith::at_least) and [`at_most`](Arith::at_most) are one instruction each.
    const BOUNDS: bool = false;

    /// x, but at least `low`. NaN stays NaN; `low` is not NaN. Of two zeros it may be either.
    #[inline(always)]
    fn at_least(x: f32, low: f32) -> f32 {
        if x < low { low } else { x }
    }

    /// x, but at most `high`, likewise.
    #[inline(always)]
    fn at_most(x: f32, high: f32) -> f32 {
        if x > high { high } else { x }
    }

    /// `yes` if `condition` holds, else `no`: a bound that is chosen before it is used.
    #[inline(always)]
    fn choose(condition: bool, yes: f32, no: f32) -> f32 {
        if condition { yes } else { no }
    }
}

/// Portable operations, without `std` and without a fused instruction: fma through binary64, square roots
/// from `libm`.
///
/// Method of `fma`: the product of two binary32 numbers is exact in binary64. The sum is rounded to odd there
/// (the last bit is set if anything was lost); 53 bits rounded to odd and then rounded to 24 or fewer give
/// the same result as a single rounding. `libm::fmaf` is not used because it branches and touches the
/// floating-point environment.
#[derive(Clone, Copy, Debug)]
pub struct Soft;

impl Arith for Soft {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        let product = f64::from(a) * f64::from(b);
        let addend = f64::from(c);
        let sum = product + addend;
        // Two-sum: `lost` is exactly the rounding error of `sum`; NaN if `sum` is not finite.
        let part = sum - product;
        let lost = (product - (sum - part)) + (addend - part);
        // Truncates the exact sum towards zero and sets its last bit: first one unit less in magnitude if
        // `lost` points towards zero.
        let down = (lost.to_bits() ^ sum.to_bits()) >> 63;
        let odd = sum.to_bits().wrapping_sub(down) | 1;
        f64::from_bits(if lost.abs() > 0.0 { odd } else { sum.to_bits() }) as f32
    }

    #[inline(always)]
    fn sqrt(x: f32) -> f32 {
        libm::sqrtf(x)
    }

    #[inline(always)]
    fn sqrt64(x: f64) -> f64 {
        libm::sqrt(x)
    }
}

/// The machine's instructions through `std`: in code compiled for FMA, one instruction each. GPUs always use
/// it.
///
/// Without FMA, `f32::mul_add` is a library call: correct, but slow.
#[cfg(any(feature = "std", target_arch = "nvptx64", target_arch = "amdgpu"))]
#[derive(Clone, Copy, Debug)]
pub struct Hard;

/// A GPU build has no `std`, and stable Rust offers no other way to these instructions (feature
/// `core_float_math`; the GPU build uses a compiler that has it).
#[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
impl Arith for Hard {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        core::f32::math::mul_add(a, b, c)
    }

    #[inline(always)]
    fn sqrt(x: f32) -> f32 {
        // AMD's binary32 instruction is approximate. A 53-bit root rounded to 24 bits is correctly rounded.
        #[cfg(target_arch = "amdgpu")]
        let root = Self::sqrt64(f64::from(x)) as f32;
        #[cfg(target_arch = "nvptx64")]
        let root = core::f32::math::sqrt(x);
        root
    }

    #[inline(always)]
    fn sqrt64(x: f64) -> f64 {
        let root = core::f64::math::sqrt(x);
        #[cfg(target_arch = "amdgpu")]
        let root = super::settle::root(x, root);
        root
    }
}

#[cfg(feature = "std")]
impl Arith for Hard {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn sqrt(x: f32) -> f32 {
        x.sqrt()
    }

    #[inline(always)]
    fn sqrt64(x: f64) -> f64 {
        x.sqrt()
    }
}
