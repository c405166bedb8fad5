//! Log-ratios that a token shares with others: of its prefix, its segment, its sequence.
//!
//! **Formula** (docs/maths/correction.md), d = logp − logp_old, over the live tokens of a row:
//!
//! ```text
//! prefix          Σ_{j ≤ t} d_j                          the causal correction of a score term (2601.22718)
//! prefix before   Σ_{j < t} d_j
//! min before      min_{j < t} d_j + d_t, the minimum 0 for the first token        MinPRO-style (our reading)
//! min             min_{j ≤ t} d_j                        the cumulative minimum itself
//! sum, mean       Σ d, Σ d / L over the row, the same for all of its tokens
//! ```
//!
//! `cap_at_one`: a minimum above 0 counts as 0 (μ ≤ 1; `min before`, `min`).
//!
//! **Shapes**: `logp`, `logp_old`, `log_ratio` `[N]`; `offsets` `[R+1]`: sequences, or segments of tokens (turns, steps) for a log-ratio of
//! each segment.
//!
//! **Special cases**: masked tokens take no part and write 0; a minimum passes over them. **Accuracy**: sums in binary64 in the shape of
//! [`team::scan`](crate::team::scan), rounded once; minima are exact.
//!
//! **Gradient**: that of the ratio exp(log_ratio) by the token's own logp is the ratio itself; what other tokens contributed is a
//! constant (for `sum` and `mean`, as in GSPO-token).
//!
//! **Variants**: MinPRO's formula was not available: the reading is ours, with the exclusive minimum and the cap as defaults.

use crate::Error;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::flag;
use crate::ragged::{In, Mask, Offsets, Out, Stream};
use crate::team::{AddF64, Direction, Element, Lane, MinF32, Team};

/// Which log-ratio a token gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanKind {
    /// Σ of its prefix, itself included.
    Prefix,
    /// Σ of what stands before it.
    PrefixBefore,
    /// The least of what stands before it, plus its own: MinPRO-style (our reading).
    MinBefore,
    /// The least of its prefix, itself included.
    Min,
    /// Σ of its row.
    Sum,
    /// Mean of its row.
    Mean,
}

crate::launch_args!(
    enum ScanKind {
        Prefix,
        PrefixBefore,
        MinBefore,
        Min,
        Sum,
        Mean,
    }
);

/// The op `log_ratio_scan`.
#[derive(Debug)]
pub struct LogRatioScan<'a> {
    /// Offsets of sequences or segments, `[R+1]`.
    pub offsets: Offsets<'a>,
    /// Which tokens take part, `[N]`.
    pub loss_mask: Mask<'a>,
    /// Numerator, `[N]`.
    pub logp: In<'a, f32>,
    /// Denominator, `[N]`.
    pub logp_old: In<'a, f32>,
    /// Which log-ratio.
    pub kind: ScanKind,
    /// A minimum above 0 counts as 0.
    pub cap_at_one: bool,
    /// `[N]`.
    pub log_ratio: Out<'a, f32>,
    /// Row alarm, `[R]`: above [`flag::LIMIT`] if a live input is not a log-probability.
    pub row_alarm: Out<'a, u32>,
}

crate::kernel_args!(unsafe LogRatioScan<'_> { offsets, loss_mask, logp, logp_old, kind, cap_at_one, log_ratio, row_alarm });

impl Kernel for LogRatioScan<'_> {
    const NAME: &'static str = "log_ratio_scan";

    fn check_bounds(&self) -> Result<(), Error> {
        let (elements, rows) = self.offsets.sizes();
        crate::lengths!(self; elements => loss_mask, logp, logp_old, log_ratio; rows => row_alarm);
        Ok(())
    }

    fn rows(&self) -> usize {
        self.offsets.rows()
    }

    fn work(&self, row: usize) -> usize {
        self.offsets.span(row).len()
    }

    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (span, mask, out) = (self.offsets.span(row), self.loss_mask, *self.log_ratio);
        let (logp, old, cap) = (self.logp, self.logp_old, self.cap_at_one);
        let swept = team.sweep(span, mask, [Stream::Array(logp), Stream::Array(old)], [], &LogRatio);
        // What stands before a token is a scan of the row moved up by one.
        let back = usize::from(matches!(self.kind, ScanKind::PrefixBefore | ScanKind::MinBefore));
        let d = move |i: usize| logp.at(i) - old.at(i);
        let there = move |i: usize| i >= span.start + back && mask.at(i - back);
        match self.kind {
            ScanKind::Prefix | ScanKind::PrefixBefore => team.scan(
                AddF64,
                span,
                Direction::Prefix,
                move |i| if there(i) { f64::from(d(i - back)) } else { 0.0 },
                move |i, y| out.put(i, if mask.at(i) { num::canonical(y as f32) } else { 0.0 }),
            ),
            ScanKind::MinBefore | ScanKind::Min => team.scan(
                MinF32,
                span,
                Direction::Prefix,
                move |i| if there(i) { d(i - back) } else { f32::INFINITY },
                move |i, least| {
                    // Nothing before: the factor is 1.
                    let least = if least == f32::INFINITY { 0.0 } else { least };
                    let least = if cap { num::min(least, 0.0) } else { least };
                    let y = if back == 1 { least + d(i) } else { least };
                    out.put(i, if mask.at(i) { num::canonical(y) } else { 0.0 });
                },
            ),
            ScanKind::Sum | ScanKind::Mean => {
                let n = team.count(span, mask) as f64;
                let divisor = if self.kind == ScanKind::Mean && n > 1.0 { n } else { 1.0 };
                let y = num::canonical(num::div64(swept.sums[0], divisor) as f32);
                team.for_each(span, move |i| out.put(i, if mask.at(i) { y } else { 0.0 }));
            }
        }
        if team.leads() {
            self.row_alarm.put(row, swept.alarm);
        }
    }
}

struct LogRatio;

impl Element<2, 0, 1, 0> for LogRatio {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 1, 0> {
        let alarm = flag::worse(flag::logp(input(0)), flag::logp(input(1)));
        Lane { out: [], sum: [input(0) - input(1)], max: [], alarm }
    }
}
