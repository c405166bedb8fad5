//! Sums that do not depend on order: exact partial sums of this rank's values, to be merged with those of
//! other ranks.

mod limbs;

pub use limbs::Limbs;

use super::ratio::fold_maxima;
use super::whiten::Weighting;
use crate::{Batch, Compiled, Counts, Device, Error, Metrics, PolicyOutput};
use lockstep_core::aggregate::exact::{ExactMoments, ExactSum, SUM_BYTES};
use lockstep_core::aggregate::exact_sum::{self, ExactDigits, Summand};
use lockstep_core::policy_loss::sum;
use lockstep_core::ragged::{In, Mask, Out};
use lockstep_core::require;

/// Computes the exact sum of `values` on the device, and their number; formula:
/// [`lockstep_core::aggregate::exact_sum`]. Values may be NaN or infinite; the sum then is too. On a CPU
/// `values.iter().copied().collect::<ExactSum>()` gives the same sum faster.
///
/// ```
/// use lockstep_ops::{Device, ops::exact::exact_sum};
/// let (sum, count) = exact_sum(&Device::cpu(), &[1e100, 1.0, -1e100])?;
/// assert_eq!((sum.finish(), count), (1.0, 3));
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn exact_sum(device: &Device, values: &[f64]) -> Result<(ExactSum, u64), Error> {
    run(device, values, Mask::all(), false)
}

/// Computes the exact sum of `values` `[N]`, or of their squares if `square`, over the live tokens, and the
/// number of live tokens.
///
/// Errors: lengths that disagree.
pub fn exact_token_sum(
    device: &Device,
    batch: &Batch<'_>,
    values: &[f32],
    square: bool,
) -> Result<(ExactSum, u64), Error> {
    batch.check_tokens("values", values.len())?;
    run(device, values, batch.loss_mask(), square)
}

fn run<V: Summand + Sync>(
    device: &Device,
    values: &[V],
    mask: Mask<'_>,
    square: bool,
) -> Result<(ExactSum, u64), Error>
where
    for<'a> ExactDigits<'a, V>: Compiled,
{
    let mut digits = vec![0.0; exact_sum::digits::<V>(values.len())];
    let kernel = ExactDigits { values: In::new(values), mask, square, digits: Out::new(&mut digits) };
    device.run(&kernel)?;
    Ok(ExactSum::from_digits::<V>(&digits)?)
}

/// Computes the exact moments of the live tokens of `values` `[N]` on this rank. Merged over ranks, they are
/// the input of [`whiten_by`](super::whiten::whiten_by).
///
/// Errors: lengths that disagree; a live value that is not finite (index).
pub fn exact_token_moments(batch: &Batch<'_>, values: &[f32]) -> Result<ExactMoments, Error> {
    batch.check_tokens("values", values.len())?;
    let times = |i: usize| u32::from(batch.loss_mask().at(i));
    moments(values, times, f32::is_finite, "a finite number")
}

/// Computes the exact moments of per-sequence `values` `[S]` on this rank, each counted as `weighting` says;
/// NaN means no value.
///
/// Errors: lengths that disagree; an infinite value (index).
pub fn exact_sequence_moments(
    device: &Device,
    batch: &Batch<'_>,
    values: &[f32],
    weighting: Weighting,
) -> Result<ExactMoments, Error> {
    batch.check_sequences("values", values.len())?;
    let lengths = batch.lengths(device)?;
    let times = |s: usize| match weighting {
        _ if values[s].is_nan() => 0,
        Weighting::Tokens => lengths[s],
        Weighting::Sequences => 1,
    };
    moments(values, times, |x| !x.is_infinite(), "a finite number, or NaN for none")
}

fn moments(
    values: &[f32],
    times: impl Fn(usize) -> u32,
    good: impl Fn(f32) -> bool,
    expected: &'static str,
) -> Result<ExactMoments, Error> {
    let mut moments = ExactMoments::NONE;
    for (index, &x) in values.iter().enumerate() {
        let times = times(index);
        if times > 0 && !good(x) {
            return Err(require::value("values", Some(index), expected, x).into());
        }
        moments.add_times(x, times);
    }
    Ok(moments)
}

/// The exact contribution of a rank (or micro-batch) to the loss and the metrics of the whole batch.
///
/// However the rows of a batch are split into shards, if each is given the [`Counts`] of the whole batch,
/// then the totals of the shards, merged in any order, have the same loss and metrics, bit for bit.
/// ([`Metrics`] of one shard alone are means over that shard.) Totals are sent between ranks as
/// [bytes](PolicyTotals::to_bytes), or as [`Limbs`] that an all-reduce adds.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyTotals {
    counts: Counts,
    loss: Option<ExactSum>,
    sums: Option<Vec<ExactSum>>,
    maxima: [f32; 2],
}

impl Default for PolicyTotals {
    /// The totals of no rows.
    fn default() -> Self {
        PolicyTotals {
            counts: Counts::default(),
            loss: Some(ExactSum::ZERO),
            sums: Some(vec![ExactSum::ZERO; sum::SUMS]),
            maxima: [f32::NEG_INFINITY; 2],
        }
    }
}

/// Magic number, version, flags; counts; maxima.
const HEADER: usize = 8 + 3 * 8 + 2 * 4;
const MAGIC: [u8; 4] = *b"LXPT";
const VERSION: u16 = 1;
const NAME: &str = "bytes of policy totals";

impl PolicyTotals {
    /// The length of [`to_bytes`](PolicyTotals::to_bytes).
    pub const BYTES: usize = HEADER + (1 + sum::SUMS) * SUM_BYTES;

    /// The totals of rows with these shares of the loss `[S]`, and these sums `[13][S]` and maxima `[2][S]`
    /// of the metrics; `None` for what was not measured.
    ///
    /// Errors: lengths that do not match `counts.sequences` rows.
    pub fn of_rows(
        counts: Counts,
        row_loss: Option<&[f64]>,
        metrics: Option<(&[f64], &[f32])>,
    ) -> Result<PolicyTotals, Error> {
        let rows = counts.sequences as usize;
        let length = |argument, per_row: usize, got: Option<usize>| {
            let (expected, because) =
                (rows.saturating_mul(per_row), "for the number of sequences in `counts`");
            got.map_or(Ok(()), |got| require::length(argument, expected, because, got))
        };
        length("row_loss", 1, row_loss.map(<[f64]>::len))?;
        length("row_sums", sum::SUMS, metrics.map(|(sums, _)| sums.len()))?;
        length("row_maxima", 2, metrics.map(|(_, maxima)| maxima.len()))?;
        Ok(PolicyTotals::added(counts, row_loss, metrics))
    }

    fn added(counts: Counts, row_loss: Option<&[f64]>, metrics: Option<(&[f64], &[f32])>) -> PolicyTotals {
        let mut totals = PolicyTotals { counts, loss: None, sums: None, ..PolicyTotals::default() };
        totals.loss = row_loss.map(|row_loss| row_loss.iter().copied().collect());
        if let Some((row_sums, row_maxima)) = metrics {
            let rows = row_sums.len() / sum::SUMS;
            let statistic = |k: usize| row_sums[k * rows..(k + 1) * rows].iter().copied().collect();
            totals.sums = Some((0..sum::SUMS).map(statistic).collect());
            totals.maxima = fold_maxima(row_maxima, rows);
        }
        totals
    }

    /// Adds the rows of another shard. A loss or metrics that one of the two did not measure are absent from
    /// the merged totals.
    pub fn merge(&mut self, other: &PolicyTotals) {
        self.counts = self.counts + other.counts;
        merge(&mut self.loss, &other.loss, |own, other| own.merge(other));
        merge(&mut self.sums, &other.sums, |own, other| {
            own.iter_mut().zip(other).for_each(|(sum, more)| sum.merge(more));
        });
        for (maximum, other) in self.maxima.iter_mut().zip(other.maxima) {
            *maximum = maximum.max(other);
        }
    }

    /// Counts of the rows merged so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The loss over the rows merged so far, rounded once; `None` if a shard did not measure it.
    pub fn loss(&self) -> Option<f64> {
        self.loss.as_ref().map(ExactSum::finish)
    }

    /// The metrics over the rows merged so far; `None` if a shard did not measure them.
    pub fn metrics(&self) -> Option<Metrics> {
        let totals: Vec<f64> = self.sums.as_ref()?.iter().map(ExactSum::finish).collect();
        Some(Metrics::new(self.counts.tokens, &totals, self.maxima))
    }

    /// Encodes the totals as bytes; equal totals give equal bytes. The layout, little-endian, is `LXPT`,
    /// version, flags (1: loss, 2: metrics), three counts, two maxima, and the [sums](ExactSum::to_bytes) of
    /// the loss and then of the statistics, 0 where absent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        let flags = u16::from(self.loss.is_some()) | u16::from(self.sums.is_some()) << 1;
        bytes.extend(flags.to_le_bytes());
        let Counts { tokens, nonempty, sequences } = self.counts;
        [tokens, nonempty, sequences].iter().for_each(|count| bytes.extend(count.to_le_bytes()));
        self.maxima.iter().for_each(|maximum| bytes.extend(maximum.to_le_bytes()));
        bytes.extend(self.loss.unwrap_or_default().to_bytes());
        for k in 0..sum::SUMS {
            bytes.extend(self.sums.as_ref().map_or(ExactSum::ZERO, |sums| sums[k]).to_bytes());
        }
        bytes
    }

    /// Decodes the bytes of [`to_bytes`](PolicyTotals::to_bytes).
    ///
    /// Errors: a wrong length, magic number, version or flag (byte); maxima that are NaN; invalid sums (byte
    /// within the sum).
    pub fn from_bytes(bytes: &[u8]) -> Result<PolicyTotals, Error> {
        require::length(NAME, Self::BYTES, "the length of version 1", bytes.len())?;
        let wrong = |index: usize, expected: &'static str, got: f64| -> Result<PolicyTotals, Error> {
            Err(require::value(NAME, Some(index), expected, got).into())
        };
        if let Some(index) = (0..4).find(|i| bytes[*i] != MAGIC[*i]) {
            return wrong(index, "the magic number LXPT", bytes[index].into());
        }
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if short(4) != VERSION {
            return wrong(4, "version 1", short(4).into());
        }
        if short(6) > 3 {
            return wrong(6, "flags of version 1: 0 to 3", short(6).into());
        }
        let count = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let maxima = [32, 36].map(|at| f32::from_le_bytes(std::array::from_fn(|i| bytes[at + i])));
        if let Some(k) = maxima.iter().position(|maximum| maximum.is_nan()) {
            return wrong(32 + 4 * k, "a number", maxima[k].into());
        }
        let counts = Counts { tokens: count(8), nonempty: count(16), sequences: count(24) };
        let mut sums = bytes[HEADER..].chunks(SUM_BYTES).map(ExactSum::from_bytes);
        let loss = sums.next().unwrap_or(Ok(ExactSum::ZERO))?;
        let sums = sums.collect::<Result<Vec<_>, _>>()?;
        let (loss, sums) = ((short(6) & 1 != 0).then_some(loss), (short(6) & 2 != 0).then_some(sums));
        Ok(PolicyTotals { counts, loss, sums, maxima })
    }
}

/// Merges two options; the result is `None` if either is.
fn merge<T>(own: &mut Option<T>, other: &Option<T>, join: impl FnOnce(&mut T, &T)) {
    match (own.as_mut(), other) {
        (Some(own), Some(other)) => join(own, other),
        _ => *own = None,
    }
}

impl PolicyOutput {
    /// The exact totals of these rows.
    pub fn totals(&self) -> PolicyTotals {
        let row_loss = self.loss.map(|_| &self.row_loss[..]);
        PolicyTotals::added(self.counts, row_loss, self.metrics.map(|_| self.partials()))
    }

    /// Replaces the loss and the metrics, if they were computed, with those of the exact
    /// [totals](PolicyOutput::totals).
    pub fn reduce_exactly(&mut self) {
        let totals = self.totals();
        self.loss = totals.loss();
        self.metrics = totals.metrics();
    }
}
