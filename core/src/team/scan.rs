//! The fixed order of an inclusive scan.
//!
//! ```text
//! carry = identity
//! for each block of 32 elements, in order from the row's first element (prefix) or last (suffix):
//!     for s in 1, 2, 4, 8, 16: x[l] = join(x[l-s], x[l]) for l >= s      (all lanes at once)
//!     y[l]  = join(carry, x[l])
//!     carry = y[31]
//! ```
//!
//! A short last block is padded with the identity; nothing is read for the padding.

use super::fold::LANES;
use crate::num;

/// An operation that is associative in exact arithmetic; in floating point the scheme above fixes the order.
pub trait Semigroup: Copy {
    /// Type of the elements.
    type Value: Copy;
    /// The neutral element.
    fn identity(self) -> Self::Value;
    /// Applies `f` to each 32-bit word of the value; this is how a value moves between the lanes of a GPU.
    fn map_words(self, value: Self::Value, f: impl FnMut(u32) -> u32) -> Self::Value;
    /// Combines two values; `earlier` precedes `later` in the direction of the scan.
    fn join(self, earlier: Self::Value, later: Self::Value) -> Self::Value;
}

/// Applies `f` to both words of a binary64 number.
#[inline(always)]
pub fn map_f64(value: f64, mut f: impl FnMut(u32) -> u32) -> f64 {
    let bits = value.to_bits();
    let (low, high) = (f(bits as u32), f((bits >> 32) as u32));
    f64::from_bits(u64::from(high) << 32 | u64::from(low))
}

/// Running sums in binary64.
#[derive(Clone, Copy, Debug)]
pub struct AddF64;

impl Semigroup for AddF64 {
    type Value = f64;
    #[inline(always)]
    fn identity(self) -> f64 {
        0.0
    }
    #[inline(always)]
    fn map_words(self, value: f64, f: impl FnMut(u32) -> u32) -> f64 {
        map_f64(value, f)
    }
    #[inline(always)]
    fn join(self, earlier: f64, later: f64) -> f64 {
        earlier + later
    }
}

/// Running minima in binary32: exact, so the order changes no bit.
#[derive(Clone, Copy, Debug)]
pub struct MinF32;

impl Semigroup for MinF32 {
    type Value = f32;
    #[inline(always)]
    fn identity(self) -> f32 {
        f32::INFINITY
    }
    #[inline(always)]
    fn map_words(self, value: f32, mut f: impl FnMut(u32) -> u32) -> f32 {
        f32::from_bits(f(value.to_bits()))
    }
    #[inline(always)]
    fn join(self, earlier: f32, later: f32) -> f32 {
        num::min(earlier, later)
    }
}

/// The map y ↦ offset + rate · y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Factor of the running value.
    pub rate: f64,
    /// Summand. After a scan it is the running value itself, started from 0.
    pub offset: f64,
}

impl Affine {
    /// Leaves the running value unchanged: the map of a masked token, over which credit passes.
    pub const IDENTITY: Affine = Affine { rate: 1.0, offset: 0.0 };
}

/// Linear recurrences y_t = offset_t + rate_t · y_{t−1} as a scan of maps in binary64, for discounted
/// returns; [`recur`](super::recur) joins the same maps.
#[derive(Clone, Copy, Debug)]
pub struct AffineF64;

impl Semigroup for AffineF64 {
    type Value = Affine;
    #[inline(always)]
    fn identity(self) -> Affine {
        Affine::IDENTITY
    }
    #[inline(always)]
    fn map_words(self, value: Affine, mut f: impl FnMut(u32) -> u32) -> Affine {
        Affine { rate: map_f64(value.rate, &mut f), offset: map_f64(value.offset, &mut f) }
    }
    #[inline(always)]
    fn join(self, earlier: Affine, later: Affine) -> Affine {
        Affine { rate: later.rate * earlier.rate, offset: later.offset + later.rate * earlier.offset }
    }
}

/// The end of the row from which a scan starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `y[i]` covers elements 0..=i.
    Prefix,
    /// `y[i]` covers elements i..n.
    Suffix,
}

crate::launch_args!(
    enum Direction {
        Prefix,
        Suffix,
    }
);

/// Scans one block in place and returns the new carry, which is the value of the last lane.
#[inline(always)]
pub fn scan_block<S: Semigroup>(op: S, carry: S::Value, x: &mut [S::Value; LANES]) -> S::Value {
    let mut step = 1;
    while step < LANES {
        let before = *x;
        for l in step..LANES {
            x[l] = op.join(before[l - step], before[l]);
        }
        step *= 2;
    }
    for value in x.iter_mut() {
        *value = op.join(carry, *value);
    }
    x[LANES - 1]
}
