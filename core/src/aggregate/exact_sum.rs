//! Exact sums of device arrays, as digits that stay exact in any order of addition.
//!
//! **Formula**: a finite value is ± an integer in units of 2⁻¹⁰⁸⁸; its k-th digit in base 2²⁴ carries the
//! value's sign. For each block b of 4096 values and each plane p, the op sums the digits of the block:
//!
//! ```text
//! digits[p][b] = Σ_{i in block b, live} digit_{FIRST + p}(x_i)
//! Σ x          = Σ_p Σ_b digits[p][b] · 2^(24 (FIRST + p) − 1088)
//! ```
//!
//! Four more planes count the live values that are finite, NaN, +∞ and −∞. Everything is an integer: below
//! 2³⁶ for a block, below 2⁵³ for 2²⁹ values, so the digits of blocks, ranks and micro-batches may be added
//! as `f64` in any order without loss, by the op `fold_rows` or by an all-reduce.
//! [`ExactSum::from_digits`](super::exact::ExactSum::from_digits) turns them into the sum.
//!
//! **Shapes**: `values` `[N]`, `mask` `[N]`, `digits` `[PLANES][⌈N/4096⌉]`; 92 planes for `f64`, 28 for
//! `f32`, whose digits FIRST to FIRST + 23 cover values and squares of values.
//!
//! **Special cases**: masked values are ignored. Without values there are no blocks.
//!
//! **Cost**: a row computes four planes of a block, so a block is read 23 times (`f64`) or 7 times (`f32`)
//! from cache: about 40 integer operations per value and plane. It is meant for per-row partial sums; on a
//! CPU, [`ExactSum`](super::exact::ExactSum) itself is faster.

use crate::Error;
use crate::op::Kernel;
use crate::ragged::{In, Mask, Out, Span};
use crate::require;
use crate::team::Team;

/// Values per block.
pub const BLOCK: usize = 4096;
/// Bits per digit.
pub const DIGIT: usize = 24;
/// Number of planes after the digits, one per class of value.
pub const CLASSES: usize = 4;
/// Class of finite values.
pub const FINITE: usize = 0;
/// Class of NaN.
pub const NAN: usize = 1;
/// Class of +∞.
pub const POSITIVE: usize = 2;
/// Class of −∞.
pub const NEGATIVE: usize = 3;
/// Digits are exact below this bound, 2⁵³.
pub const LIMIT: f64 = 9_007_199_254_740_992.0;

/// Planes computed by one row.
const PER_ROW: usize = 4;
/// Position of the smallest subnormal's bit, in units of 2⁻¹⁰⁸⁸.
const SUBNORMAL: i32 = 14;

/// Number of blocks for `values` values.
pub const fn blocks(values: usize) -> usize {
    values.div_ceil(BLOCK)
}

/// Length of `digits` for `values` values.
pub const fn digits<V: Summand>(values: usize) -> usize {
    V::PLANES * blocks(values)
}

/// Position of the lowest bit of a plane, in units of 2⁻¹⁰⁸⁸.
pub const fn first_bit<V: Summand>(plane: usize) -> usize {
    DIGIT * (V::FIRST + plane)
}

/// Index of the plane that counts finite values; the other classes follow it.
pub const fn first_class<V: Summand>() -> usize {
    V::PLANES - CLASSES
}

/// A type whose values can be summed exactly.
pub trait Summand: Copy {
    /// Name of the op.
    const NAME: &'static str;
    /// The lowest digit that a value or its square can have.
    const FIRST: usize;
    /// Number of planes: the digits, then the classes.
    const PLANES: usize;
    /// Whether the square of every value is exact in binary64.
    const SQUARES: bool;

    /// The value in binary64.
    fn widen(self) -> f64;
}

impl Summand for f64 {
    const NAME: &'static str = "exact_sum";
    const FIRST: usize = 0;
    const PLANES: usize = 88 + CLASSES;
    const SQUARES: bool = false;

    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
}

impl Summand for f32 {
    const NAME: &'static str = "exact_sum_f32";
    /// 2⁻²⁹⁸ is at bit 790.
    const FIRST: usize = 32;
    /// 2²⁵⁵ is at bit 1343.
    const PLANES: usize = 24 + CLASSES;
    const SQUARES: bool = true;

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self)
    }
}

crate::kernel! {
    /// The ops `exact_sum` (`f64`) and `exact_sum_f32`: digits of the exact sum of each block of values.
    pub struct ExactDigits<'a, V: Summand> {
        /// Values, `[N]`.
        pub values: In<'a, V>,
        /// Values that count, `[N]`.
        pub mask: Mask<'a> [values],
        /// Whether to sum squares instead of values; `f32` only.
        pub square: bool,
        /// Digits, then counts of each class, `[PLANES][blocks]`.
        pub digits: Out<'a, f64>,
    }
    unsafe V::NAME, rows |k| Self::GROUPS * blocks(k.values.len()), work |_, _| BLOCK,
        require |k| k.check_digits(),
        let values = |k| k.values.len(),
        check |k| k.check_digits();
}

impl<V: Summand> ExactDigits<'_, V> {
    /// Rows per block.
    const GROUPS: usize = V::PLANES / PER_ROW;

    /// Checks that squares are only asked of `f32` values and that `digits` has [`digits`] entries.
    fn check_digits(&self) -> Result<(), Error> {
        if self.square && !V::SQUARES {
            let expected = "only for f32 values, whose squares are exact in binary64";
            return Err(Error::Combination { argument: "square", expected });
        }
        let (expected, because) = (digits::<V>(self.values.len()), "planes times blocks of 4096 values");
        require::length("digits", expected, because, self.digits.len())
    }
}

impl<V: Summand> Kernel for ExactDigits<'_, V> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let blocks = blocks(self.values.len());
        // Division by a constant: a GPU divides by a variable in floating point, and checks for 0.
        let (block, group) = (row / Self::GROUPS, row % Self::GROUPS);
        let start = block * BLOCK;
        let end = if start + BLOCK < self.values.len() { start + BLOCK } else { self.values.len() };
        let (values, mask, square) = (self.values, self.mask, self.square);
        let [a, b, c, d] = team.sum(Span::new(start, end), move |i| {
            let x = values.at(i).widen();
            let x = if square { x * x } else { x };
            let parts = Parts::of(x, mask.at(i));
            [
                parts.digit::<V>(group),
                parts.digit::<V>(group + Self::GROUPS),
                parts.digit::<V>(group + 2 * Self::GROUPS),
                parts.digit::<V>(group + 3 * Self::GROUPS),
            ]
        });
        if team.leads() {
            let (first, step) = (group * blocks + block, Self::GROUPS * blocks);
            self.digits.put(first, a);
            self.digits.put(first + step, b);
            self.digits.put(first + 2 * step, c);
            self.digits.put(first + 3 * step, d);
        }
    }
}

/// A binary64 number, decomposed.
#[derive(Clone, Copy)]
struct Parts {
    /// 0 if the value is masked or not finite.
    mantissa: u64,
    /// Position of its lowest bit, in units of 2⁻¹⁰⁸⁸.
    position: i32,
    negative: bool,
    /// Class of a live value; no class if masked.
    class: usize,
}

impl Parts {
    #[inline(always)]
    fn of(x: f64, live: bool) -> Parts {
        let bits = x.to_bits();
        let (exponent, fraction) = ((bits >> 52) as i32 & 0x7ff, bits & 0x000f_ffff_ffff_ffff);
        let negative = bits >> 63 != 0;
        let finite = exponent != 0x7ff;
        let implicit = u64::from(exponent != 0) << 52;
        let mantissa = if live & finite { fraction | implicit } else { 0 };
        let infinity = if negative { NEGATIVE } else { POSITIVE };
        let special = if fraction != 0 { NAN } else { infinity };
        let class = if finite { FINITE } else { special };
        let position = SUBNORMAL - i32::from(exponent != 0) + exponent;
        Parts { mantissa, position, negative, class: if live { class } else { CLASSES } }
    }

    /// Contribution of the number to a plane.
    #[inline(always)]
    fn digit<V: Summand>(self, plane: usize) -> f64 {
        let up = self.position - first_bit::<V>(plane) as i32;
        // At most one of the two shifts is nonzero; past the last digit nothing is left of the mantissa.
        let left = if up < 0 {
            0
        } else if up < DIGIT as i32 {
            up
        } else {
            DIGIT as i32
        };
        let right = if up > 0 {
            0
        } else if up > -63 {
            -up
        } else {
            63
        };
        let digit = (((self.mantissa << left) >> right) & 0x00ff_ffff) as i32;
        let signed = if self.negative { -digit } else { digit };
        f64::from(signed + i32::from(plane == first_class::<V>() + self.class))
    }
}
