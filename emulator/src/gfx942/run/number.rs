//! Arithmetic on binary32 and binary64 as CDNA3 does it in IEEE mode with subnormals preserved: NaN, minimum,
//! scaling, conversion.

/// The values of approximations, and of NaNs that no document specifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approximation {
    /// Correctly rounded; the first NaN operand, quieted, or else the positive NaN without payload.
    #[default]
    Rounded,
    /// Off by anything within the documented error, and any quiet NaN, depending on this seed: a kernel's
    /// results must not depend on it.
    Perturbed(u64),
}

fn hash(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the error of an approximation in units: any number up to the maximum, and in every other case the
/// maximum itself, in either direction.
fn off(hash: u64, units: u64) -> i64 {
    match hash >> 62 {
        0 => units.cast_signed(),
        1 => -units.cast_signed(),
        _ => (hash % (2 * units + 1)).cast_signed() - units.cast_signed(),
    }
}

impl Approximation {
    /// Approximates `exact`, the correctly rounded result of an operation on `of`, with an error of at most
    /// `units` in the last place.
    pub(super) fn near32(self, exact: f32, of: u32, units: u32) -> f32 {
        match self {
            Approximation::Perturbed(seed) if exact.is_normal() => {
                let by = off(hash(seed ^ u64::from(of)), u64::from(units)) as i32;
                let near = f32::from_bits(exact.to_bits().wrapping_add_signed(by));
                if near.is_normal() { near } else { exact }
            }
            // These instructions may flush subnormal results (LLVM: AMDGPUCodeGenPrepare).
            Approximation::Perturbed(seed) if exact.is_subnormal() && hash(seed) & 1 == 1 => {
                0f32.copysign(exact)
            }
            _ => exact,
        }
    }

    /// Like `near32`, in binary64.
    pub(super) fn near64(self, exact: f64, of: u64, units: u64) -> f64 {
        match self {
            Approximation::Perturbed(seed) if exact.is_normal() => {
                let by = off(hash(seed ^ of), units);
                let near = f64::from_bits(exact.to_bits().wrapping_add_signed(by));
                if near.is_normal() { near } else { exact }
            }
            _ => exact,
        }
    }

    /// Returns the NaN of an operation on these operands.
    #[cold]
    pub(super) fn nan32(self, operands: &[u32]) -> u32 {
        let found = operands.iter().copied().find(|x| is_nan32(*x)).map_or(0x7fc0_0000, |x| x | 0x0040_0000);
        match self {
            Approximation::Rounded => found,
            Approximation::Perturbed(seed) => found ^ (hash(seed ^ u64::from(found)) as u32 & 0x803f_ffff),
        }
    }

    /// Like `nan32`, in binary64.
    #[cold]
    pub(super) fn nan64(self, operands: &[u64]) -> u64 {
        let found = operands.iter().copied().find(|x| is_nan64(*x));
        let found = found.map_or(0x7ff8_0000_0000_0000, |x| x | 0x0008_0000_0000_0000);
        match self {
            Approximation::Rounded => found,
            Approximation::Perturbed(seed) => found ^ (hash(seed ^ found) & 0x8007_ffff_ffff_ffff),
        }
    }
}

pub(super) fn is_nan32(x: u32) -> bool {
    x & 0x7fff_ffff > 0x7f80_0000
}

pub(super) fn is_nan64(x: u64) -> bool {
    x & 0x7fff_ffff_ffff_ffff > 0x7ff0_0000_0000_0000
}

macro_rules! extremes {
    ($min:ident, $max:ident, $bits:ty, $float:ty, $is_nan:ident, $quiet:literal) => {
        /// Returns the smaller one. A quiet NaN counts as missing; in IEEE mode a signalling one makes the
        /// result NaN. -0 is below +0.
        #[inline(always)]
        pub(super) fn $min(a: $bits, b: $bits, ieee: bool) -> $bits {
            if $is_nan(a) || $is_nan(b) {
                return extreme_of_nan!(a, b, ieee, $is_nan, $quiet);
            }
            let (x, y) = (<$float>::from_bits(a), <$float>::from_bits(b));
            if x == 0.0 && y == 0.0 {
                a | b
            } else if x < y {
                a
            } else {
                b
            }
        }

        /// Returns the larger one.
        #[inline(always)]
        pub(super) fn $max(a: $bits, b: $bits, ieee: bool) -> $bits {
            if $is_nan(a) || $is_nan(b) {
                return extreme_of_nan!(a, b, ieee, $is_nan, $quiet);
            }
            let (x, y) = (<$float>::from_bits(a), <$float>::from_bits(b));
            if x == 0.0 && y == 0.0 {
                a & b
            } else if x >= y {
                a
            } else {
                b
            }
        }
    };
}

macro_rules! extreme_of_nan {
    ($a:ident, $b:ident, $ieee:ident, $is_nan:ident, $quiet:literal) => {{
        let signalling = |x| $is_nan(x) && x & $quiet == 0;
        match () {
            () if $ieee && signalling($a) => $a | $quiet,
            () if $ieee && signalling($b) => $b | $quiet,
            () if $is_nan($a) => $b,
            () => $a,
        }
    }};
}

extremes!(min32, max32, u32, f32, is_nan32, 0x0040_0000);
extremes!(min64, max64, u64, f64, is_nan64, 0x0008_0000_0000_0000);

/// Returns `x` · 2^`by`, rounded once.
pub(super) fn ldexp64(x: f64, by: i32) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let bits = x.to_bits();
    let (mut mantissa, mut exponent) = (bits & 0x000f_ffff_ffff_ffff, (bits >> 52 & 0x7ff) as i32);
    if exponent == 0 {
        let shift = mantissa.leading_zeros() as i32 - 11;
        mantissa <<= shift;
        exponent = 1 - shift;
    } else {
        mantissa |= 1 << 52;
    }
    exponent += by.clamp(-5000, 5000);
    let sign = bits & 1 << 63;
    if exponent >= 0x7ff {
        return f64::INFINITY.copysign(x);
    }
    if exponent > 0 {
        return f64::from_bits(sign | (exponent as u64) << 52 | mantissa & 0x000f_ffff_ffff_ffff);
    }
    let shift = (1 - exponent).min(60) as u32;
    let (kept, lost, half) = (mantissa >> shift, mantissa & ((1 << shift) - 1), 1 << (shift - 1));
    let up = lost > half || lost == half && kept & 1 == 1;
    f64::from_bits(sign | (kept + u64::from(up)))
}

/// Like `ldexp64`, in binary32: exact in binary64, where 2^±400 covers every binary32, then rounded once.
pub(super) fn ldexp32(x: f32, by: i32) -> f32 {
    ldexp64(f64::from(x), by.clamp(-400, 400)) as f32
}

/// Classes of `v_cmp_class`: signalling and quiet NaN, -∞, negative normal, subnormal and zero, and the
/// positive ones from zero up.
pub(super) fn class(sign: bool, exponent_full: bool, exponent_zero: bool, mantissa: u64, quiet: bool) -> u32 {
    let magnitude = match (exponent_full, exponent_zero, mantissa) {
        (true, _, 0) => 0,
        (true, _, _) => return if quiet { 1 << 1 } else { 1 },
        (_, true, 0) => 3,
        (_, true, _) => 2,
        _ => 1,
    };
    if sign { 1 << (2 + magnitude) } else { 1 << (9 - magnitude) }
}

pub(super) fn class32(x: u32) -> u32 {
    let (exponent, mantissa) = (x >> 23 & 0xff, x & 0x007f_ffff);
    class(x >> 31 == 1, exponent == 0xff, exponent == 0, mantissa.into(), x & 0x0040_0000 != 0)
}

pub(super) fn class64(x: u64) -> u32 {
    let (exponent, mantissa) = (x >> 52 & 0x7ff, x & 0x000f_ffff_ffff_ffff);
    class(x >> 63 == 1, exponent == 0x7ff, exponent == 0, mantissa, x & 0x0008_0000_0000_0000 != 0)
}

/// Converts a binary64 NaN to binary32: sign and the upper bits of the payload.
pub(super) fn narrow_nan(x: u64) -> u32 {
    (x >> 32 & 0x8000_0000) as u32 | 0x7fc0_0000 | (x >> 29 & 0x003f_ffff) as u32
}

/// Converts a binary32 NaN to binary64.
pub(super) fn widen_nan(x: u32) -> u64 {
    u64::from(x & 0x8000_0000) << 32 | 0x7ff8_0000_0000_0000 | u64::from(x & 0x003f_ffff) << 29
}

/// Returns a mantissa in [0.5, 1) and the exponent; zero, infinity and NaN themselves with exponent 0.
pub(super) fn frexp(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let normal = if x.is_subnormal() { ldexp64(x, 64) } else { x };
    let exponent = (normal.to_bits() >> 52 & 0x7ff) as i32 - 1022;
    (ldexp64(normal, -exponent), exponent - if x.is_subnormal() { 64 } else { 0 })
}
