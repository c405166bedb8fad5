//! The exact accumulator.

use super::integer;
use crate::Error;
use crate::aggregate::exact_sum::{self, Summand};
use crate::require;

/// Number of 32-bit limbs; the last one is 64 bits wide and holds the remainder.
pub(super) const LIMBS: usize = 68;
/// Limbs of a magnitude: the last limb of the sum takes two.
pub(super) const MAGNITUDE: usize = LIMBS + 1;
/// Exponent of the lowest bit: a multiple of 32 below −1074, so that squares of sums align with sums of
/// squares.
pub(super) const LSB: i32 = -1088;
/// Position of the smallest subnormal's bit.
pub(super) const SUBNORMAL: u32 = (-1074 - LSB) as u32;
const LOW: i64 = 0xffff_ffff;
/// Additions between two carry propagations: each adds less than 2³³ to a limb, and 2³³ · 2²⁹ + 2³² < 2⁶³.
const CAPACITY: u32 = 1 << 29;

/// A sum of binary64 numbers that is exact until [`finish`](ExactSum::finish).
///
/// **Formula**: Σ limbᵢ · 2^(32i − 1088) with 68 signed limbs; every finite binary64 number is an integer
/// multiple of that unit, 2⁻¹⁰⁸⁸. A number is split over three neighbouring limbs; carries are propagated
/// every 2²⁹ additions, before a merge and before any read. There is room for 2⁶⁴ numbers of the largest
/// magnitude.
///
/// **Special cases**: an exact zero is +0, whatever the signs of the zeros added. A NaN, or infinities of
/// both signs, gives the canonical NaN; infinities of one sign give that infinity. A sum that rounds past the
/// largest finite number is the infinity of its sign; partial sums never overflow, so `MAX + MAX − MAX` is
/// `MAX`.
///
/// **Accuracy**: correctly rounded, to nearest, ties to even, subnormal results included.
///
/// **Equality** compares the exact sums: two equal partial sums serialise to the same bytes.
///
/// ```
/// use lockstep_core::aggregate::exact::ExactSum;
/// let [a, b]: [ExactSum; 2] =
///     [[1e308, 1.0].into_iter().collect(), [1e308, -1e308, -1e308].into_iter().collect()];
/// let mut sum = b;
/// sum.merge(&a);
/// assert_eq!(sum.finish(), 1.0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ExactSum {
    limbs: [i64; LIMBS],
    /// Additions since the limbs were last in 0..2³² (except the last limb).
    pending: u32,
    pub(super) nan: bool,
    /// Whether +∞ and −∞ were added.
    pub(super) infinite: [bool; 2],
}

impl ExactSum {
    /// The empty sum.
    pub const ZERO: ExactSum = ExactSum { limbs: [0; LIMBS], pending: 0, nan: false, infinite: [false; 2] };

    /// Adds a number; three limbs change.
    pub fn add(&mut self, x: f64) {
        if let Some((negative, mantissa, bit)) = self.finite_part(x) {
            self.add_scaled(negative, mantissa, bit);
        }
    }

    /// Adds a number `times` times.
    pub fn add_times(&mut self, x: f64, times: u32) {
        if times == 0 {
            return;
        }
        if let Some((negative, mantissa, bit)) = self.finite_part(x) {
            let times = u64::from(times);
            self.add_scaled(negative, (mantissa & LOW as u64) * times, bit);
            self.add_scaled(negative, (mantissa >> 32) * times, bit + 32);
        }
    }

    /// Returns sign, mantissa and the position of the mantissa's lowest bit; records NaN and infinities, and
    /// returns `None` for them.
    fn finite_part(&mut self, x: f64) -> Option<(bool, u64, u32)> {
        let bits = x.to_bits();
        let (negative, exponent, fraction) =
            (bits >> 63 != 0, (bits >> 52) as u32 & 0x7ff, bits & ((1 << 52) - 1));
        match exponent {
            0x7ff => {
                self.nan |= fraction != 0;
                self.infinite[usize::from(negative)] |= fraction == 0;
                None
            }
            0 => Some((negative, fraction, SUBNORMAL)),
            _ => Some((negative, fraction | 1 << 52, SUBNORMAL - 1 + exponent)),
        }
    }

    /// Adds ±`magnitude` · 2^(bit − 1088). Bits beyond the last limb are a caller error.
    pub(super) fn add_scaled(&mut self, negative: bool, magnitude: u64, bit: u32) {
        let (first, shift) = ((bit / 32) as usize, bit % 32);
        let (low, high) = ((magnitude & LOW as u64) << shift, (magnitude >> 32) << shift);
        let sign = if negative { -1 } else { 1 };
        self.limbs[first] += sign * (low as i64 & LOW);
        self.limbs[first + 1] += sign * ((low >> 32) as i64 + (high as i64 & LOW));
        self.limbs[first + 2] += sign * (high >> 32) as i64;
        self.pending += 1;
        if self.pending >= CAPACITY {
            self.normalise();
        }
    }

    /// Adds another sum. Any order and any tree of merges give the same sum.
    pub fn merge(&mut self, other: &ExactSum) {
        let other = other.normalised();
        for (limb, more) in self.limbs.iter_mut().zip(other.limbs) {
            *limb += more;
        }
        self.nan |= other.nan;
        self.infinite[0] |= other.infinite[0];
        self.infinite[1] |= other.infinite[1];
        self.pending += 1;
        if self.pending >= CAPACITY {
            self.normalise();
        }
    }

    /// Returns the sum, rounded once, to nearest.
    pub fn finish(&self) -> f64 {
        match (self.nan, self.infinite) {
            (true, _) | (_, [true, true]) => f64::from_bits(0x7ff8_0000_0000_0000),
            (_, [true, false]) => f64::INFINITY,
            (_, [false, true]) => f64::NEG_INFINITY,
            _ => {
                let (negative, magnitude) = self.magnitude();
                let rounded = integer::round(&magnitude, LSB);
                if negative { -rounded } else { rounded }
            }
        }
    }

    /// Whether no NaN and no infinity was added.
    pub fn is_finite(&self) -> bool {
        !(self.nan || self.infinite[0] || self.infinite[1])
    }

    /// Builds the sum from the `digits` of an [`exact_sum`] op, `[PLANES][blocks]`, or `[PLANES]` after a
    /// `fold_rows` over the blocks. Also returns the number of live values.
    ///
    /// Errors: a length that is not a multiple of the number of planes of `V`; a digit that is not an integer
    /// below 2⁵³ (with its index).
    pub fn from_digits<V: Summand>(digits: &[f64]) -> Result<(ExactSum, u64), Error> {
        let (planes, first_class) = (V::PLANES, exact_sum::first_class::<V>());
        if !digits.len().is_multiple_of(planes) {
            let because = "a multiple of the number of planes";
            return Err(Error::Length { argument: "digits", expected: planes, because, got: digits.len() });
        }
        let blocks = digits.len() / planes;
        let (mut sum, mut count) = (ExactSum::ZERO, 0);
        for (i, &digit) in digits.iter().enumerate() {
            let (plane, magnitude) = (i / blocks, digit.abs());
            let least = if plane < first_class { -exact_sum::LIMIT } else { 0.0 };
            let whole =
                digit >= least && magnitude < exact_sum::LIMIT && (magnitude as u64) as f64 == magnitude;
            if !whole {
                let expected = "an integer below 2^53 in magnitude, at least 0 for a count";
                return Err(require::value("digits", Some(i), expected, digit));
            }
            if plane < first_class {
                sum.add_scaled(digit < 0.0, magnitude as u64, exact_sum::first_bit::<V>(plane) as u32);
                continue;
            }
            count += magnitude as u64;
            match plane - first_class {
                exact_sum::NAN => sum.nan |= digit > 0.0,
                exact_sum::POSITIVE => sum.infinite[0] |= digit > 0.0,
                exact_sum::NEGATIVE => sum.infinite[1] |= digit > 0.0,
                _ => {}
            }
        }
        Ok((sum, count))
    }

    /// Propagates carries: every limb but the last ends up in 0..2³². This form is unique for each sum.
    fn normalise(&mut self) {
        for k in 0..LIMBS - 1 {
            self.limbs[k + 1] += self.limbs[k] >> 32;
            self.limbs[k] &= LOW;
        }
        self.pending = 0;
    }

    fn normalised(&self) -> ExactSum {
        let mut sum = *self;
        sum.normalise();
        sum
    }

    /// The limbs in normal form.
    pub(super) fn digits(&self) -> [i64; LIMBS] {
        self.normalised().limbs
    }

    /// Builds a sum from limbs in normal form.
    pub(super) fn from_limbs(limbs: [i64; LIMBS]) -> ExactSum {
        ExactSum { limbs, ..ExactSum::ZERO }
    }

    /// Sign and magnitude of the finite part.
    pub(super) fn magnitude(&self) -> (bool, [u32; MAGNITUDE]) {
        let mut sum = self.normalised();
        let negative = sum.limbs[LIMBS - 1] < 0;
        if negative {
            sum.limbs.iter_mut().for_each(|limb| *limb = -*limb);
            sum.normalise();
        }
        let mut magnitude = [0; MAGNITUDE];
        for (to, limb) in magnitude.iter_mut().zip(sum.limbs) {
            *to = limb as u32;
        }
        magnitude[LIMBS] = (sum.limbs[LIMBS - 1] >> 32) as u32;
        (negative, magnitude)
    }
}

impl Default for ExactSum {
    fn default() -> Self {
        ExactSum::ZERO
    }
}

impl PartialEq for ExactSum {
    fn eq(&self, other: &Self) -> bool {
        (self.nan, self.infinite, self.digits()) == (other.nan, other.infinite, other.digits())
    }
}

impl Eq for ExactSum {}

impl Extend<f64> for ExactSum {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, values: I) {
        values.into_iter().for_each(|x| self.add(x));
    }
}

impl FromIterator<f64> for ExactSum {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut sum = ExactSum::ZERO;
        sum.extend(values);
        sum
    }
}
