//! Ops on rows of logits: statistics of the labels, gradients, and the one-token rollout.

mod divergence;
mod sampled;

pub use divergence::{Divergence, TwoRows, logits_kl};
pub use sampled::{draw_tokens, otr_sampled};

use crate::batch::check_length;
use crate::{Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::logits::statistics::{LogitsMoments, STATE};
use lockstep_core::logits::{LogitRows, LogitsGradient, LogitsStatistics, OtrExact};
use lockstep_core::ragged::{In, Mask, Out, flag};

/// Rows of logits with their labels.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a> {
    /// Logits `[rows][V]`, row-major, one row for each label. −∞ = forbidden by a vocabulary mask.
    pub logits: &'a [f32],
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

impl<'a> Logits<'a> {
    /// V, if the lengths agree.
    fn rows(&self) -> Result<LogitRows<'a>, Error> {
        let rows = self.labels.len();
        if rows == 0 {
            return Err(Argument::Empty { argument: "labels", expected: "one per row of logits" }.into());
        }
        let vocab = self.logits.len() / rows;
        check_length("logits", rows * vocab, "a multiple of the number of labels", self.logits.len())?;
        if let Some(mask) = self.loss_mask {
            check_length("loss_mask", rows, "one per row of logits", mask.len())?;
        }
        let live = Mask::new(self.loss_mask);
        let found = LogitRows { logits: In::new(self.logits), rows, vocab, live };
        found.check()?;
        for (row, &label) in self.labels.iter().enumerate().filter(|(row, _)| live.at(*row)) {
            if label as usize >= vocab {
                let (argument, expected) = ("labels", "a token below the number of logits in a row");
                return Err(
                    Argument::Value { argument, index: Some(row), expected, got: label.into() }.into()
                );
            }
        }
        Ok(found)
    }

    /// The error of the first row with an alarm: its first invalid logit, or the forbidden logit of its
    /// label, or else a coefficient or the result.
    fn check_alarms(
        &self,
        alarms: &[u32],
        coefs: &[(&'static str, &[f32])],
        result: &'static str,
    ) -> Result<(), Error> {
        let Some(row) = alarms.iter().position(|alarm| *alarm > flag::LIMIT) else { return Ok(()) };
        let vocab = self.logits.len() / self.labels.len();
        let values = &self.logits[row * vocab..(row + 1) * vocab];
        let value = |argument, index: usize, expected, got: f32| {
            Err(Argument::Value { argument, index: Some(index), expected, got: got.into() }.into())
        };
        if let Some(v) = values.iter().position(|z| z.is_nan() || *z == f32::INFINITY) {
            return value(
                "logits",
                row * vocab + v,
                "a finite number, or -inf for a forbidden token",
                values[v],
            );
        }
        if values.iter().all(|z| *z == f32::NEG_INFINITY) {
            return value("logits", row * vocab, "a row with a finite entry", values[0]);
        }
        let label = self.labels[row] as usize;
        if values[label] == f32::NEG_INFINITY {
            return value("logits", row * vocab + label, "a finite number: it is the label's", values[label]);
        }
        for (argument, coefs) in coefs {
            if !coefs[row].is_finite() {
                return value(argument, row, "a finite number", coefs[row]);
            }
        }
        let hint = "logits or coefficients are too large for f32: scale them";
        Err(Argument::NotFinite { result, index: row, hint }.into())
    }
}

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
pub fn logits_statistics(
    device: &Device,
    logits: &Logits<'_>,
    temperature: f32,
    moments: bool,
) -> Result<Statistics, Error> {
    let rows = logits.rows()?;
    let n = rows.rows;
    let of_moments = || vec![0.0; if moments { n } else { 0 }];
    let mut out = Statistics {
        logp: vec![0.0; n],
        lse: vec![0.0; n],
        top: vec![0; n],
        entropy: of_moments(),
        collision: of_moments(),
        score_norm: of_moments(),
        temperature,
        state: vec![0.0; STATE * n],
    };
    let mut alarms = vec![0; n];
    let kernel = LogitsStatistics {
        rows,
        labels: In::new(logits.labels),
        temperature,
        logp: Out::new(&mut out.logp),
        lse: Out::new(&mut out.lse),
        top: Out::new(&mut out.top),
        moments: moments.then(|| LogitsMoments {
            entropy: Out::new(&mut out.entropy),
            collision: Out::new(&mut out.collision),
            score_norm: Out::new(&mut out.score_norm),
        }),
        state: Out::new(&mut out.state),
        row_alarm: Out::new(&mut alarms),
    };
    kernel.check()?;
    device.run(&kernel)?;
    logits.check_alarms(&alarms, &[], "logp")?;
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
pub fn logits_gradient(
    device: &Device,
    logits: &Logits<'_>,
    statistics: &Statistics,
    coef: &[f32],
    coef_entropy: Option<&[f32]>,
) -> Result<Vec<f32>, Error> {
    let rows = logits.rows()?;
    check_length("coef", rows.rows, "one per row of logits", coef.len())?;
    check_length("statistics", rows.rows, "one per row of logits", statistics.logp.len())?;
    let mut coefs = vec![("coef", coef)];
    if let Some(of_entropy) = coef_entropy {
        check_length("coef_entropy", rows.rows, "one per row of logits", of_entropy.len())?;
        if statistics.entropy.is_empty() {
            let expected = "given, but the statistics have no entropy: ask for moments";
            return Err(Argument::Combination { argument: "coef_entropy", expected }.into());
        }
        coefs.push(("coef_entropy", of_entropy));
    }
    let (mut gradient, mut alarms) = (vec![0.0; logits.logits.len()], vec![0; rows.rows]);
    let kernel = LogitsGradient {
        rows,
        labels: In::new(logits.labels),
        temperature: statistics.temperature,
        state: In::new(&statistics.state),
        coef: In::new(coef),
        coef_entropy: coef_entropy.map(In::new),
        gradient: Out::new(&mut gradient),
        row_alarm: Out::new(&mut alarms),
    };
    kernel.check()?;
    device.run(&kernel)?;
    logits.check_alarms(&alarms, &coefs, "gradient of the row of logits")?;
    Ok(gradient)
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
    let kernel = OtrExact {
        rows,
        labels: In::new(logits.labels),
        kappa,
        beta,
        coef: In::new(&coef),
        loss: Out::new(&mut out.row_loss),
        gradient: gradient.then(|| Out::new(&mut out.gradient)),
        row_alarm: Out::new(&mut alarms),
    };
    kernel.check()?;
    device.run(&kernel)?;
    logits.check_alarms(&alarms, &[], "loss of the row")?;
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
