//! Effective sample size of importance weights, and the learning-rate factor that VCPO derives from it.
//!
//! **Formula** (VCPO 2602.17616; docs/maths/correction.md), over the counted weights of a row:
//!
//! ```text
//! ESS = (Σ w)² / (Σ w² + eps)                     eps 1e-8
//! lr_eff = lr · sqrt(min(1, ESS / n / ρ_base))    rule sqrt (AdamW); linear without the root (SGD)
//! ```
//!
//! **Shapes**: `weights` `[N]`; `row_sums` `[2][R]` (Σ w, Σ w²), `row_ess` `[R]`. Rows are sequences of
//! tokens, groups of sequences, or one row for the batch. The sums of several ranks can be added and passed
//! to [`ess`].
//!
//! **Special cases**: if no weight is counted, the ESS and the learning rate are 0.
//!
//! **Accuracy**: binary64.

use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::flag;
use crate::ragged::{In, Mask, Offsets, Out, Stream};
use crate::team::{Element, Lane, Team};

/// The eps that VCPO adds to Σ w².
pub const EPS: f64 = 1e-8;

/// The effective sample size (Σ w)² / (Σ w² + eps), with `total` = Σ w and `squares` = Σ w²; 0 if the divisor
/// is 0.
#[inline(always)]
pub fn ess(total: f64, squares: f64, eps: f64) -> f64 {
    let divisor = squares + eps;
    if divisor > 0.0 { num::div64(total * total, divisor) } else { 0.0 }
}

/// The rule that turns an effective sample size into a factor of the learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LrRule {
    /// The square root of the ratio, for optimisers that divide by a root of squared gradients (AdamW).
    Sqrt,
    /// The ratio itself, for SGD.
    Linear,
}

/// The factor of the learning rate for an effective sample size of `ess` out of `count` samples.
///
/// It is min(1, ess / count / rho_base), or the square root of that, as `rule` says (VCPO 2602.17616).
/// `rho_base` is the ratio ess / count at which the learning rate is not reduced. The factor is 0 without
/// samples.
#[inline(always)]
pub fn lr_scale<A: Arith>(ess: f64, count: f64, rho_base: f64, rule: LrRule) -> f64 {
    let ratio = if count > 0.0 { num::div64(num::div64(ess, count), rho_base) } else { 0.0 };
    let ratio = if ratio < 1.0 { ratio } else { 1.0 };
    match rule {
        LrRule::Sqrt => A::sqrt64(ratio),
        LrRule::Linear => ratio,
    }
}

crate::kernel! {
    /// The op `effective_sample_size`: the effective sample size of each row.
    pub struct EffectiveSampleSize<'a> {
        /// Offsets of rows, `[R+1]`.
        pub offsets: Offsets<'a>,
        /// Which weights are counted, `[N]`.
        pub mask: Mask<'a> [elements],
        /// Importance weights, `[N]`.
        pub weights: In<'a, f32> [elements],
        /// Added to Σ w².
        pub eps: f64,
        /// Σ w and Σ w², `[2][R]`.
        pub row_sums: Out<'a, f64> [2 * rows],
        /// Effective sample size, `[R]`.
        pub row_ess: Out<'a, f64> [rows],
        /// Row alarm, `[R]`: above [`flag::LIMIT`] if a counted weight is not a finite number of at least 0.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe "effective_sample_size", over offsets (elements, rows);
}

impl Kernel for EffectiveSampleSize<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (span, mask, weights) = (self.offsets.span(row), self.mask, self.weights);
        let swept = team.sweep(span, mask, [Stream::Array(weights)], [], &Weight);
        // Squares in binary64, because the square of a large weight overflows binary32.
        let [squares] = team.sum(span, move |i| {
            let w = f64::from(weights.at(i));
            [if mask.at(i) { w * w } else { 0.0 }]
        });
        if team.leads() {
            let [total] = swept.sums;
            self.row_sums.put(row, total);
            self.row_sums.put(self.offsets.rows() + row, squares);
            self.row_ess.put(row, num::canonical64(ess(total, squares, self.eps)));
            self.row_alarm.put(row, swept.alarm);
        }
    }
}

struct Weight;

impl Element<1, 0, 1, 0> for Weight {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 1, 0> {
        Lane { out: [], sum: [input(0)], max: [], alarm: flag::weight(input(0)) }
    }
}
