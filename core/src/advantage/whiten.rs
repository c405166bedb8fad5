//! Whitening: values centred and scaled by the moments of a batch.
//!
//! **Formula** (verl's masked_whiten; REINFORCE++ 2501.03262; GDPO 2601.05242; `statistics.md` and
//! `advantages.md` in docs/maths):
//!
//! ```text
//! y = (x − mean) / divisor,    variance = SQUARES / (COUNT − ddof)
//! divisor = sqrt(variance + eps) | sqrt(max(variance, eps)) | sqrt(variance) + eps | 1
//! ```
//!
//! Without `centre` the mean is not subtracted (`y = x / divisor`).
//!
//! **Shapes**: `values`, `whitened` `[N]`; `offsets` `[R+1]`; `moments` `[6]` of the same batch, which
//! [`RowMoments`](crate::aggregate::RowMoments) and [`FoldMoments`](crate::aggregate::FoldMoments) left on
//! the device. The elements are tokens, with sequences as rows; or sequences, with groups as rows, and
//! moments that count tokens (REINFORCE++'s baseline variant, GDPO in verl: long responses dominate the
//! statistics) or sequences (TRL, NeMo).
//!
//! **Special cases**: masked elements, and NaNs that mean "no value", get 0. If all values are equal
//! (LOW = HIGH, decided on the inputs), or there are fewer than two, every result is 0 (verl raises an error
//! for one).
//!
//! **Accuracy**: binary64, rounded to `f32` once.
//!
//! **Variants** (docs/maths/disagreements.md, row 3), by [`Divisor`] and eps: `Inside` 1e-8 with ddof 1
//! (verl); `Floor` 1e-8 with ddof 0 (NeMo), 1e-6 (MSSR); `Outside` 1e-4 (TRL's GDPO); `Outside` 0 (NeMo's
//! GDPO); `One` (MARS's mode `mean`).

use crate::aggregate::moments;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{In, Mask, Offsets, Out, Stream, flag};
use crate::team::{Element, Lane, Team};

/// How the divisor is formed from the variance and eps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divisor {
    /// sqrt(variance + eps).
    Inside,
    /// sqrt(max(variance, eps)).
    Floor,
    /// sqrt(variance) + eps.
    Outside,
    /// No division: MARS's mode `mean`.
    One,
}

crate::launch_args!(
    enum Divisor {
        Inside,
        Floor,
        Outside,
        One,
    }
);

crate::kernel! {
    /// The op `whiten`: one whitened value per element.
    pub struct Whiten<'a> {
        /// Offsets of rows, `[R+1]`; they only divide the work.
        pub offsets: Offsets<'a>,
        /// Which elements take part, `[N]`.
        pub mask: Mask<'a> [elements],
        /// Values to whiten, `[N]`.
        pub values: In<'a, f32> [elements],
        /// Whether a NaN means "no value"; otherwise it raises the alarm.
        pub nan_is_missing: bool,
        /// Moments of the batch, `[6]`; see [`moments`].
        pub moments: In<'a, f64> [moments::MOMENTS],
        /// Whether the mean is subtracted.
        pub centre: bool,
        /// How the divisor is formed.
        pub divisor: Divisor,
        /// 1 = unbiased variance, 0 = population variance.
        pub ddof: u32,
        /// Added to, or the lower bound of, the variance or its root; see [`Divisor`]. At least 0.
        pub eps: f64,
        /// Whitened values, `[N]`.
        pub whitened: Out<'a, f32> [elements],
        /// Row alarm, `[R]`: above [`flag::LIMIT`] if a value or a result is not finite.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe "whiten", over offsets (elements, rows),
        require |k| super::Scale::Std { ddof: k.ddof, eps: k.eps }.check();
}

impl Whiten<'_> {
    #[inline(always)]
    fn affine<A: Arith>(&self) -> Line {
        let variance = moments::variance(self.moments, self.ddof);
        let root = |x: f64| A::sqrt64(x);
        let divisor = match self.divisor {
            Divisor::Inside => root(variance + self.eps),
            Divisor::Floor => root(if variance > self.eps { variance } else { self.eps }),
            Divisor::Outside => root(variance) + self.eps,
            Divisor::One => 1.0,
        };
        let one_value = self.moments.at(moments::LOW) == self.moments.at(moments::HIGH);
        let zero = self.moments.at(moments::COUNT) < 2.0 || one_value;
        let mean = if self.centre { self.moments.at(moments::MEAN) } else { 0.0 };
        Line { mean, divisor, zero, nan_is_missing: self.nan_is_missing }
    }
}

impl Kernel for Whiten<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let span = self.offsets.span(row);
        let line = self.affine::<T::Arith>();
        let (ins, outs) = ([Stream::Array(self.values)], [Some(*self.whitened)]);
        let alarm = team.sweep(span, self.mask, ins, outs, &line).alarm;
        if team.leads() {
            self.row_alarm.put(row, alarm);
        }
    }
}

#[derive(Clone, Copy)]
struct Line {
    mean: f64,
    divisor: f64,
    zero: bool,
    nan_is_missing: bool,
}

impl Element<1, 1, 0, 0> for Line {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<1, 0, 0> {
        let x = input(0);
        let missing = self.nan_is_missing & x.is_nan();
        let y = num::canonical(num::div64(f64::from(x) - self.mean, self.divisor) as f32);
        let out = if self.zero | missing { 0.0 } else { y };
        let alarm = flag::worse(flag::finite(x), flag::finite(out));
        Lane { out: [out], sum: [], max: [], alarm: if missing { 0 } else { alarm } }
    }
}
