//! Stratified sampling of tokens from rows of logits. The draws depend only on seed and position, so there is
//! no state and rows may run in any order.
//!
//! **Formula** (ours; the sampled mode of OTR 2509.26313 uses it; docs/maths/correction.md), with
//! π' = softmax(z/κ): the interval from 0 to 1 is divided into pieces of length π'(v), in the order of v, and
//! into K equal strata. Draw j is the token whose piece contains a uniform point of stratum j. The point
//! comes from a hash of (seed, row, j).
//!
//! Stratified draws have the same expectation as independent draws, E[(1/K) Σ_j f(a_j)] = Σ_v π'(v) f(v), and
//! never a larger variance. They come in ascending order of tokens, which carries no information.
//!
//! **Method**: the pieces are integers, ⌊e_v·2^s⌋, with s as large as possible while their sum stays below
//! 2⁵³. Sums in binary64 are therefore exact, the pieces meet without gap or overlap in whatever order they
//! are added, and every draw falls into exactly one.
//!
//! **Shapes**: logits `[rows · vocab]`, tokens `[rows · draws]`.
//!
//! **Special cases**: an entry of −∞ is never drawn, nor is one less than 2⁻ˢ times as probable as the most
//! probable (s = 35 for a vocabulary of 151 936). A masked row gives 0 everywhere; so does a row without a
//! finite maximum, which also raises its [alarm](crate::ragged::flag).

use super::{LogitRows, Scale, check_temperature, inverse, weight};
use crate::Error;
use crate::num;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Out, Span, flag};
use crate::require;
use crate::select::key::hash;
use crate::team::{AddF64, Direction, Team};

crate::kernel! {
    /// The op `draw_tokens`: K sampled tokens per row of logits.
    pub struct DrawTokens<'a> {
        /// Logits, and which rows take part.
        pub rows: LogitRows<'a> where valid,
        /// Temperature κ of the draws, 1e-6 to 1e6.
        pub temperature: f32,
        /// Number K of draws per row, 1 to [`DrawTokens::MAX_DRAWS`].
        pub draws: usize,
        /// Seed of the draws; a call with the same seed draws the same points.
        pub seed: u64,
        /// Position of row 0 in the whole batch, if these rows are a shard of it.
        pub first: u64,
        /// Drawn tokens, `[rows · draws]`, ascending within each row.
        pub tokens: Out<'a, u32> [draws],
        /// Row alarm, `[rows]`: above [`flag::LIMIT`] if the row cannot be used.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe "draw_tokens", over rows (_, rows),
        require |k| {
            check_temperature("temperature", k.temperature)?;
            check_draws("draws", k.draws, Self::MAX_DRAWS, "1 to 1024")?;
            let draws = k.rows.rows.saturating_mul(k.draws);
            require::length("tokens", draws, "rows times draws", k.tokens.len())
        }, let draws = |k| rows.saturating_mul(k.draws);
}

impl DrawTokens<'_> {
    /// Largest number of draws per row: products with a sum of pieces stay below 2⁶⁴.
    pub const MAX_DRAWS: usize = 1024;
}

/// Checks that a number of draws is from 1 to `most`.
pub(super) fn check_draws(
    argument: &'static str,
    draws: usize,
    most: usize,
    expected: &'static str,
) -> Result<(), Error> {
    require::scalar(argument, (1..=most).contains(&draws), expected, draws as f64)
}

/// 2^s: V pieces of at most 2^s sum to less than 2⁵³.
#[inline(always)]
fn unit(vocab: usize) -> f64 {
    let bits = 64 - (vocab as u64).leading_zeros();
    f64::from_bits(u64::from(1023 + 53 - bits) << 52)
}

/// 2⁵², from which on every binary64 number is an integer.
const WHOLE: f64 = 4_503_599_627_370_496.0;

/// The integer nearest to x, for 0 ≤ x < 2⁵³. Done with a sum and bits, because a conversion to 64 bits is a
/// chain of roundings and multiply-adds on AMD.
#[inline(always)]
fn whole(x: f64) -> u64 {
    let above = x >= WHOLE;
    let low = if above { x } else { x + WHOLE };
    // A difference and not a mask: a value that rounds up to 2⁵² carries into the exponent.
    low.to_bits() - WHOLE.to_bits() + (u64::from(above) << 52)
}

/// ⌊n/d⌋ for n < 2⁶³ and d, ⌊n/d⌋ < 2⁵³, where (⌊n/d⌋ + 1)·d < 2⁶⁴.
///
/// Computed in binary64 and then corrected by at most one. GPUs have no integer division, and AMD's
/// substitute uses an approximate reciprocal, which `cargo xtask artifacts` accepts only inside a binary64
/// division or square root.
#[inline(always)]
fn quotient(n: u64, d: u64) -> u64 {
    let q = whole(num::div64(n as f64, d as f64));
    let q = if q * d > n { q - 1 } else { q };
    if (q + 1) * d <= n { q + 1 } else { q }
}

/// The strata of one row, over the integers from 0 to the sum of its pieces.
#[derive(Clone, Copy)]
struct Strata {
    sum: u64,
    draws: u64,
    /// ⌊sum/K⌋; `left` is the remainder.
    each: u64,
    left: u64,
    seed: u64,
    /// Position of the row's draw 0 in the whole batch.
    first: u64,
}

impl Strata {
    #[inline(always)]
    fn new(sum: u64, draws: u64, seed: u64, first: u64) -> Strata {
        let each = quotient(sum, draws);
        Strata { sum, draws, each, left: sum - each * draws, seed, first }
    }

    /// The start of stratum j, ⌊j·sum/K⌋.
    #[inline(always)]
    fn start(self, j: u64) -> u64 {
        j * self.each + quotient(j * self.left, self.draws)
    }

    /// The point of stratum j.
    #[inline(always)]
    fn point(self, j: u64) -> u64 {
        let (from, to) = (self.start(j), self.start(j + 1));
        let position = self.first.wrapping_add(j).wrapping_mul(2);
        let high = u64::from(hash(self.seed, position));
        let low = u64::from(hash(self.seed, position.wrapping_add(1)));
        // The upper half of the product of a 64-bit random number and a width below 2⁵³.
        let (width, random) = (to - from, high << 32 | low);
        from + ((u128::from(random) * u128::from(width)) >> 64) as u64
    }

    /// The number of points below c.
    #[inline(always)]
    fn below(self, c: u64) -> u64 {
        if c >= self.sum {
            return self.draws;
        }
        // The last stratum that starts at or before c: j·sum < (c + 1)·K.
        let j = quotient((c + 1) * self.draws - 1, self.sum);
        j + u64::from(self.point(j) < c)
    }
}

impl Kernel for DrawTokens<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (tokens, draws) = (*self.tokens, self.draws);
        let own = Span::new(row * draws, (row + 1) * draws);
        let live = self.rows.live_span(row);
        let largest = self.rows.largest(team, live);
        let usable = !live.is_empty() & largest.is_finite();
        let span = Span::new(live.start, if usable { live.end } else { live.start });
        let scale = Scale { largest, inverse: inverse(self.temperature) };
        let (logits, unit) = (self.rows.logits, unit(self.rows.vocab));
        let sum = team.sum(span, move |i| [piece::<T>(logits, scale, unit, i)])[0];
        let first = self.first.wrapping_add(row as u64).wrapping_mul(draws as u64);
        let strata = Strata::new(whole(sum), draws as u64, self.seed, first);
        if usable {
            team.scan(
                AddF64,
                span,
                Mask::all(),
                Direction::Prefix,
                move |i| piece::<T>(logits, scale, unit, i),
                move |i, end| {
                    let length = piece::<T>(logits, scale, unit, i);
                    if length > 0.0 {
                        let (from, to) = (strata.below(whole(end - length)), strata.below(whole(end)));
                        let mut j = from;
                        while j < to {
                            tokens.put(own.start + j as usize, (i - span.start) as u32);
                            j += 1;
                        }
                    }
                },
            );
        } else {
            team.for_each(own, move |j| tokens.put(j, 0));
        }
        if team.leads() {
            let fault = flag::finite(largest);
            self.row_alarm.put(row, if live.is_empty() { 0 } else { fault });
        }
    }
}

/// The length of an entry's piece, an integer.
#[inline(always)]
fn piece<T: Team>(logits: In<'_, f32>, scale: Scale, unit: f64, i: usize) -> f64 {
    let length = f64::from(weight::<T::Arith>(scale.exponent(logits.at(i)))) * unit;
    let nearest = (length + WHOLE) - WHOLE;
    if nearest > length { nearest - 1.0 } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_sum_below_two_to_53() {
        for vocab in [1usize, 2, 3, 1024, 1025, 151_936, LogitRows::MAX_VOCAB] {
            let sum = unit(vocab) * vocab as f64;
            assert!(sum <= 2f64.powi(53) && sum > 2f64.powi(51), "{vocab}");
        }
    }

    #[test]
    fn whole_numbers_keep_every_bit() {
        for n in [0u64, 1, 2, 3, (1 << 52) - 1, 1 << 52, (1 << 52) + 1, (1 << 53) - 1] {
            assert_eq!(whole(n as f64), n);
        }
        assert_eq!([0.4, 0.6, 1023.75, WHOLE - 0.5].map(whole), [0, 1, 1024, 1 << 52]);
    }

    #[test]
    fn quotients_are_whole() {
        for d in [1u64, 2, 3, 7, 1000, 1023, 1024] {
            for q in [0u64, 1, 2, 1000, (1 << 53) / d - 1] {
                for n in [q * d, q * d + d - 1, (q * d).saturating_sub(1), q * d + d / 2] {
                    assert_eq!(quotient(n, d), n / d, "{n} / {d}");
                }
            }
        }
        for d in [(1u64 << 53) - 1, (1 << 53) - 3, (1 << 52) + 1, 6_004_799_503_160_661] {
            for q in 0..1024u64 {
                for n in [q * d, q * d + d - 1, (q * d).saturating_sub(1)] {
                    assert_eq!(quotient(n, d), n / d, "{n} / {d}");
                }
            }
        }
    }

    /// Every stratum has one point, and `below` agrees with a plain count at every position tested.
    #[test]
    fn points_are_counted() {
        for (sum, draws) in [(1u64 << 20, 7u64), ((1 << 53) - 1, 1024), (1000, 1000), (1024, 1)] {
            let strata = Strata::new(sum, draws, 5, 77);
            let mut points = [0; 1024];
            let points = &mut points[..draws as usize];
            for (j, point) in (0..draws).zip(points.iter_mut()) {
                *point = strata.point(j);
                assert!(strata.start(j) <= *point && *point < strata.start(j + 1));
            }
            let plain = |c: u64| points.iter().filter(|p| **p < c).count() as u64;
            for j in 0..draws {
                let (start, point) = (strata.start(j), points[j as usize]);
                for c in [start, point, point + 1, start.saturating_sub(1)] {
                    assert_eq!(strata.below(c), plain(c), "{c} of {sum}, {draws} draws");
                }
            }
            assert_eq!(strata.below(sum), draws);
        }
    }
}
