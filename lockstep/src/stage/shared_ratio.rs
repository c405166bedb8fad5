//! Ratios that all tokens of a sequence share: the gradient that each token gets, and the term of an empty
//! sequence.

use crate::ops::aggregate::fold_rows;
use crate::ops::kl::KlOutput;
use crate::ops::policy_loss::{self, PolicyInput, PolicyOutput};
use crate::ops::{kl, locate, log_ratio_scan};
use crate::recipe::{EmptySequence, RatioGradient, RatioLevel, Recipe};
use crate::{Advantage, Batch, Counts, Device, Error};
use lockstep_core::aggregate::Weight;
use lockstep_core::kl::{Kl, KlFormula};
use lockstep_core::num::{self, Soft};
use lockstep_core::ratio::ScanKind;

/// How the derivatives of a sequence's terms by their shared ratio are passed to its tokens.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Passed {
    /// The ratio is the geometric mean: d ln s / d logp = 1/L.
    Mean,
    /// The ratio is the product: d ln s / d logp = 1.
    Sum,
}

impl Passed {
    /// A token's part of a sum over `live` live tokens.
    fn part(self, total: f64, live: usize) -> f64 {
        match self {
            Passed::Mean => total / live as f64,
            Passed::Sum => total,
        }
    }
}

impl Recipe {
    /// How the derivatives of a sequence's terms are combined; `None` if each token keeps its own.
    pub(super) fn passed(&self) -> Option<Passed> {
        match (self.ratio.level, self.ratio.gradient) {
            (RatioLevel::Product, _) => Some(Passed::Sum),
            (RatioLevel::Sequence | RatioLevel::Segment, RatioGradient::Mean) => Some(Passed::Mean),
            _ => None,
        }
    }

    /// Adds the KL term W·β·s·k, whose weight s is the per-sequence ratio of the policy term, and measures
    /// s·k. If the gradient flows through the ratio, that of token t is W·β·s·(k'ₜ + Σ k/L), with Σ k for a
    /// product, and with kₜ if each token keeps its own derivative. `clamp_out` bounds s·k; a token beyond it
    /// adds no gradient, unless that is straight-through.
    pub(super) fn add_kl_of_sequences(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        input: &PolicyInput<'_>,
        (logp_ref, (estimator, coef)): (&[f32], (Kl, f32)),
        (through, weight): (bool, Weight),
        out: &mut PolicyOutput,
    ) -> Result<(), Error> {
        let unbounded = Kl { clamp_out: f32::INFINITY, ..estimator };
        let mut values = kl(device, batch, input.logp, logp_ref, &unbounded)?;
        let most = f64::from(estimator.clamp_out);
        let is_k3 = estimator.estimator == KlFormula::K3 && !estimator.straight_through;
        let kind = if self.ratio.level == RatioLevel::Product { ScanKind::Sum } else { ScanKind::Mean };
        let log_ratios = log_ratio_scan(device, batch, input.logp, input.logp_old, kind, false)?;
        for row in 0..batch.sequences() {
            let live: Vec<usize> = live(batch, row).collect();
            let Some(first) = live.first() else { continue };
            let (ratio, slope) = self.shared_ratio(log_ratios[*first]);
            let slope = if through { slope } else { 0.0 };
            let passes = |k: f64| estimator.straight_through || (ratio * k).abs() <= most;
            let (mut total, mut sum) = (values.row_sum[row], ratio * values.row_sum[row]);
            if most.is_finite() {
                let k = || live.iter().map(|i| f64::from(values.kl[*i]));
                total = k().filter(|k| passes(*k)).sum();
                sum = k().map(|k| (ratio * k).clamp(-most, most)).sum();
            }
            for i in &live {
                let k = f64::from(values.kl[*i]);
                let passed = if passes(k) { k } else { 0.0 };
                let moved = slope * self.passed().map_or(passed, |by| by.part(total, live.len()));
                let own = if passes(k) { f64::from(values.gradient[*i]) } else { 0.0 };
                // k3 + k3' is logp - logp_ref: their sum would cancel e^u. A clamped k3 has no slope.
                let x = f64::from(input.logp[*i] - logp_ref[*i]);
                let whole = if is_k3 && slope == 1.0 && own != 0.0 { moved - k + x } else { own + moved };
                values.gradient[*i] = (ratio * whole) as f32;
                values.kl[*i] = (ratio * k).clamp(-most, most) as f32;
            }
            values.row_sum[row] = sum;
        }
        let hint = "set clamp_in or clamp_out, or a bound of the ratio";
        locate::finite("kl", &values.kl, hint)?;
        locate::finite("kl gradient", &values.gradient, hint)?;
        let KlOutput { row_sum, .. } = &values;
        policy_loss::add_kl_values(device, batch, (input.logp, &values), coef, weight, out)?;
        out.measure_kl(device, row_sum, out.counts.tokens)
    }

    /// The ratio of a sequence as the policy term has it, and d ln ratio by the log-ratio: 0 beyond a bound.
    fn shared_ratio(&self, log_ratio: f32) -> (f64, f64) {
        let (guarded, slope) = match self.ratio.level {
            RatioLevel::Sequence => {
                let most = self.ratio.log_max.unwrap_or(f32::INFINITY);
                (log_ratio.min(most), if log_ratio <= most { 1.0 } else { 0.0 })
            }
            _ => {
                let (guarded, inside) = self.guard().apply(log_ratio);
                (guarded, self.guard().gradient(1.0, inside))
            }
        };
        (num::exp::<Soft>(guarded).into(), slope.into())
    }

    /// Adds −A/S for every sequence without live tokens, if `aggregation.empty` is `one`.
    pub(super) fn add_empty(
        &self,
        device: &Device,
        batch: &Batch<'_>,
        advantage: Advantage<'_>,
        counts: Counts,
        out: &mut PolicyOutput,
    ) -> Result<(), Error> {
        let (EmptySequence::One, Advantage::PerSequence(advantage), Some(_)) =
            (self.aggregation.empty, advantage, out.loss)
        else {
            return Ok(());
        };
        for (row, advantage) in advantage.iter().enumerate() {
            if live(batch, row).next().is_none() {
                out.row_loss[row] -= f64::from(*advantage) / counts.sequences.max(1) as f64;
            }
        }
        out.loss = Some(fold_rows(device, &out.row_loss, batch.sequences())?[0]);
        Ok(())
    }
}

/// Calls `f` with the batch whose rows are the segments (runs of live tokens) of this one; a sequence without
/// live tokens is one row.
pub(super) fn by_segment<T>(
    batch: &Batch<'_>,
    f: impl FnOnce(&Batch<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mask = batch.loss_mask();
    let (mut rows, live) = (vec![0], (0..batch.tokens()).map(|i| u8::from(mask.at(i))).collect::<Vec<u8>>());
    for sequence in 0..batch.sequences() {
        let span = batch.cu_seqlens().span(sequence);
        let starts = (span.start..span.end).filter(|i| mask.at(*i) && (*i == span.start || !mask.at(*i - 1)));
        rows.extend(starts.skip(1).chain([span.end]).map(|i| i as u32));
    }
    f(&Batch::with_empty_rows(&rows, &[0, rows.len() as u32 - 1], Some(&live))?)
}

/// Combines the coefficients of each sequence's tokens: every live token gets its part of their sum.
pub(super) fn pass_on(batch: &Batch<'_>, passed: Passed, coef: &mut [f32]) -> Result<(), Error> {
    for row in 0..batch.sequences() {
        let (mut total, mut count) = (0.0, 0);
        for i in live(batch, row) {
            (total, count) = (total + f64::from(coef[i]), count + 1);
        }
        let part = passed.part(total, count.max(1)) as f32;
        live(batch, row).for_each(|i| coef[i] = part);
    }
    locate::finite("coef", coef, "the ratio of a sequence overflowed: choose a guard for the log-ratio")
}

/// The live tokens of a sequence.
pub(super) fn live<'b>(batch: &'b Batch<'_>, row: usize) -> impl Iterator<Item = usize> + 'b {
    let span = batch.cu_seqlens().span(row);
    (span.start..span.end).filter(|i| batch.loss_mask().at(*i))
}
