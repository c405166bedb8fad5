//! The keys by which a router compares experts, and the values from which it forms gates.

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

/// A positive function of a score, from which gates and, with the bias, selection keys are formed.
pub(super) trait Activation: Copy {
    /// [`NEAR`](Key::NEAR) of keys that add a bias to this function.
    const NEAR: Option<Near> = None;
    /// Number of experts whose keys are summed to the score of their group.
    const OF_GROUP: usize;

    fn of<A: Arith>(self, score: f32) -> f32;
}

/// σ(s).
#[derive(Clone, Copy)]
pub(super) struct Sigmoid;

impl Activation for Sigmoid {
    /// `sigmoid` is within 2.41 ULP, so two results whose exact values are a factor e^(2·2.41·2⁻²³) apart
    /// stay apart after rounding; ln σ rises by 1 − σ, which is 0.018 at 4 and more below. 0.018·(2⁻¹⁴ −
    /// 2⁻¹⁹) = 1.06e-6 exceeds the 5.8e-7 of two errors. Below −87, where it is subnormal, it is far below
    /// its value at −60. `below` is 2⁻¹⁴.
    const NEAR: Option<Near> = Some(Near { from: -60.0, to: 4.0, below: 6.103_515_6e-5 });
    const OF_GROUP: usize = 2;

    #[inline(always)]
    fn of<A: Arith>(self, score: f32) -> f32 {
        num::sigmoid::<A>(score)
    }
}

/// √softplus(s), softplus(s) = ln(1 + e^s).
#[derive(Clone, Copy)]
pub(super) struct SqrtSoftplus;

/// ln(1 + e^s).
#[inline(always)]
pub(super) fn softplus<A: Arith>(s: f32) -> f32 {
    let (most, least) = if s > 0.0 { (s, -s) } else { (0.0, s) };
    most + num::log1p::<A>(num::exp_nonpositive::<A>(least))
}

impl Activation for SqrtSoftplus {
    const OF_GROUP: usize = 2;

    #[inline(always)]
    fn of<A: Arith>(self, score: f32) -> f32 {
        num::sqrt::<A>(softplus::<A>(score))
    }
}

/// The softmax over all experts.
#[derive(Clone, Copy)]
pub(super) struct Probability {
    pub(super) largest: f32,
    /// 1/Z.
    pub(super) inverse: f32,
}

impl Activation for Probability {
    const OF_GROUP: usize = 1;

    #[inline(always)]
    fn of<A: Arith>(self, score: f32) -> f32 {
        weight::<A>(score - self.largest) * self.inverse
    }
}

/// The function itself as the key.
#[derive(Clone, Copy)]
pub(super) struct Plain<F>(pub(super) F);

impl<F: Activation> Key for Plain<F> {
    #[inline(always)]
    fn key<A: Arith>(&self, value: f32, _bias: f32, _element: usize) -> f32 {
        self.0.of::<A>(value)
    }
}

/// The function plus the bias as the key.
pub(super) struct Biased<F>(pub(super) F);

impl<F: Activation> Key for Biased<F> {
    const NEAR: Option<Near> = F::NEAR;

    #[inline(always)]
    fn key<A: Arith>(&self, value: f32, bias: f32, _element: usize) -> f32 {
        self.0.of::<A>(value) + bias
    }
}

/// [`Biased`] restricted to the groups whose bit is set.
pub(super) struct InGroups<F> {
    pub(super) of: F,
    pub(super) bits: u32,
    /// ⌊2²⁰ / experts per group⌋ + 1: ⌊e·this / 2²⁰⌋ is the group of e, for e and group sizes up to 512.
    pub(super) inverse: u32,
}

impl<F: Activation> Key for InGroups<F> {
    #[inline(always)]
    fn key<A: Arith>(&self, value: f32, bias: f32, element: usize) -> f32 {
        let group = (element as u32 * self.inverse) >> 20;
        let key = self.of.of::<A>(value) + bias;
        if (self.bits >> group) & 1 == 1 { key } else { f32::NEG_INFINITY }
    }
}
