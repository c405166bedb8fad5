//! Ops on rows of logits: statistics of the labels, gradients, and the one-token rollout.

mod divergence;
mod sampled;
pub mod vocab_parallel;

pub use divergence::{Divergence, TwoRows, logits_kl};
pub use sampled::{draw_tokens, otr_sampled};

use crate::{Compiled, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::logits::statistics::{LogitsMoments, LogitsResults, STATE};
use lockstep_core::logits::{LogitRows, LogitsGradient, LogitsStatistics, OtrExact};
use lockstep_core::num::Storage;
use lockstep_core::ragged::{In, Mask, Out, flag};
use lockstep_core::require;

/// Rows of logits with their labels.
///
/// Statistics and gradient take logits in `f32`, [`Bf16`](lockstep_core::num::Bf16) or
/// [`F16`](lockstep_core::num::F16), the other ops in `f32`. All compute in binary32.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a, S = f32> {
    /// Logits `[rows][V]`, row-major, one row for each label. −∞ = forbidden by a vocabulary mask.
    pub logits: &'a [S],
    /// The sampled token or the label of each row, `[rows]`.
    pub labels: &'a [u32],
    /// Which rows take part, `[rows]`; `None` = all.
    pub loss_mask: Option<&'a [u8]>,
}

/// The result of [`logits_statistics`], each array `[rows]`; 0 in masked rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Log-probability of the label, in nats.
    pub logp: Vec<f32>,
    /// logsumexp of z/T.
    pub lse: Vec<f32>,
    /// The most probable token; of ties, the first.
    pub top: Vec<u32>,
    /// Entropy, in nats; empty if `moments` was false.
    pub entropy: Vec<f32>,
    /// Σ p²; empty if `moments` was false.
    pub collision: Vec<f32>,
    /// 1 − 2p + Σ p², the squared norm of ∂logp/∂(z/T); empty if `moments` was false.
    pub score_norm: Vec<f32>,
    temperature: f32,
    state: Vec<f64>,
}

impl Statistics {
    fn new(rows: usize, temperature: f32, moments: bool) -> Statistics {
        let of_moments = || vec![0.0; if moments { rows } else { 0 }];
        Statistics {
            logp: vec![0.0; rows],
            lse: vec![0.0; rows],
            top: vec![0; rows],
            entropy: of_moments(),
            collision: of_moments(),
            score_norm: of_moments(),
            temperature,
            state: vec![0.0; STATE * rows],
        }
    }

    /// All arrays, to be written.
    fn results<'a>(&'a mut self, alarms: &'a mut [u32]) -> LogitsResults<'a> {
        let moments = !self.entropy.is_empty();
        LogitsResults {
            logp: Out::new(&mut self.logp),
            lse: Out::new(&mut self.lse),
            top: Out::new(&mut self.top),
            moments: moments.then(|| LogitsMoments {
                entropy: Out::new(&mut self.entropy),
                collision: Out::new(&mut self.collision),
                score_norm: Out::new(&mut self.score_norm),
            }),
            state: Out::new(&mut self.state),
            row_alarm: Out::new(alarms),
        }
    }
}

impl<'a, S: Storage> Logits<'a, S> {
    /// The rows, if the lengths agree. Labels may be any numbers.
    fn any_labels(&self) -> Result<LogitRows<'a, S>, Error> {
        let rows = self.labels.len();
        if rows == 0 {
            return Err(Argument::Empty { argument: "labels", expected: "one per row of logits" }.into());
        }
        let vocab = self.logits.len() / rows;
        require::length("logits", rows * vocab, "a multiple of the number of labels", self.logits.len())?;
        if let Some(mask) = self.loss_mask {
            require::length("loss_mask", rows, "one per row of logits", mask.len())?;
        }
        let found = LogitRows { logits: In::new(self.logits), rows, vocab, live: Mask::new(self.loss_mask) };
        found.check()?;
        Ok(found)
    }

    /// The rows, if the lengths agree and labels are in the vocabulary.
    fn rows(&self) -> Result<LogitRows<'a, S>, Error> {
        let found = self.any_labels()?;
        for (row, &label) in self.labels.iter().enumerate().filter(|(row, _)| found.live.at(*row)) {
            if label as usize >= found.vocab {
                let expected = "a token below the number of logits in a row";
                return Err(require::value("labels", Some(row), expected, label).into());
            }
        }
        Ok(found)
    }

    /// The error of the first row with an alarm: its first invalid logit, or the forbidden logit of its
    /// label, or else a coefficient or the result.
    fn check_alarms(
        &self,
        alarms: &[u32],
        coefs: Option<Coefs<'_>>,
        result: &'static str,
    ) -> Result<(), Error> {
        let Some(row) = alarms.iter().position(|alarm| *alarm > flag::LIMIT) else { return Ok(()) };
        let vocab = self.logits.len() / self.labels.len();
        let values: Vec<f32> =
            self.logits[row * vocab..(row + 1) * vocab].iter().map(|z| z.widen()).collect();
        check_row("logits", &values, row * vocab)?;
        let label = self.labels[row] as usize;
        if values[label] == f32::NEG_INFINITY {
            let (index, expected) = (row * vocab + label, "a finite number, because it is the label's logit");
            return Err(require::value("logits", Some(index), expected, values[label]).into());
        }
        coefs.map_or(Ok(()), |coefs| coefs.check_finite(row))?;
        Err(Argument::NotFinite { result, index: row, hint: HINT }.into())
    }
}

/// The error of a row of logits without a distribution, if it is one; `first` is the index of its entry 0.
fn check_row(argument: &'static str, row: &[f32], first: usize) -> Result<(), Argument> {
    if let Some(v) = row.iter().position(|z| z.is_nan() || *z == f32::INFINITY) {
        let expected = "a finite number, or -inf for a forbidden token";
        return Err(require::value(argument, Some(first + v), expected, row[v]));
    }
    if row.iter().all(|z| *z == f32::NEG_INFINITY) {
        return Err(require::value(argument, Some(first), "a row with at least one finite entry", row[0]));
    }
    Ok(())
}

const HINT: &str = "logits or coefficients are too large for the type of the logits: scale them";
/// The result that a gradient's error names.
const GRADIENT: &str = "gradient of the row of logits";

/// Computes the log-probability of the label, the logsumexp and the top token of every row and, if `moments`,
/// also the entropy and the sums of squares; formulas: [`lockstep_core::logits::statistics`].
///
/// Errors: lengths that disagree; a label that is outside the vocabulary or forbidden in its row; a row with
/// NaN, +∞ or only −∞ (index into `logits`); a temperature outside 1e-6..=1e6.
///
/// ```
/// use lockstep_ops::{Device, ops::logits::{Logits, logits_statistics}};
/// let forbidden = f32::NEG_INFINITY;
/// let rows = Logits { logits: &[0.0, 0.0, forbidden, 0.0], labels: &[3], loss_mask: None };
/// let out = logits_statistics(&Device::cpu(), &rows, 1.0, true)?;
/// assert!((out.logp[0] + 3f32.ln()).abs() < 1e-6 && (out.entropy[0] - 3f32.ln()).abs() < 1e-6);
/// assert_eq!(out.top, [0]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn logits_statistics<S: Storage>(
    device: &Device,
    logits: &Logits<'_, S>,
    temperature: f32,
    moments: bool,
) -> Result<Statistics, Error>
where
    for<'a> LogitsStatistics<'a, S>: Compiled,
{
    let rows = logits.rows()?;
    let (mut out, mut alarms) = (Statistics::new(rows.rows, temperature, moments), vec![0; rows.rows]);
    device.run(&LogitsStatistics {
        rows,
        labels: In::new(logits.labels),
        temperature,
        results: out.results(&mut alarms),
    })?;
    logits.check_alarms(&alarms, None, "logp")?;
    Ok(out)
}

/// Computes dL/dz of every logit, `[rows][V]`, from `coef` = dL/dlogp `[rows]` and `coef_entropy` = dL/dH
/// `[rows]`; formula: [`lockstep_core::logits::gradient`]. `statistics` are those of the same logits,
/// computed with moments if `coef_entropy` is given.
///
/// Errors: those of [`logits_statistics`]; coefficients that are not finite (index); a `coef_entropy` if the
/// statistics have no moments.
///
/// ```
/// use lockstep_ops::{Device, ops::logits::{Logits, logits_gradient, logits_statistics}};
/// let rows = Logits { logits: &[0.0, 0.0, f32::NEG_INFINITY, 0.0], labels: &[3], loss_mask: None };
/// let out = logits_statistics(&Device::cpu(), &rows, 1.0, false)?;
/// let dz = logits_gradient(&Device::cpu(), &rows, &out, &[-1.0], None)?;
/// assert!((dz[0] - 1.0 / 3.0).abs() < 1e-6 && (dz[3] + 2.0 / 3.0).abs() < 1e-6);
/// assert_eq!(dz[2], 0.0);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn logits_gradient<S: Storage>(
    device: &Device,
    logits: &Logits<'_, S>,
    statistics: &Statistics,
    coef: &[f32],
    coef_entropy: Option<&[f32]>,
) -> Result<Vec<S>, Error>
where
    for<'a> LogitsGradient<'a, S>: Compiled,
{
    let (rows, coefs) = (logits.rows()?, Coefs { coef, coef_entropy });
    coefs.check(rows.rows, statistics)?;
    let mut gradient = vec![S::default(); logits.logits.len()];
    let alarms = coefs.gradient(device, rows, logits.labels, None, statistics, &mut gradient)?;
    logits.check_alarms(&alarms, Some(coefs), GRADIENT)?;
    Ok(gradient)
}

/// Replaces `logits` `[rows][V]` by their gradient: [`logits_gradient`] without a second array of that size.
/// Copies a few rows at a time.
///
/// Errors: those of [`logits_gradient`]; some rows of `logits` may then be gradients already. An invalid
/// logit is reported by the row of its gradient.
///
/// ```
/// use lockstep_ops::{Device, ops::logits::{Logits, logits_gradient_in_place, logits_statistics}};
/// let (mut logits, labels) = ([0.0f32, 0.0, f32::NEG_INFINITY, 0.0], [3]);
/// let rows = Logits { logits: &logits, labels: &labels, loss_mask: None };
/// let out = logits_statistics(&Device::cpu(), &rows, 1.0, false)?;
/// logits_gradient_in_place(&Device::cpu(), &mut logits, &labels, None, &out, &[-1.0], None)?;
/// assert!((logits[0] - 1.0 / 3.0).abs() < 1e-6 && (logits[3] + 2.0 / 3.0).abs() < 1e-6);
/// assert_eq!(logits[2], 0.0);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn logits_gradient_in_place<S: Storage>(
    device: &Device,
    logits: &mut [S],
    labels: &[u32],
    loss_mask: Option<&[u8]>,
    statistics: &Statistics,
    coef: &[f32],
    coef_entropy: Option<&[f32]>,
) -> Result<(), Error>
where
    for<'a> LogitsGradient<'a, S>: Compiled,
{
    let all = Logits { logits: &*logits, labels, loss_mask }.rows()?;
    let (n, vocab, coefs) = (all.rows, all.vocab, Coefs { coef, coef_entropy });
    coefs.check(n, statistics)?;
    // Enough rows for every thread, in a copy that stays in the cache.
    let some = (COPIED / size_of::<S>() / vocab).clamp(16, n.max(16));
    let mut copy = Vec::new();
    for (k, part) in logits.chunks_mut(some * vocab).enumerate() {
        copy.clear();
        copy.extend_from_slice(part);
        let rows = k * some..k * some + copy.len() / vocab;
        let state: Vec<f64> =
            statistics.state.chunks(n).flat_map(|values| &values[rows.clone()]).copied().collect();
        let statistics = Statistics { state, temperature: statistics.temperature, ..Statistics::default() };
        let of_rows = LogitRows {
            logits: In::new(&copy),
            rows: rows.len(),
            vocab,
            live: Mask::new(loss_mask.map(|mask| &mask[rows.clone()])),
        };
        let of =
            Coefs { coef: &coef[rows.clone()], coef_entropy: coef_entropy.map(|coef| &coef[rows.clone()]) };
        let alarms = of.gradient(device, of_rows, &labels[rows.clone()], None, &statistics, part)?;
        coefs.check_alarms(&alarms, rows.start)?;
    }
    Ok(())
}

/// Bytes of logits that [`logits_gradient_in_place`] copies at a time.
const COPIED: usize = 1 << 22;

/// dL/dlogp and dL/dH of each row.
#[derive(Clone, Copy)]
struct Coefs<'a> {
    coef: &'a [f32],
    coef_entropy: Option<&'a [f32]>,
}

impl Coefs<'_> {
    fn check(self, rows: usize, statistics: &Statistics) -> Result<(), Error> {
        require::length("coef", rows, "one per row of logits", self.coef.len())?;
        require::length("statistics", rows, "one per row of logits", statistics.logp.len())?;
        if let Some(of_entropy) = self.coef_entropy {
            require::length("coef_entropy", rows, "one per row of logits", of_entropy.len())?;
            if statistics.entropy.is_empty() {
                let expected = "given, but the statistics have no entropy: compute them with moments";
                return Err(Argument::Combination { argument: "coef_entropy", expected }.into());
            }
        }
        Ok(())
    }

    /// Writes the gradient of `rows`, and returns their alarms.
    fn gradient<S: Storage>(
        self,
        device: &Device,
        rows: LogitRows<'_, S>,
        labels: &[u32],
        vocab_start: Option<u32>,
        statistics: &Statistics,
        gradient: &mut [S],
    ) -> Result<Vec<u32>, Error>
    where
        for<'k> LogitsGradient<'k, S>: Compiled,
    {
        let mut alarms = vec![0; rows.rows];
        device.run(&LogitsGradient {
            rows,
            labels: In::new(labels),
            vocab_start,
            temperature: statistics.temperature,
            state: In::new(&statistics.state),
            coef: In::new(self.coef),
            coef_entropy: self.coef_entropy.map(In::new),
            gradient: Out::new(gradient),
            row_alarm: Out::new(&mut alarms),
        })?;
        Ok(alarms)
    }

    /// The error of the first row with an alarm: a coefficient, or else the gradient. The alarms begin with
    /// that of row `first`.
    fn check_alarms(self, alarms: &[u32], first: usize) -> Result<(), Error> {
        let Some(row) = alarms.iter().position(|alarm| *alarm > flag::LIMIT) else { return Ok(()) };
        let index = first + row;
        self.check_finite(index)?;
        Err(Argument::NotFinite { result: GRADIENT, index, hint: HINT }.into())
    }

    fn check_finite(self, row: usize) -> Result<(), Error> {
        let of_entropy = self.coef_entropy.map(|coef| ("coef_entropy", coef));
        for (argument, values) in [("coef", self.coef)].into_iter().chain(of_entropy) {
            let got = values[row];
            if !got.is_finite() {
                return Err(require::value(argument, Some(row), "a finite number", got).into());
            }
        }
        Ok(())
    }
}

/// The loss of the one-token rollout over label positions.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Otr {
    /// The loss L_t of each row, `[rows]`; 0 where masked.
    pub row_loss: Vec<f32>,
    /// Mean over the rows that take part.
    pub loss: f64,
    /// dL/dz, `[rows][V]`; empty if not requested.
    pub gradient: Vec<f32>,
}

/// Computes the loss of the one-token rollout in expectation, without sampling, and dL/dz if `gradient`;
/// formula: [`lockstep_core::logits::otr`]. The loss is the mean over `positions` rows: the number in the
/// *whole* batch if this is a part of it; `None` = the rows that take part.
///
/// Errors: those of [`logits_statistics`]; β above 1 or not finite; κ outside 1e-6..=1e6.
///
/// ```
/// use lockstep_ops::{Device, ops::logits::{Logits, otr_exact}};
/// let rows = Logits { logits: &[0.0, 0.0], labels: &[0], loss_mask: None };
/// // κ = 1, β = 0: π(x)·(−ln π(x)), and its gradient is that of SFT weighted by π(x).
/// let out = otr_exact(&Device::cpu(), &rows, 1.0, 0.0, None, true)?;
/// assert!((out.loss - 0.5 * 2f64.ln()).abs() < 1e-6);
/// assert_eq!(out.gradient, [-0.25, 0.25]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn otr_exact(
    device: &Device,
    logits: &Logits<'_>,
    kappa: f32,
    beta: f32,
    positions: Option<u64>,
    gradient: bool,
) -> Result<Otr, Error> {
    let rows = logits.rows()?;
    let share = share(&rows, positions);
    let (coef, mut out, mut alarms) =
        (vec![share as f32; rows.rows], Otr::new(&rows, gradient), vec![0; rows.rows]);
    device.run(&OtrExact {
        rows,
        labels: In::new(logits.labels),
        kappa,
        beta,
        coef: In::new(&coef),
        loss: Out::new(&mut out.row_loss),
        gradient: gradient.then(|| Out::new(&mut out.gradient)),
        row_alarm: Out::new(&mut alarms),
    })?;
    logits.check_alarms(&alarms, None, "loss of the row")?;
    out.mean(device, share)
}

/// The weight of a row in a mean over `positions` rows, or over the rows that take part.
fn share(rows: &LogitRows<'_>, positions: Option<u64>) -> f64 {
    let counted = || (0..rows.rows).filter(|row| rows.live.at(*row)).count() as u64;
    match positions.unwrap_or_else(counted) {
        0 => 0.0,
        positions => 1.0 / positions as f64,
    }
}

impl Otr {
    fn new(rows: &LogitRows<'_>, gradient: bool) -> Self {
        let entries = if gradient { rows.logits.len() } else { 0 };
        Otr { row_loss: vec![0.0; rows.rows], loss: 0.0, gradient: vec![0.0; entries] }
    }

    fn mean(mut self, device: &Device, share: f64) -> Result<Self, Error> {
        let partials: Vec<f64> = self.row_loss.iter().map(|l| share * f64::from(*l)).collect();
        self.loss = super::aggregate::fold_rows(device, &partials, partials.len())?[0];
        Ok(self)
    }
}
