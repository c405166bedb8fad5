//! The fixed shape of a linear recurrence that runs backwards in time: GAE, TD(λ), V-trace.
//!
//! ```text
//! y behind the row = 0;   y_t = offset_t + rate_t · y_{t'}      t' the live element after t; a masked element keeps y
//!
//! carry = 0
//! for each block of 32 elements, in order from the row's last element, lane 0 the last one:
//!     map[l] = (rate, offset) of a live element; (1, -0) of a masked one or where the row has none
//!     for s in 1, 2, 4, 8, 16: map[l] = join(map[l-s], map[l])     (all lanes at once; (1, -0) for l < s)
//!     y[l]  = offset[l] + rate[l] · carry
//!     carry = y[31]
//! ```
//!
//! `join` is that of [`AffineF64`]. The offset -0 is what leaves *every* y as it is, zeros of both signs too.
//! The lanes below s join as well, so that a CPU needs no loop of another length for them.
//!
//! An element may also ask for the value (the critic's) of the live element after it: a choice, which rounds
//! nothing, so that its shape is of no account.

use super::fold::LANES;
use super::scan::{Affine, AffineF64, Semigroup};
use crate::num::Arith;

/// The map that leaves every y as it is.
pub const STILL: Affine = Affine { rate: 1.0, offset: -0.0 };

/// What a [`Team::recur`](super::Team::recur) does with one element: from J inputs come K numbers and a
/// value, from these a map, and from the running values M outputs.
///
/// A trait and not closures for the reason of [`Element`](super::Element).
pub trait Recurrence<const J: usize, const K: usize, const M: usize>: Copy {
    /// The numbers of an element, its value, which the element before it sees too, and its alarm.
    fn ready<A: Arith>(self, input: [f32; J]) -> ([f32; K], f32, u32);

    /// The map of a live element; `next` is the value of the live element after it. The rate is at least 0.
    fn map(self, own: [f32; K], value: f32, next: f32) -> Affine;

    /// What is written at an element.
    fn out(self, step: Step<K>) -> [f32; M];
}

/// An element when all running values are known.
#[derive(Clone, Copy, Debug)]
pub struct Step<const K: usize> {
    /// Whether it takes part.
    pub live: bool,
    /// Its numbers; of a masked element whatever they are.
    pub own: [f32; K],
    /// Its value; of a masked element that of the live element after it.
    pub value: f32,
    /// The value of the live element after it.
    pub next: f32,
    /// The running value; of a masked element that of the live element after it.
    pub y: f64,
    /// The running value of the element after it.
    pub y_next: f64,
}

/// One block: from its maps to the running values.
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
