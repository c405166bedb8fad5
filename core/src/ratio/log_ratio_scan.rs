//! Log-ratios accumulated over a token's prefix, segment or sequence.
//!
//! **Formula** (docs/maths/correction.md), with d = logp − logp_old, over the L live tokens of a row:
//!
//! ```text
//! prefix          Σ_{j ≤ t} d_j                          the causal correction of a score term (2601.22718)
//! prefix before   Σ_{j < t} d_j
//! min before      min_{j < t} d_j + d_t, the minimum 0 for the first token        MinPRO-style (our reading)
//! min             min_{j ≤ t} d_j                        the cumulative minimum itself
//! sum, mean       Σ d, Σ d / L over the row, the same for all of its tokens
//! ```
//!
//! With `cap_at_one`, a minimum above 0 counts as 0 (so that its ratio μ ≤ 1; for `min before` and `min`).
//!
//! **Shapes**: `logp`, `logp_old`, `log_ratio` `[N]`, in nats; `offsets` `[R+1]`, whose rows are sequences,
//! or segments of tokens (turns, steps) for a log-ratio per segment.
//!
//! **Special cases**: masked tokens are skipped and write 0.
//!
//! **Accuracy**: sums in binary64 in the shape of [`team::scan`](crate::team::scan), rounded once; minima are
//! exact.
//!
//! **Gradient**: the derivative of the ratio exp(log_ratio) with respect to the token's own logp is the ratio
//! itself; the contributions of other tokens are constants (for `sum` and `mean`, as in GSPO-token).
//!
//! **Variants**: MinPRO's formula was not available, so the reading is ours, with the exclusive minimum and
//! the cap as defaults.

use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::flag;
use crate::ragged::{In, Mask, Offsets, Out, Stream};
use crate::team::{AddF64, Direction, Element, Lane, MinF32, Team};

/// The accumulated log-ratio that a token gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanKind {
    /// The sum over the token's prefix, including the token.
    Prefix,
    /// The sum over the tokens before it.
    PrefixBefore,
    /// The minimum over the tokens before it, plus its own: MinPRO-style (our reading).
    MinBefore,
    /// The minimum over the token's prefix, including the token.
    Min,
    /// The sum over the row.
    Sum,
    /// The mean over the row.
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

crate::kernel! {
    /// The op `log_ratio_scan`: one accumulated log-ratio per token.
    pub struct LogRatioScan<'a> {
        /// Offsets of sequences or segments, `[R+1]`.
        pub offsets: Offsets<'a>,
        /// Which tokens take part, `[N]`.
        pub loss_mask: Mask<'a> [elements],
        /// Log-probabilities in the numerator of the ratio, `[N]`.
        pub logp: In<'a, f32> [elements],
        /// Log-probabilities in the denominator of the ratio, `[N]`.
        pub logp_old: In<'a, f32> [elements],
        /// The log-ratio that each token gets.
        pub kind: ScanKind,
        /// Whether a minimum above 0 counts as 0.
        pub cap_at_one: bool,
        /// Accumulated log-ratios, `[N]`.
        pub log_ratio: Out<'a, f32> [elements],
        /// Row alarm, `[R]`: above [`flag::LIMIT`] if a live input is not a log-probability.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe "log_ratio_scan", over offsets (elements, rows);
}

impl Kernel for LogRatioScan<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let (span, mask, out) = (self.offsets.span(row), self.loss_mask, *self.log_ratio);
        let (logp, old, cap) = (self.logp, self.logp_old, self.cap_at_one);
        let swept = team.sweep(span, mask, [Stream::Array(logp), Stream::Array(old)], [], &LogRatio);
        // An exclusive prefix is a scan of the row shifted by one.
        let back = usize::from(matches!(self.kind, ScanKind::PrefixBefore | ScanKind::MinBefore));
        let d = move |i: usize| logp.at(i) - old.at(i);
        let there = move |i: usize| i >= span.start + back && mask.at(i - back);
        match self.kind {
            ScanKind::Prefix | ScanKind::PrefixBefore => team.scan(
                AddF64,
                span,
                Mask::all(),
                Direction::Prefix,
                move |i| if there(i) { f64::from(d(i - back)) } else { 0.0 },
                move |i, y| out.put(i, if mask.at(i) { num::canonical(y as f32) } else { 0.0 }),
            ),
            ScanKind::MinBefore | ScanKind::Min => team.scan(
                MinF32,
                span,
                Mask::all(),
                Direction::Prefix,
                move |i| if there(i) { d(i - back) } else { f32::INFINITY },
                move |i, least| {
                    // No live token before this one: the log-ratio is 0.
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
