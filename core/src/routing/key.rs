//! What a router compares experts by, and what it makes gates of.

use crate::logits::weight;
use crate::num::{self, Arith};
use crate::team::{Key, Near};

/// The score itself.
pub(super) struct Score;

impl Key for Score {
    const VALUE: bool = true;

    #[inline(always)]
    fn key<A: Arith>(&self, value: f32, _bias: f32, _element: usize) -> f32 {
        value
    }
}

/// e^(s − largest).
#[derive(Clone, Copy)]
pub(super) struct Exponential {
    pub(super) largest: f32,
}

impl Key for Exponential {
    #[inline(always)]
    fn key<A: Arith>(&self, value: f32, _bias: f32, _element: usize) -> f32 {
        weight::<A>(value - self.largest)
    }
}

/// σ(s).
#[derive(Clone, Copy)]
pub(super) struct Sigmoid;

impl Key for Sigmoid {
    #[inline(always)]
    fn key<A: Arith>(&self, value: f32, _bias: f32, _element: usize) -> f32 {
        num::sigmoid::<A>(value)
    }
}

/// σ(s) + b.
pub(super) struct Biased;

impl Key for Biased {
    /// `sigmoid` is within 2.41 units of the last place, so that e^2·2.41·2⁻²³ apart is apart after rounding; ln σ rises by 1 − σ, 0.018 at 4 and
    /// more below. 0.018·(2⁻¹⁴ − 2⁻¹⁹) = 1.06e-6 is more than the 5.8e-7 of two errors. Below −87, where it is subnormal, it is far below that of −60.
    /// `below` is 2⁻¹⁴.
    const NEAR: Option<Near> = Some(Near { from: -60.0, to: 4.0, below: 6.103_515_6e-5 });

    #[inline(always)]
    fn key<A: Arith>(&self, value: f32, bias: f32, _element: usize) -> f32 {
        num::sigmoid::<A>(value) + bias
    }
}

/// σ(s) + b in the groups whose bit is set.
pub(super) struct InGroups {
    pub(super) bits: u32,
    /// ⌊2²⁰ / experts of a group⌋ + 1: ⌊e·this / 2²⁰⌋ is e's group, for e and groups up to 512.
    pub(super) inverse: u32,
}

impl Key for InGroups {
    #[inline(always)]
    fn key<A: Arith>(&self, value: f32, bias: f32, element: usize) -> f32 {
        let group = (element as u32 * self.inverse) >> 20;
        let key = num::sigmoid::<A>(value) + bias;
        if (self.bits >> group) & 1 == 1 { key } else { f32::NEG_INFINITY }
    }
}
