//! Tokens drawn from rows of logits, and the one-token rollout over them.

use super::{Logits, Otr, share};
use crate::{Device, Error};
use lockstep_core::logits::{DrawTokens, OtrSampled};
use lockstep_core::ragged::{In, Out};
use lockstep_core::require;

/// Draws `draws` tokens from every row at temperature κ, `[rows · draws]`, ascending in each row; all 0 where
/// masked. The draws are stratified; formula and expectation: [`lockstep_core::logits::draw`]. The draws of
/// row r depend only on the row, `seed` and r, so pass a new seed to every call. The labels play no part.
///
/// Errors: those of [`logits_statistics`](super::logits_statistics) except for forbidden labels; `draws`
/// outside 1..=1024.
///
/// ```
/// use lockstep_ops::{Device, ops::logits::{Logits, draw_tokens}};
/// let forbidden = f32::NEG_INFINITY;
/// let rows = Logits { logits: &[0.0, forbidden, 0.0], labels: &[0], loss_mask: None };
/// // Two tokens of probability ½: stratified draws hit each as often as it is likely.
/// assert_eq!(draw_tokens(&Device::cpu(), &rows, 1.3, 4, 1234)?, [0, 0, 2, 2]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn draw_tokens(
    device: &Device,
    logits: &Logits<'_>,
    temperature: f32,
    draws: usize,
    seed: u64,
) -> Result<Vec<u32>, Error> {
    let rows = logits.rows()?;
    let (mut tokens, mut alarms) =
        (vec![0; rows.rows.saturating_mul(draws.min(DrawTokens::MAX_DRAWS))], vec![0; rows.rows]);
    device.run(&DrawTokens {
        rows,
        temperature,
        draws,
        seed,
        first: 0,
        tokens: Out::new(&mut tokens),
        row_alarm: Out::new(&mut alarms),
    })?;
    logits.check_alarms(&alarms, None, "draws of the row")?;
    Ok(tokens)
}

/// Computes the loss of the one-token rollout from sampled candidates, and dL/dz if `gradient`. It is the
/// estimator whose expectation [`otr_exact`](super::otr_exact) computes; formula:
/// [`lockstep_core::logits::otr_sampled`]. `candidates` are K tokens of every row, `[rows · K]`, from
/// [`draw_tokens`] at κ or any other sampler; those of masked rows are ignored. The loss is averaged as in
/// [`otr_exact`](super::otr_exact).
///
/// Errors: those of [`logits_statistics`](super::logits_statistics); a number of candidates that is not a
/// multiple of the number of rows; a candidate that is outside the vocabulary or forbidden (index); β above 1
/// or not finite.
///
/// ```
/// use lockstep_ops::{Device, ops::logits::{Logits, otr_sampled}};
/// let rows = Logits { logits: &[0.0, 0.0], labels: &[0], loss_mask: None };
/// let out = otr_sampled(&Device::cpu(), &rows, &[0, 1], 0.0, None, true)?;
/// assert!((out.loss - 0.5 * 2f64.ln()).abs() < 1e-6);
/// assert_eq!(out.gradient, [-0.25, 0.25]);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn otr_sampled(
    device: &Device,
    logits: &Logits<'_>,
    candidates: &[u32],
    beta: f32,
    positions: Option<u64>,
    gradient: bool,
) -> Result<Otr, Error> {
    let rows = logits.rows()?;
    let draws = candidates.len() / rows.rows;
    let mut sorted = candidates.to_vec();
    for (row, own) in sorted.chunks_mut(draws.max(1)).enumerate() {
        let live = row < rows.rows && rows.live.at(row);
        for (j, &token) in own.iter().enumerate().filter(|_| live) {
            let value =
                |expected| Err(require::value("candidates", Some(row * draws + j), expected, token).into());
            if token as usize >= rows.vocab {
                return value("a token below the number of logits in a row");
            }
            if logits.logits[row * rows.vocab + token as usize] == f32::NEG_INFINITY {
                return value("a token whose logit is not -inf");
            }
        }
        own.sort_unstable();
    }
    let share = share(&rows, positions);
    let (coef, mut out, mut alarms) =
        (vec![share as f32; rows.rows], Otr::new(&rows, gradient), vec![0; rows.rows]);
    device.run(&OtrSampled {
        rows,
        labels: In::new(logits.labels),
        candidates: In::new(&sorted),
        draws,
        beta,
        coef: In::new(&coef),
        loss: Out::new(&mut out.row_loss),
        gradient: gradient.then(|| Out::new(&mut out.gradient)),
        row_alarm: Out::new(&mut alarms),
    })?;
    logits.check_alarms(&alarms, None, "loss of the row")?;
    out.mean(device, share)
}
