//! Statistics of rows of logits whose vocabulary is spread over ranks: tensor parallelism of the last layer.
//!
//! Each rank holds the entries `vocab_start` to `vocab_start` + V of every row, its *shard*. Three ops and
//! two all-reduces give every rank the results of [`LogitsStatistics`](super::LogitsStatistics), and the same
//! bits for every number of ranks and every division of the vocabulary:
//!
//! ```text
//! vocab_parallel_top         largest entry of the shard         all-reduce: maximum of int64
//! vocab_parallel_sums        sums over the shard                all-reduce: sum of float64
//! vocab_parallel_statistics  logp, lse, top token, entropy, …   on every rank
//! ```
//!
//! [`LogitsGradient`](super::LogitsGradient) with `vocab_start` then gives each rank the gradient of its
//! shard.
//!
//! **Formula**: that of [`statistics`](super::statistics), with exact sums. Each term x, |x| ≤ 1, becomes two
//! numbers, a multiple of 2⁻²⁹ and a multiple of 2⁻⁵⁸:
//!
//! ```text
//! c = x to the nearest multiple of 2⁻²⁸, or x if |x| ≥ 2⁻⁶ (then it is a multiple of 2⁻²⁹)
//! f = x − c to the nearest multiple of 2⁻⁵⁷, or x − c if |x − c| ≥ 2⁻³⁵ (then it is a multiple of 2⁻⁵⁸)
//! ```
//!
//! Over at most 2²⁴ entries, no partial sum of c exceeds 2²⁴, nor one of f 2⁻⁵. Both are multiples that
//! binary64 holds exactly, so an order of additions makes no difference.
//!
//! **Shapes**: logits `[rows · V]`, labels `[rows]` as numbers of the whole vocabulary, `top` `[rows]`,
//! `sums` `[8][rows]`, or `[4][rows]` without moments; see the constants below.
//!
//! **Special cases**: a masked row gives 0 everywhere. A shard may have nothing but −∞ in a row, as one that
//! pads the vocabulary does. A row without a finite maximum, a label that no shard has or that is forbidden,
//! and a `top` below an entry of the shard (it was not reduced) raise the row's
//! [alarm](crate::ragged::flag).
//!
//! **Accuracy**: a sum differs from the exact sum of its terms by at most V · 2⁻⁵⁸, so these statistics
//! differ from those of [`LogitsStatistics`](super::LogitsStatistics) by rounding only.

use super::statistics::{LogitsResults, RowResult};
use super::{LogitRows, Scale, check_shard, check_temperature, factors, inverse};
use crate::num::{Arith, Storage};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Out, Span, Stream};
use crate::team::order::{ordered, unordered};
use crate::team::{Element, Lane, Swept, Team};

/// Row of `sums`: the label's logit, 0 on the shards without it.
pub const LABEL: usize = 0;
/// Row of `sums`: how many shards have the label, 1 after the all-reduce.
pub const HOLDERS: usize = 1;
/// First row of `sums` with Z: multiples of 2⁻²⁹; those of 2⁻⁵⁸ follow. From here on rows have
/// the order of the sweep's sums.
pub const TOTAL: usize = 2;
/// First of two rows of `sums` with Σ e·y.
pub const PRODUCT: usize = 4;
/// First of two rows of `sums` with Σ e².
pub const SQUARES: usize = 6;
/// Rows of `sums` without moments, and with them.
pub const SUMS: [usize; 2] = [4, 8];

/// The largest entry of a row as a number whose maximum over shards is that of the row: its order in the
/// upper half, the complement of its token in the lower half, so that the first token wins a tie.
#[inline(always)]
fn packed(largest: f32, token: u32) -> i64 {
    i64::from(ordered(largest)) << 32 | i64::from(!token)
}

/// The largest entry of a row, and its token, of a `top` that was reduced or is to be.
#[inline(always)]
pub fn unpacked(top: i64) -> (f32, u32) {
    (unordered((top >> 32) as i32), !(top as u32))
}

crate::kernel! {
    /// The ops `vocab_parallel_top` (`f32`), `vocab_parallel_top_bf16` and `vocab_parallel_top_f16`: the
    /// largest entry of each row of a shard.
    pub struct VocabParallelTop<'a, S: Storage = f32> {
        /// Logits of the shard, and which rows take part.
        pub rows: LogitRows<'a, S>,
        /// Number of the shard's first entry in the vocabulary.
        pub vocab_start: u32,
        /// The largest entry and its token in one number, `[rows]`; its maximum over shards is that of the
        /// row.
        pub top: Out<'a, i64> [rows],
    }
    unsafe S::SUFFIX.of(["vocab_parallel_top", "vocab_parallel_top_bf16", "vocab_parallel_top_f16"]),
        over rows (_, rows),
        require |k| check_shard(&k.rows, k.vocab_start);
}

impl<S: Storage> Kernel for VocabParallelTop<'_, S> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.rows.live_span(row);
        let (largest, first) = self.rows.top(team, span);
        if team.leads() {
            let top = packed(largest, self.vocab_start + first);
            self.top.put(row, if span.is_empty() { 0 } else { top });
        }
    }
}

crate::kernel! {
    /// The ops `vocab_parallel_sums` (`f32`), `vocab_parallel_sums_bf16` and `vocab_parallel_sums_f16`: exact
    /// sums over each row of a shard.
    pub struct VocabParallelSums<'a, S: Storage = f32> {
        /// Logits of the shard, and which rows take part.
        pub rows: LogitRows<'a, S>,
        /// Number of the shard's first entry in the vocabulary.
        pub vocab_start: u32,
        /// Label of each row, a number of the whole vocabulary, `[rows]`.
        pub labels: In<'a, u32> [rows],
        /// The largest entries of whole rows: the maximum over shards of what `vocab_parallel_top` wrote,
        /// `[rows]`.
        pub top: In<'a, i64> [rows],
        /// Temperature T, 1e-6 to 1e6.
        pub temperature: f32,
        /// Whether the sums for entropy, collision and score norm are wanted.
        pub moments: bool,
        /// Sums over the shard, [`SUMS`] rows of `[rows]`; to be added over shards, in any order.
        pub sums: Out<'a, f64> [sums],
        /// Row alarm, `[rows]`: above [`flag::LIMIT`](crate::ragged::flag::LIMIT) if an entry of the shard is
        /// larger than the row's largest.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe S::SUFFIX.of(["vocab_parallel_sums", "vocab_parallel_sums_bf16", "vocab_parallel_sums_f16"]),
        over rows (_, rows),
        require |k| {
            check_shard(&k.rows, k.vocab_start)?;
            check_temperature("temperature", k.temperature)
        },
        let sums = |k| SUMS[usize::from(k.moments)] * rows;
}

/// x to a multiple of 2⁻²³ · `least`: rounded to a multiple of twice that if |x| < `least`.
#[inline(always)]
fn on_grid(x: f32, least: f32) -> f32 {
    // In the binade of `shift`, which |x| < least cannot leave, numbers are 2⁻²² · least apart.
    let shift = 3.0 * least;
    let rounded = (x + shift) - shift;
    if x < least && x > -least { rounded } else { x }
}

/// x as a multiple of 2⁻²⁹ and one of 2⁻⁵⁸.
#[inline(always)]
fn exact(x: f32) -> [f32; 2] {
    let coarse = on_grid(x, COARSE);
    [coarse, on_grid(x - coarse, FINE)]
}

/// 2⁻⁶: larger numbers are multiples of 2⁻²⁹.
const COARSE: f32 = f32::from_bits(0x3c80_0000);
/// 2⁻³⁵: larger numbers are multiples of 2⁻⁵⁸.
const FINE: f32 = f32::from_bits(0x2e00_0000);

/// An alarm for an exponent that is not at most 0, except NaN, whose row has an alarm already.
#[inline(always)]
fn above(y: f32) -> u32 {
    if y > 0.0 { u32::MAX } else { 0 }
}

struct Total(Scale);

impl Element<1, 0, 2, 0> for Total {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 2, 0> {
        let (e, y) = factors::<A>(self.0.exponent(input(0)));
        Lane { out: [], sum: exact(e), max: [], alarm: above(y) }
    }
}

struct Moments(Scale);

impl Element<1, 0, 6, 0> for Moments {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 6, 0> {
        let (e, y) = factors::<A>(self.0.exponent(input(0)));
        let ([a, b], [c, d], [f, g]) = (exact(e), exact(e * y), exact(e * e));
        Lane { out: [], sum: [a, b, c, d, f, g], max: [], alarm: above(y) }
    }
}

impl<S: Storage> Kernel for VocabParallelSums<'_, S> {
    crate::row_by_variant!(0; 1);

    #[inline(always)]
    fn variant(&self) -> usize {
        usize::from(self.moments)
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        let span = self.rows.live_span(row);
        let scale = Scale { largest: unpacked(self.top.at(row)).0, inverse: inverse(self.temperature) };
        let ins = [Stream::Array(self.rows.logits)];
        if V == 0 {
            let swept = team.sweep(span, Mask::all(), ins, [], &Total(scale));
            self.put(team, row, span, swept);
        } else {
            let swept = team.sweep(span, Mask::all(), ins, [], &Moments(scale));
            self.put(team, row, span, swept);
        }
    }
}

impl<S: Storage> VocabParallelSums<'_, S> {
    /// Writes what a row's sweep over `span` has found, and its label's logit.
    #[inline(always)]
    fn put<const K: usize, T: Team>(&self, team: &T, row: usize, span: Span, swept: Swept<K, 0>) {
        if team.leads() {
            let at = self.labels.at(row).wrapping_sub(self.vocab_start) as usize;
            let here = !span.is_empty() & (at < self.rows.vocab);
            let label = self.rows.logits.at(self.rows.span(row).start + if here { at } else { 0 }).widen();
            let put = move |k: usize, sum: f64| self.sums.put(k * self.rows.rows + row, sum);
            put(LABEL, if here { label.into() } else { 0.0 });
            put(HOLDERS, if here { 1.0 } else { 0.0 });
            for (k, sum) in swept.sums.into_iter().enumerate() {
                put(TOTAL + k, sum);
            }
            self.row_alarm.put(row, swept.alarm);
        }
    }
}

crate::kernel! {
    /// The op `vocab_parallel_statistics`: statistics of each row from what was reduced over shards.
    pub struct VocabParallelStatistics<'a> {
        /// Number of rows, one per token.
        pub rows: usize,
        /// Which rows take part, `[rows]`.
        pub live: Mask<'a> [rows],
        /// Maximum over shards of what `vocab_parallel_top` wrote, `[rows]`.
        pub top: In<'a, i64> [rows],
        /// Sum over shards of what `vocab_parallel_sums` wrote, [`SUMS`] rows of `[rows]`: those with moments
        /// if these are among the results.
        pub sums: In<'a, f64> [sums],
        /// Temperature T, 1e-6 to 1e6: that of the sums.
        pub temperature: f32,
        /// The results.
        pub results: LogitsResults<'a>,
    }
    unsafe "vocab_parallel_statistics", rows |k| k.rows, work |_, _| 16,
        require |k| check_temperature("temperature", k.temperature),
        let rows = |k| k.rows,
        let sums = |k| SUMS[usize::from(k.results.moments.is_some())] * rows,
        check |k| k.results.check_bounds(rows);
}

impl Kernel for VocabParallelStatistics<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        if team.leads() {
            let (largest, top) = unpacked(self.top.at(row));
            let of = |k: usize| self.sums.at(k * self.rows + row);
            let both = |k: usize| of(k) + of(k + 1);
            let moments = self.results.moments.is_some();
            let found = RowResult {
                live: self.live.at(row),
                largest,
                top,
                label: if of(HOLDERS) == 1.0 { of(LABEL) as f32 } else { f32::NAN },
                total: both(TOTAL),
                product: if moments { both(PRODUCT) } else { 0.0 },
                squares: if moments { both(SQUARES) } else { 0.0 },
            };
            let scale = Scale { largest, inverse: inverse(self.temperature) };
            self.results.put::<T::Arith>(self.rows, row, scale, &found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Terms of every size, of both signs.
    fn terms() -> impl Iterator<Item = f32> {
        let bits = (0..0x3f80_0000u32).step_by(977).chain([0x3f7f_ffff, 0x3c80_0000, 0x2e00_0000]);
        let bits = bits.flat_map(|bits| [bits, bits ^ 1]).chain([0x3f80_0000]);
        bits.flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)])
    }

    #[test]
    fn a_term_becomes_two_multiples_next_to_it() {
        for x in terms() {
            let [coarse, fine] = exact(x).map(f64::from);
            for (part, unit) in [(coarse, 2f64.powi(-29)), (fine, 2f64.powi(-58))] {
                assert_eq!((part / unit).fract(), 0.0, "{x:e}: {part:e} is no multiple of {unit:e}");
            }
            assert!(coarse.abs() <= 1.0 && fine.abs() <= 2f64.powi(-29), "{x:e} {coarse:e} {fine:e}");
            assert!((coarse + fine - f64::from(x)).abs() <= 2f64.powi(-58), "{x:e}");
        }
    }

    #[test]
    fn the_largest_entry_wins_and_of_equal_ones_the_first() {
        let less = [
            (f32::NEG_INFINITY, 5),
            (f32::NEG_INFINITY, 0),
            (-1e30, 0),
            (-1.0, 9),
            (-1.0, 8),
            (0.0, 77),
            (1e-42, 3),
            (1e30, 1 << 24),
            (f32::INFINITY, 2),
            (f32::NAN, 0),
        ];
        assert!(less.windows(2).all(|w| packed(w[0].0, w[0].1) < packed(w[1].0, w[1].1)));
        for (largest, token) in less {
            let (value, of) = unpacked(packed(largest, token));
            assert!(of == token && (value == largest || value.is_nan() && largest.is_nan()));
        }
        assert_eq!(packed(-0.0, 1), packed(0.0, 1), "zeros are equal");
    }
}
