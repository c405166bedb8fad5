//! Moments of values that are spread over several ranks.

use super::accumulator::{ExactSum, LIMBS, LSB, MAGNITUDE, SUBNORMAL};
use super::integer;
use crate::Error;
use crate::aggregate::moments::{COUNT, HIGH, LOW, MEAN, MOMENTS, NONZERO, SQUARES};
use crate::num;
use crate::require;
use core::ops::Range;

/// Count, unrounded Σx and Σx², extremes and number of non-zeros: the moments of a batch, whatever its
/// sharding.
///
/// **Formula**: mean = Σx / n; Σ(x − mean)² = (n Σx² − (Σx)²) / n with an exact numerator; variance = Σ(x −
/// mean)² / (n − ddof). Values are binary32, whose squares are exact in binary64, or
/// [binary64](ExactMoments::add64) with magnitudes from 2⁻⁴⁵⁰ to below 2⁴⁵⁰.
///
/// **Special cases**: without values everything is 0. If all values are equal, the mean is that value and the
/// variance exactly 0. A NaN or an infinity makes mean and variance NaN (the mean of infinities of one sign
/// is infinite); to exclude NaN, do not add it.
///
/// **Accuracy**: Σx and the numerator are rounded once, each division once more: the mean is within 1 ULP,
/// the variance within 2.
///
/// ```
/// use lockstep_core::aggregate::exact::ExactMoments;
/// let of = |values: &[f32]| values.iter().copied().collect::<ExactMoments>();
/// let (mut here, there) = (of(&[1e8, 1e8 + 8.0]), of(&[1e8 + 16.0]));
/// here.merge(&there);
/// assert_eq!((here.mean(), here.variance(1)), (1e8 + 8.0, 64.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExactMoments {
    pub(super) count: u64,
    pub(super) nonzero: u64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) sum: ExactSum,
    pub(super) squares: ExactSum,
}

impl ExactMoments {
    /// The moments of no values.
    pub const NONE: ExactMoments = ExactMoments {
        count: 0,
        nonzero: 0,
        low: f64::INFINITY,
        high: f64::NEG_INFINITY,
        sum: ExactSum::ZERO,
        squares: ExactSum::ZERO,
    };

    /// Adds a binary32 number.
    pub fn add(&mut self, x: f32) {
        self.add_times(x, 1);
    }

    /// Adds a binary32 number `times` times: a per-sequence value, once for each token of its sequence.
    pub fn add_times(&mut self, x: f32, times: u32) {
        let x = f64::from(x);
        self.count_in(x, times);
        self.squares.add_times(x * x, times);
    }

    /// Adds a binary64 number; its square is computed as an integer.
    ///
    /// Errors: NaN, an infinity, or a nonzero magnitude below 2⁻⁴⁵⁰ or from 2⁴⁵⁰ on (its square would not
    /// fit). Nothing is added then.
    pub fn add64(&mut self, x: f64) -> Result<(), Error> {
        let (bits, magnitude) = (x.to_bits(), x.abs());
        const RANGE: Range<f64> = f64::from_bits((1023 - 450) << 52)..f64::from_bits((1023 + 450) << 52);
        if x != 0.0 && !RANGE.contains(&magnitude) {
            return Err(require::value("value", None, "0 or a magnitude from 2^-450 to below 2^450", x));
        }
        self.count_in(x, 1);
        if x != 0.0 {
            let mantissa = u128::from((bits & ((1 << 52) - 1)) | 1 << 52);
            // x = mantissa · 2^e; `bit` is the position of 2^(2e).
            let exponent = (bits >> 52 & 0x7ff) as i32 - 1075;
            let (square, bit) = (mantissa * mantissa, (2 * exponent - LSB) as u32);
            self.squares.add_scaled(false, square as u64, bit);
            self.squares.add_scaled(false, (square >> 64) as u64, bit + 64);
        }
        Ok(())
    }

    fn count_in(&mut self, x: f64, times: u32) {
        if times == 0 {
            return;
        }
        // Drops the sign of −0, so that the extremes have one encoding.
        let x = if x == 0.0 { 0.0 } else { x };
        self.count += u64::from(times);
        self.nonzero += if x != 0.0 { times.into() } else { 0 };
        self.extremes(x, x);
        self.sum.add_times(x, times);
    }

    fn extremes(&mut self, low: f64, high: f64) {
        self.low = if low < self.low { low } else { self.low };
        self.high = if high > self.high { high } else { self.high };
    }

    /// Adds the moments of another rank. Any order and any tree of merges give the same moments.
    pub fn merge(&mut self, other: &ExactMoments) {
        // Decoded counts can be anything.
        self.count = self.count.saturating_add(other.count);
        self.nonzero = self.nonzero.saturating_add(other.nonzero);
        self.extremes(other.low, other.high);
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Σx, exact.
    pub fn sum(&self) -> &ExactSum {
        &self.sum
    }

    /// Mean; 0 without values.
    pub fn mean(&self) -> f64 {
        match self.count {
            0 => 0.0,
            _ if self.one_value() => self.low,
            n => num::canonical64(num::div64(self.sum.finish(), n as f64)),
        }
    }

    /// Σ(x − mean)²; NaN if a value was not finite.
    pub fn squares(&self) -> f64 {
        match self.count {
            0 => 0.0,
            _ if !self.sum.is_finite() => f64::from_bits(0x7ff8_0000_0000_0000),
            _ if self.one_value() => 0.0,
            n => num::div64(self.numerator(), n as f64),
        }
    }

    /// Σ(x − mean)² / (n − ddof); 0 if n ≤ ddof.
    pub fn variance(&self, ddof: u32) -> f64 {
        match self.count.checked_sub(ddof.into()) {
            None | Some(0) => 0.0,
            Some(freedom) => num::div64(self.squares(), freedom as f64),
        }
    }

    /// The moments in the order of [`moments`](crate::aggregate::moments), as
    /// [`Whiten`](crate::advantage::Whiten) reads them.
    pub fn moments(&self) -> [f64; MOMENTS] {
        let mut moments = [0.0; MOMENTS];
        moments[COUNT] = self.count as f64;
        moments[MEAN] = self.mean();
        moments[SQUARES] = self.squares();
        moments[LOW] = self.low;
        moments[HIGH] = self.high;
        moments[NONZERO] = self.nonzero as f64;
        moments
    }

    fn one_value(&self) -> bool {
        self.sum.is_finite() && self.low == self.high
    }

    /// n Σx² − (Σx)², rounded once: both are integers in units of 2^(2·LSB).
    fn numerator(&self) -> f64 {
        const WIDTH: usize = 2 * MAGNITUDE + 2;
        const ALIGN: usize = (-LSB / 32) as usize;
        let ((_, squares), (_, sum)) = (self.squares.magnitude(), self.sum.magnitude());
        let count = [self.count as u32, (self.count >> 32) as u32];
        let (mut numerator, mut square) = ([0; WIDTH], [0; WIDTH]);
        integer::add_product(&mut numerator, &count, &squares, ALIGN);
        integer::add_product(&mut square, &sum, &sum, 0);
        // Not negative, by the Cauchy–Schwarz inequality.
        integer::subtract(&mut numerator, &square);
        integer::round(&numerator, 2 * LSB)
    }
}

// The square of a sum and the sum of squares are aligned on limbs, and the smallest squares are multiples of
// the unit.
const _: () = assert!(LSB % 32 == 0 && LIMBS == 68 && 2 * (-450 - 52) >= LSB + SUBNORMAL as i32);

impl Default for ExactMoments {
    fn default() -> Self {
        ExactMoments::NONE
    }
}

impl Extend<f32> for ExactMoments {
    fn extend<I: IntoIterator<Item = f32>>(&mut self, values: I) {
        values.into_iter().for_each(|x| self.add(x));
    }
}

impl FromIterator<f32> for ExactMoments {
    fn from_iter<I: IntoIterator<Item = f32>>(values: I) -> Self {
        let mut moments = ExactMoments::NONE;
        moments.extend(values);
        moments
    }
}
