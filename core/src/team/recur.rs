//! The fixed order of a linear recurrence that runs backwards in time: GAE, TD(λ), V-trace.
//!
//! ```text
//! y after the row's last element = 0
//! y_t = offset_t + rate_t · y_{t'}      t' the live element after t; a masked element keeps y
//!
//! carry = 0
//! for each block of 32 elements, in order from the row's last element, lane 0 the last one:
//!     map[l] = (rate, offset) of a live element; (1, -0) of a masked one or where the row has none
//!     for s in 1, 2, 4, 8, 16: map[l] = join(map[l-s], map[l])     (all lanes at once; (1, -0) for l < s)
//!     y[l]  = offset[l] + rate[l] · carry
//!     carry = y[31]
//! ```
//!
//! `join` is that of [`AffineF64`]. The offset -0 leaves *every* y unchanged, including zeros of both signs.
//! Lanes below s join as well, so that a CPU needs no second loop length for them.
//!
//! An element may also read the value (the critic's) of the next live element. That is a selection without
//! rounding, so its order does not matter.

use super::fold::LANES;
use super::scan::{Affine, AffineF64, Semigroup};
use crate::num::Arith;

/// The map that leaves every y unchanged.
pub const STILL: Affine = Affine { rate: 1.0, offset: -0.0 };

/// The element program of a [`Team::recur`](super::Team::recur): from J inputs it computes K numbers and a
/// value, from these a map, and from the running values M outputs.
///
/// A trait rather than closures, for the reason given at [`Element`](super::Element).
pub trait Recurrence<const J: usize, const K: usize, const M: usize>: Copy {
    /// Whether [`out`](Recurrence::out) reads `y_next`.
    const Y_NEXT: bool = false;

    /// Returns the numbers of an element, its value, which the preceding element sees too, and its alarm.
    fn ready<A: Arith>(self, input: [f32; J]) -> ([f32; K], f32, u32);

    /// Returns the map of a live element; `next` is the value of the next live element. The rate is at least
    /// 0.
    fn map(self, own: [f32; K], value: f32, next: f32) -> Affine;

    /// Returns the rate of every live element's map if they all have the same: a GPU then knows its products
    /// before it has read anything.
    #[inline(always)]
    fn rate(self) -> Option<f64> {
        None
    }

    /// Returns the outputs at an element.
    fn out(self, step: Step<K>) -> [f32; M];
}

/// An element once all running values are known.
#[derive(Clone, Copy, Debug)]
pub struct Step<const K: usize> {
    /// Whether the element counts.
    pub live: bool,
    /// Its numbers; unspecified for a masked element.
    pub own: [f32; K],
    /// Its value; for a masked element, that of the next live element.
    pub value: f32,
    /// The value of the next live element.
    pub next: f32,
    /// The running value; for a masked element, that of the next live element.
    pub y: f64,
    /// The running value of the next element; unspecified unless [`Recurrence::Y_NEXT`].
    pub y_next: f64,
}

/// Computes one block: from its maps to the running values.
#[inline(always)]
pub fn recur_block(carry: f64, maps: [Affine; LANES]) -> [f64; LANES] {
    let mut maps = maps;
    let mut step = 1;
    while step < LANES {
        let before = maps;
        for l in 0..LANES {
            let earlier = if l < step { STILL } else { before[l - step] };
            maps[l] = AffineF64.join(earlier, before[l]);
        }
        step *= 2;
    }
    maps.map(|map| map.offset + map.rate * carry)
}
