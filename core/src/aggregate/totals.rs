//! The scalars of a batch from the per-sequence outputs of a policy loss, in one launch and on the device.
//!
//! **Formula**: over the sequences s of a batch,
//!
//! ```text
//! loss = Σ row_loss[s]        sums[k] = Σ row_sums[k][s]        maxima[e] = max row_maxima[e][s]
//! counts = [Σ row_tokens[s], #{row_tokens[s] > 0}, S]           alarm = max row_alarm[s]
//! ```
//!
//! **Shapes**: inputs as a [policy loss](crate::policy_loss) writes them; one row per statistic, so that
//! teams work in parallel.
//!
//! **Special cases**: the maximum is −∞ if no sequence has a live token (such a row holds −∞ too), and the
//! canonical NaN if any row holds NaN. A sequence without tokens changes no bit: it adds +0 to columns that
//! are never −0, so offsets may be padded past the last sequence (`counts` then includes the padding in S).
//!
//! **Accuracy**: sums have the same bits as [`FoldRows`](super::FoldRows) over the same rows; everything else
//! is exact.

use crate::Error;
use crate::num::{Arith, count};
use crate::op::Kernel;
use crate::policy_loss::sum::SUMS;
use crate::ragged::{In, Mask, Out, Span, Stream};
use crate::require;
use crate::team::{Element, Lane, Team};

/// Number of entries of `counts`.
pub const COUNTS: usize = 3;
/// Index of the number of live tokens.
pub const TOKENS: usize = 0;
/// Index of the number of sequences with a live token.
pub const NONEMPTY: usize = 1;
/// Index of the number of all sequences.
pub const SEQUENCES: usize = 2;

// After the counts, the statistics in row order.
const ALARM: usize = COUNTS;
const LOSS: usize = ALARM + 1;
const FIRST_SUM: usize = LOSS + 1;
const FIRST_MAXIMUM: usize = FIRST_SUM + SUMS;
const MAXIMA: usize = 2;

/// Per-sequence metrics, and the outputs for those of the batch.
#[derive(Debug)]
pub struct MetricTotals<'a> {
    /// Sums of each sequence, `[SUMS][S]`; see [`sum`](crate::policy_loss::sum).
    pub row_sums: In<'a, f64>,
    /// max r and max −r of each sequence, `[2][S]`.
    pub row_maxima: In<'a, f32>,
    /// Sums over the batch, `[SUMS]`.
    pub sums: Out<'a, f64>,
    /// Maxima over the batch, `[2]`.
    pub maxima: Out<'a, f32>,
}

crate::launch_args!(MetricTotals<'_> { row_sums, row_maxima, sums, maxima });

crate::kernel! {
    /// The op `loss_totals`: loss, counts, worst alarm and metrics of a batch.
    pub struct LossTotals<'a> {
        /// Each sequence's share of the loss, `[S]`.
        pub row_loss: In<'a, f64>,
        /// Live tokens of each sequence, `[S]`.
        pub row_tokens: In<'a, u32>,
        /// Alarm of each sequence, `[S]`.
        pub row_alarm: In<'a, u32>,
        /// The loss, `[1]`.
        pub loss: Out<'a, f64>,
        /// Live tokens, sequences with a live token, all sequences: `[3]`.
        pub counts: Out<'a, u64>,
        /// The worst alarm, above [`flag::LIMIT`](crate::ragged::flag::LIMIT) if any input was bad, `[1]`.
        pub alarm: Out<'a, u32>,
        /// Metrics; absent to skip them.
        pub metrics: Option<MetricTotals<'a>>,
    }
    unsafe "loss_totals", rows |k| if k.metrics.is_some() { FIRST_MAXIMUM + MAXIMA } else { FIRST_SUM },
        work |k, _| k.row_tokens.len(),
        require |k| k.check_lengths(),
        check |k| k.check_lengths();
}

impl LossTotals<'_> {
    /// Checks that the lengths of all arrays agree.
    fn check_lengths(&self) -> Result<(), Error> {
        let rows = self.row_tokens.len();
        const PER_ROW: &str = "one per sequence, as in `row_tokens`";
        require::length("row_loss", rows, PER_ROW, self.row_loss.len())?;
        require::length("row_alarm", rows, PER_ROW, self.row_alarm.len())?;
        require::length("loss", 1, "one number", self.loss.len())?;
        require::length("counts", COUNTS, "one per count", self.counts.len())?;
        require::length("alarm", 1, "one number", self.alarm.len())?;
        let Some(metrics) = &self.metrics else { return Ok(()) };
        require::length("row_sums", SUMS * rows, "13 per sequence", metrics.row_sums.len())?;
        require::length("row_maxima", MAXIMA * rows, "two per sequence", metrics.row_maxima.len())?;
        require::length("sums", SUMS, "one per sum", metrics.sums.len())?;
        require::length("maxima", MAXIMA, "one per maximum", metrics.maxima.len())
    }
}

impl Kernel for LossTotals<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        let rows = self.row_tokens.len();
        let all = Span::new(0, rows);
        if row < COUNTS {
            let (tokens, nonempty) = (row == TOKENS, row == NONEMPTY);
            let [total] = team.sum(all, |s| {
                let n = self.row_tokens.at(s);
                [if tokens { f64::from(n) } else { f64::from(count(n > 0 || !nonempty)) }]
            });
            if team.leads() {
                // Below 2³², since offsets are u32.
                self.counts.put(row, u64::from(total as u32));
            }
        } else if row == ALARM {
            let alarms = [Stream::Array(self.row_alarm.as_numbers())];
            let worst = team.sweep(all, Mask::all(), alarms, [], &Worst).alarm;
            if team.leads() {
                self.alarm.put(0, worst);
            }
        } else if row == LOSS {
            let [total] = team.sum(all, |s| [self.row_loss.at(s)]);
            if team.leads() {
                self.loss.put(0, total);
            }
        } else if let Some(metrics) = &self.metrics {
            if row < FIRST_MAXIMUM {
                let k = row - FIRST_SUM;
                let [total] = team.sum(Span::new(k * rows, (k + 1) * rows), |i| [metrics.row_sums.at(i)]);
                if team.leads() {
                    metrics.sums.put(k, total);
                }
            } else {
                let e = row - FIRST_MAXIMUM;
                let largest = team.max(Span::new(e * rows, (e + 1) * rows), |i| metrics.row_maxima.at(i));
                if team.leads() {
                    metrics.maxima.put(e, largest);
                }
            }
        }
    }
}

/// The worst alarm; alarms are read as `f32` for their bits.
struct Worst;

impl Element<1, 0, 0, 0> for Worst {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 0, 0> {
        Lane { out: [], sum: [], max: [], alarm: input(0).to_bits() }
    }
}
