//! Log-probabilities, weights, advantages and other per-token values.

use super::hash::Source;

/// What is no finite number.
pub const NOT_FINITE: &[f32] = &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
/// What is no log-probability.
pub const NO_LOGP: &[f32] = &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.5, f32::MIN_POSITIVE];
/// What is no weight.
pub const NO_WEIGHT: &[f32] = &[f32::NAN, f32::INFINITY, -1.0];

/// How far apart the current and the other policies are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Log-ratios of a few tenths, as in training: accuracy where it matters.
    Realistic,
    /// Log-ratios up to ±30, beyond the clamps at 20 and of k3: guards, saturation, large sums.
    Wide,
    /// Exactly equal log-probabilities (r = 1) in most places, log-ratios exactly at ±0.5 and ±20 elsewhere:
    /// `>` against `>=`.
    Ties,
    /// Log-ratios below the resolution of 1 + x, and zeros of both signs: cancellation, sgn(0), subnormals.
    Tiny,
}

impl Range {
    /// All ranges.
    pub const ALL: [Range; 4] = [Range::Realistic, Range::Wide, Range::Ties, Range::Tiny];

    /// A log-probability of the reference stream.
    pub fn base(self, source: Source, i: usize) -> f32 {
        let u = source.unit(i);
        match self {
            // Mostly small, down to −6, like sampled tokens; a few certain ones (0).
            Range::Realistic if source.below(i, 16) == 0 => 0.0,
            Range::Realistic => -6.0 * u * u * u - 0.001,
            Range::Wide => -40.0 * u - 31.0,
            // Multiples of 1/8, so that the differences below are exact.
            Range::Ties => -((u * 64.0) as i32 as f32) / 8.0 - 20.0,
            Range::Tiny => -u * u * 0.01 - 1e-4,
        }
    }

    /// Another policy's log-probability of the same token; never above 0.
    pub fn other(self, source: Source, i: usize, base: f32) -> f32 {
        let moved = match self {
            // A token that became nearly certain: a large ratio, with bits far below those of the other
            // log-probabilities.
            Range::Realistic if source.below(i, 16) == 1 => -1e-9 * source.fork(1).unit(i),
            // The sum of three uniforms: bell-shaped, within ±0.6.
            Range::Realistic => {
                base + 0.4 * (source.fork(1).signed(i) + source.fork(2).signed(i) + source.fork(3).signed(i))
                    / 2.0
            }
            Range::Wide => base + 30.0 * source.signed(i),
            Range::Ties => base + [0.0, 0.0, 0.0, 0.5, -0.5, 20.0, -20.0, 0.125][source.below(i, 8)],
            Range::Tiny => match source.below(i, 8) {
                0 => base,
                1 => -0.0,
                2 => 0.0,
                3 => base * (1.0 + f32::EPSILON),
                4 => -1e-42,
                _ => base + 1e-6 * source.signed(i),
            },
        };
        if moved > 0.0 { -moved.min(1.0) } else { moved }
    }
}

/// An advantage: both signs, exact zeros of both signs, ordinary and large values.
pub fn advantage(source: Source, i: usize) -> f32 {
    match source.below(i, 12) {
        0 => 0.0,
        1 => -0.0,
        2 => 1.0,
        3 => -1.0,
        4 => 50.0 * source.fork(1).signed(i),
        _ => 2.5 * source.fork(1).signed(i),
    }
}

/// A rollout-correction weight: around 1, truncated at 2, sometimes 0 (rejected).
pub fn weight(source: Source, i: usize) -> f32 {
    match source.below(i, 8) {
        0 => 0.0,
        1 => 2.0,
        _ => 2.0 * source.fork(1).unit(i),
    }
}
