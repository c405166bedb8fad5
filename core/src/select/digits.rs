//! The n-th largest key of a batch, found three bits at a time.
//!
//! **Formula**: the state is a prefix of the n-th largest key and the number of keys still wanted among those
//! with that prefix. A pass counts, in each row, the keys with that prefix by their next digit; going through
//! the batch's totals from the largest digit down gives the digit of the last wanted key. After the passes of
//! [`SHIFTS`] the prefix is the key itself.
//!
//! **Shapes**: `keys` `[N]`, `counts` `[8][R]`, states `[2]` (prefix, wanted), `ties_before` `[R]`.
//!
//! **Special cases**: if more are wanted than there are candidates, all candidates are selected. If nothing
//! is wanted, or there is no candidate, the prefix becomes the largest number with 0 wanted, which selects
//! nothing.

use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Span};
use crate::team::{AddF64, Direction, Team};

/// Number of values of a three-bit digit.
pub const DIGITS: usize = 8;
/// The bit position of the digit in each pass.
pub const SHIFTS: [u32; 11] = [30, 27, 24, 21, 18, 15, 12, 9, 6, 3, 0];

/// Whether `key` and `prefix` agree in the digits above the one at `shift`.
#[inline(always)]
fn begins(key: u32, prefix: u32, shift: u32) -> bool {
    // The first digit shifts by 33 bits: every key has the empty prefix.
    u64::from(key) >> (shift + 3) == u64::from(prefix) >> (shift + 3)
}

crate::kernel! {
    /// The op `digit_counts`: counts each row's keys with a given prefix by their next digit.
    pub struct DigitCounts<'a> {
        /// Offsets of rows, `[R+1]`.
        pub offsets: Offsets<'a>,
        /// Keys, `[N]`; 0 is not counted.
        pub keys: In<'a, u32> [elements],
        /// Prefix and number wanted, `[2]`.
        pub state: In<'a, u32> [2],
        /// Bit position of the digit, one of [`SHIFTS`].
        pub shift: u32,
        /// Number of keys by digit and row, `[8][R]`.
        pub counts: Out<'a, u32> [DIGITS * rows],
    }
    unsafe "digit_counts", over offsets (elements, rows);
}

impl Kernel for DigitCounts<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (keys, prefix, shift) = (self.keys, self.state.at(0), self.shift);
        let counts: [f64; DIGITS] = team.sum(self.offsets.span(row), move |i| {
            let key = keys.at(i);
            let digit = (key >> shift) & 7;
            let counted = (key != 0) & begins(key, prefix, shift);
            let one = |k: u32| if counted & (digit == k) { 1.0 } else { 0.0 };
            [one(0), one(1), one(2), one(3), one(4), one(5), one(6), one(7)]
        });
        if team.leads() {
            let rows = self.offsets.rows();
            for (k, count) in counts.into_iter().enumerate() {
                // A row has fewer than 2³² elements, because its offsets are u32.
                self.counts.put(k * rows + row, count as u32);
            }
        }
    }
}

crate::kernel! {
    /// The op `narrow_digits`: appends the next digit of the n-th largest key to the prefix.
    pub struct NarrowDigits<'a> {
        /// Output of [`DigitCounts`], `[8][R]`.
        pub counts: In<'a, u32> [rows.saturating_mul(DIGITS)],
        /// Number of rows, R.
        pub rows: usize,
        /// Prefix and number wanted before this pass, `[2]`; 0 and n before the first.
        pub state: In<'a, u32> [2],
        /// Bit position of the digit, one of [`SHIFTS`].
        pub shift: u32,
        /// Prefix and number wanted after this pass, `[2]`.
        pub narrowed: Out<'a, u32> [2],
        /// For each row, the number of keys with the new prefix in preceding rows, `[R]`.
        pub ties_before: Out<'a, u32> [rows],
    }
    unsafe "narrow_digits", rows |_| 1, work |k, _| DIGITS * k.rows,
        let rows = |k| k.rows;
}

impl Kernel for NarrowDigits<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, _row: usize) {
        let (counts, rows, ties_before) = (self.counts, self.rows, *self.ties_before);
        let span = Span::new(0, rows);
        let at = move |digit: usize, r: usize| f64::from(counts.at(digit * rows + r));
        let totals: [f64; DIGITS] = team.sum(span, move |r| {
            [at(0, r), at(1, r), at(2, r), at(3, r), at(4, r), at(5, r), at(6, r), at(7, r)]
        });
        let all = totals.iter().fold(0.0, |sum, total| sum + total);
        let wanted = f64::from(self.state.at(1));
        let wanted = if wanted < all { wanted } else { all };
        // From the largest digit down, until all wanted keys are covered.
        let (mut digit, mut left, mut found) = (7, wanted, wanted == 0.0);
        for (k, &total) in totals.iter().enumerate().rev() {
            let here = !found & (total >= left);
            digit = if here { k } else { digit };
            left = if found | here { left } else { left - total };
            found |= here;
        }
        team.scan(
            AddF64,
            span,
            Mask::all(),
            Direction::Prefix,
            move |r| at(digit, r),
            move |r, sum| ties_before.put(r, (sum - at(digit, r)) as u32),
        );
        if team.leads() {
            // In the digit at bit 30 only two bits remain.
            let bits = (digit as u64) << self.shift;
            self.narrowed.put(0, self.state.at(0) | bits as u32);
            self.narrowed.put(1, left as u32);
        }
    }
}
