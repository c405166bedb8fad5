//! KL divergence between rows of logits.

use super::check_row;
use crate::{Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::logits::kl::Direction;
use lockstep_core::logits::{LogitRows, LogitsKl};
use lockstep_core::op::Launch;
use lockstep_core::ragged::{In, Mask, Out, flag};
use lockstep_core::require;

/// Logits of a policy and of its reference for the same tokens.
#[derive(Clone, Copy, Debug)]
pub struct TwoRows<'a> {
    /// Logits of the policy, `[rows][V]`, row-major. −∞ = forbidden by a vocabulary mask.
    pub logits: &'a [f32],
    /// Logits of the reference, `[rows][V]`.
    pub reference: &'a [f32],
    /// Vocabulary size V.
    pub vocab: usize,
    /// Which rows take part, `[rows]`; `None` = all.
    pub loss_mask: Option<&'a [u8]>,
}

/// The result of [`logits_kl`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Divergence {
    /// KL of each row in nats, `[rows]`; 0 where masked.
    pub value: Vec<f32>,
    /// dL/dz for the policy's logits, `[rows][V]`; empty without coefficients.
    pub gradient: Vec<f32>,
}

/// Computes the KL divergence of every pair of rows over the whole vocabulary, in the given `direction`, and
/// with `coef` = dL/dKL `[rows]` its gradient with respect to the policy's logits; formula:
/// [`lockstep_core::logits::kl`].
///
/// Errors: lengths that disagree; a row with NaN, +∞ or only −∞ (index); a token forbidden only by the
/// distribution that is not averaged over, which would make the divergence infinite (index); coefficients
/// that are not finite (index); a temperature outside 1e-6..=1e6.
///
/// ```
/// use lockstep_ops::core::logits::kl::Direction;
/// use lockstep_ops::{Device, ops::logits::{TwoRows, logits_kl}};
/// let forbidden = f32::NEG_INFINITY;
/// // p = (½, ½, 0), q = (¼, ¼, ½).
/// let (logits, reference) = (&[0.0, 0.0, forbidden], &[0.0, 0.0, 2f32.ln()]);
/// let rows = TwoRows { logits, reference, vocab: 3, loss_mask: None };
/// let out = logits_kl(&Device::cpu(), &rows, Direction::Policy, 1.0, Some(&[1.0]))?;
/// assert!((out.value[0] - 2f32.ln()).abs() < 1e-6);
/// assert_eq!(out.gradient[2], 0.0);
/// // The other way a forbidden token has probability ½: infinite.
/// assert!(logits_kl(&Device::cpu(), &rows, Direction::Reference, 1.0, None).is_err());
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "KL divergence")]
pub fn logits_kl(
    device: &Device,
    rows: &TwoRows<'_>,
    direction: Direction,
    temperature: f32,
    coef: Option<&[f32]>,
) -> Result<Divergence, Error> {
    let n = rows.logits.len() / rows.vocab.max(1);
    if let Some(mask) = rows.loss_mask {
        require::length("loss_mask", n, "one per row of logits", mask.len())?;
    }
    if let Some(coef) = coef {
        require::length("coef", n, "one per row of logits", coef.len())?;
    }
    let live = Mask::new(rows.loss_mask);
    let zeros = vec![0.0; if coef.is_none() { n } else { 0 }];
    let entries = if coef.is_some() { rows.logits.len() } else { 0 };
    let mut out = Divergence { value: vec![0.0; n], gradient: vec![0.0; entries] };
    let mut alarms = vec![0; n];
    let kernel = LogitsKl {
        rows: LogitRows { logits: In::new(rows.logits), rows: n, vocab: rows.vocab, live },
        reference: In::new(rows.reference),
        direction,
        temperature,
        coef: In::new(coef.unwrap_or(&zeros)),
        value: Out::new(&mut out.value),
        gradient: coef.map(|_| Out::new(&mut out.gradient)),
        row_alarm: Out::new(&mut alarms),
    };
    kernel.check()?;
    if n == 0 {
        return Err(Argument::Empty { argument: "logits", expected: "at least one row" }.into());
    }
    device.run(&kernel)?;
    if let Some(row) = alarms.iter().position(|alarm| *alarm > flag::LIMIT) {
        rows.check_alarm(row, direction, coef)?;
    }
    Ok(out)
}

impl TwoRows<'_> {
    /// The error of a row that raised its alarm.
    fn check_alarm(&self, row: usize, direction: Direction, coef: Option<&[f32]>) -> Result<(), Error> {
        let from = row * self.vocab;
        let sides = [("logits", self.logits), ("reference", self.reference)];
        for (argument, z) in sides {
            check_row(argument, &z[from..from + self.vocab], from)?;
        }
        let [averaged, other] = match direction {
            Direction::Policy => sides,
            Direction::Reference => [sides[1], sides[0]],
        };
        let forbidden = |i: &usize| other.1[*i] == f32::NEG_INFINITY && averaged.1[*i] > f32::NEG_INFINITY;
        if let Some(i) = (from..from + self.vocab).find(forbidden) {
            let expected =
                "a finite number, because the other side allows the token: the divergence would be infinite";
            return Err(require::value(other.0, Some(i), expected, other.1[i]).into());
        }
        if let Some(coef) = coef.map(|coef| coef[row]).filter(|coef| !coef.is_finite()) {
            return Err(require::value("coef", Some(row), "a finite number", coef).into());
        }
        let hint = "logits or coefficients are too large for f32: scale them";
        Err(Argument::NotFinite { result: "KL of the rows of logits", index: row, hint }.into())
    }
}
