//! Moments of a batch, for whitening and batch-wide standard deviations, computed without host
//! synchronisation.
//!
//! **Formula** (docs/maths/statistics.md), over the counted elements of a row, or of all rows:
//!
//! ```text
//! COUNT n,  MEAN m = Σ x / n,  SQUARES q = Σ (x − m)²,  LOW min x,  HIGH max x,  NONZERO #{x ≠ 0}
//! merged:  m = Σ_r n_r m_r / n,   q = Σ_r q_r + n_r (m_r − m)²
//! ```
//!
//! Two passes, so that the variance never suffers cancellation; LOW = HIGH shows exactly, from the inputs,
//! that the variance is 0. The moments of a batch stay in a device array that the next op reads, so the three
//! launches need no synchronisation; partial moments of ranks are rows like any other.
//!
//! **Shapes**: moments are `[6][R]` per row and `[6]` for the batch, in the order above.
//!
//! **Special cases**: masked elements are ignored. A NaN is excluded if NaN means "no value" (rewards);
//! otherwise it raises the row's alarm. Without elements, n = m = q = 0, LOW = +∞ and HIGH = −∞.
//!
//! **Accuracy**: binary64 throughout, summed in the fixed tree of [`team::fold`](crate::team::fold).
//!
//! **Variants**: verl divides by M + 1e-8 in both means, a relative change of 1e-8/M that binary32 cannot
//! represent.

use crate::num::{self, Arith, canonical, canonical64, count};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Span, Stream, flag};
use crate::team::{Element, Lane, Team, Terms};

/// Number of moments.
pub const MOMENTS: usize = 6;
/// Index of the number of counted elements.
pub const COUNT: usize = 0;
/// Index of the mean.
pub const MEAN: usize = 1;
/// Index of the sum of squared deviations from the mean.
pub const SQUARES: usize = 2;
/// Index of the smallest value.
pub const LOW: usize = 3;
/// Index of the largest value.
pub const HIGH: usize = 4;
/// Index of the number of nonzero values.
pub const NONZERO: usize = 5;

/// Variance of a batch with the given ddof: exactly 0 if all values are equal or if n ≤ ddof.
#[inline(always)]
pub fn variance(moments: In<'_, f64>, ddof: u32) -> f64 {
    let freedom = moments.at(COUNT) - f64::from(ddof);
    // Written so that NaN does not count as equal.
    let none = freedom <= 0.0 || moments.at(LOW) == moments.at(HIGH);
    if none { 0.0 } else { num::div64(moments.at(SQUARES), freedom) }
}

/// Standard deviation of a batch: the square root of [`variance`].
#[inline(always)]
pub fn std<A: Arith>(moments: In<'_, f64>, ddof: u32) -> f64 {
    A::sqrt64(variance(moments, ddof))
}

/// Fraction of values that are not 0, counting at least one nonzero value; 0 without values.
#[inline(always)]
pub fn nonzero_fraction(moments: In<'_, f64>) -> f64 {
    let (count, nonzero) = (moments.at(COUNT), moments.at(NONZERO));
    let nonzero = if nonzero > 1.0 { nonzero } else { 1.0 };
    if count == 0.0 { 0.0 } else { num::div64(nonzero, count) }
}

crate::kernel! {
    /// The op `row_moments`: the six moments of each row.
    pub struct RowMoments<'a> {
        /// Offsets of rows, `[R+1]`: sequences of tokens, or groups of sequences.
        pub offsets: Offsets<'a>,
        /// Elements that count, `[N]`.
        pub mask: Mask<'a> [elements],
        /// Values: `[N]`, or `[R]` if all elements of a row share one.
        pub values: In<'a, f32> [entries],
        /// Whether values are `[R]`; a row then counts once per live element.
        pub per_row: bool,
        /// Whether NaN means "no value" and is excluded.
        pub nan_is_missing: bool,
        /// Moments of each row, `[6][R]`.
        pub row_moments: Out<'a, f64> [MOMENTS * rows],
        /// Above [`flag::LIMIT`] if a counted value is not finite, `[R]`.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe "row_moments", over offsets (elements, rows),
        let entries = |k| if k.per_row { rows } else { elements };
}

impl Kernel for RowMoments<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.offsets.span(row);
        let (values, mask, missing) = (self.values, self.mask, self.nan_is_missing);
        let found = if self.per_row {
            let n = team.count(span, mask) as f64;
            let value = values.at(row);
            let x = canonical64(f64::from(value));
            let own = [n, x, 0.0, x, x, if value == 0.0 { 0.0 } else { n }];
            // The value of a row without live elements is unspecified and must not be copied.
            if n == 0.0 || (missing && value.is_nan()) { NOTHING } else { own }
        } else {
            let ins = [Stream::Array(values)];
            let swept = team.sweep(span, mask, ins, [], &Spread { missing });
            let [total, nonzero] = swept.sums;
            // An integer count rather than a float sum, since every live element counts.
            let absent = if missing { team.sweep(span, mask, ins, [], &Absent).sums[0] } else { 0.0 };
            let n = team.count(span, mask) as f64 - absent;
            let (high, low) = (swept.maxima[0], canonical(-swept.maxima[1]));
            let mean = if high == low { f64::from(low) } else { num::div64(total, n) };
            let [squares] = team.sum_live(span, mask, ins, Squares { missing, mean });
            let [low, high] = [low, high].map(|end| canonical64(f64::from(end)));
            let found = [n, canonical64(mean), squares, low, high, nonzero];
            if n == 0.0 { NOTHING } else { found }
        };
        if team.leads() {
            let rows = self.offsets.rows();
            self.row_moments.put(row, found[COUNT]);
            self.row_moments.put(row + rows, found[MEAN]);
            self.row_moments.put(row + 2 * rows, found[SQUARES]);
            self.row_moments.put(row + 3 * rows, found[LOW]);
            self.row_moments.put(row + 4 * rows, found[HIGH]);
            self.row_moments.put(row + 5 * rows, found[NONZERO]);
            let low = flag::finite(found[LOW] as f32);
            let worst = flag::worse(low, flag::finite(found[HIGH] as f32));
            self.row_alarm.put(row, if found[COUNT] == 0.0 { 0 } else { worst });
        }
    }
}

/// Sum, number of nonzero values, and both extremes.
struct Spread {
    missing: bool,
}

impl Element<1, 0, 2, 2> for Spread {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 2, 2> {
        let x = input(0);
        let absent = self.missing & x.is_nan();
        let term = if absent { 0.0 } else { x };
        let end = |x: f32| if absent { f32::NEG_INFINITY } else { x };
        Lane { out: [], sum: [term, count((x != 0.0) & !absent)], max: [end(x), end(-x)], alarm: 0 }
    }
}

/// Number of missing values.
struct Absent;

impl Element<1, 0, 1, 0> for Absent {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 1, 0> {
        Lane { out: [], sum: [count(input(0).is_nan())], max: [], alarm: 0 }
    }
}

/// Squared deviations from the mean.
#[derive(Clone, Copy)]
struct Squares {
    missing: bool,
    mean: f64,
}

impl Terms<1, 1> for Squares {
    #[inline(always)]
    fn terms(self, input: impl Fn(usize) -> f32) -> [f64; 1] {
        let x = input(0);
        let centred = f64::from(x) - self.mean;
        [if self.missing & x.is_nan() { 0.0 } else { centred * centred }]
    }
}

const NOTHING: [f64; MOMENTS] = [0.0, 0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, 0.0];

crate::kernel! {
    /// The op `fold_moments`: the moments of R rows merged into those of all of them.
    pub struct FoldMoments<'a> {
        /// Moments of each row, `[6][R]`.
        pub row_moments: In<'a, f64> [rows.saturating_mul(MOMENTS)],
        /// Number of rows, R.
        pub rows: usize,
        /// Moments of the batch, `[6]`.
        pub moments: Out<'a, f64> [MOMENTS],
    }
    unsafe "fold_moments", rows |_| 1, work |k, _| k.rows,
        let rows = |k| k.rows;
}

impl Kernel for FoldMoments<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, _row: usize) {
        let (span, rows) = (Span::new(0, self.rows), self.rows);
        let at = |moment: usize, r: usize| self.row_moments.at(moment * rows + r);
        let [n, total, nonzero] =
            team.sum(span, |r| [at(COUNT, r), at(COUNT, r) * at(MEAN, r), at(NONZERO, r)]);
        // Extremes are exact in binary32.
        let high = team.max(span, |r| at(HIGH, r) as f32);
        let low = team.min(span, |r| at(LOW, r) as f32);
        let mean = if n == 0.0 {
            0.0
        } else if high == low {
            f64::from(low)
        } else {
            num::div64(total, n)
        };
        let [squares] = team.sum(span, |r| {
            let apart = at(MEAN, r) - mean;
            let count = at(COUNT, r);
            [if count == 0.0 { 0.0 } else { at(SQUARES, r) + count * apart * apart }]
        });
        if team.leads() {
            self.moments.put(COUNT, n);
            self.moments.put(MEAN, canonical64(mean));
            self.moments.put(SQUARES, squares);
            self.moments.put(LOW, canonical64(f64::from(low)));
            self.moments.put(HIGH, canonical64(f64::from(high)));
            self.moments.put(NONZERO, nonzero);
        }
    }
}
