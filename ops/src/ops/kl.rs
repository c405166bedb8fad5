//! KL to a reference policy.

use super::aggregate::fold_rows;
use super::locate::{self, Checked};
use crate::{Batch, Device, Error};
use lockstep_core::kl::{Kl, KlDivergence};
use lockstep_core::ragged::{In, Out};

/// KL estimates of every token with their gradients.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KlOutput {
    /// Estimate per token, `[N]`; 0 where masked.
    pub kl: Vec<f32>,
    /// d kl / d logp per token, `[N]`; 0 where masked.
    pub gradient: Vec<f32>,
    /// Sum over live tokens of each sequence, `[S]`.
    pub row_sum: Vec<f64>,
    /// Sum over all live tokens.
    pub sum: f64,
}

/// Computes per-token estimates of KL(policy ‖ reference), in nats, and their gradients, from `logp` and
/// `logp_ref` `[N]`; formulas: [`lockstep_core::kl`].
///
/// Errors: lengths that disagree; a live log-probability that is NaN, infinite or above 0; an estimate that
/// overflows (choose a guard).
///
/// ```
/// use lockstep_ops::{Batch, Device, core::kl::{KlFormula, Kl}, ops::kl};
/// let batch = Batch::new(&[0, 2], &[0, 1], None)?;
/// let out = kl(&Device::cpu(), &batch, &[-1.5, -0.5], &[-1.0, -0.5], &Kl::new(KlFormula::K3))?;
/// assert!((out.kl[0] - 0.148721).abs() < 1e-6 && (out.gradient[0] + 0.648721).abs() < 1e-6);
/// assert_eq!((out.kl[1], out.gradient[1]), (0.0, 0.0));
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias("KL divergence", "k1", "k2", "k3"))]
pub fn kl(
    device: &Device,
    batch: &Batch<'_>,
    logp: &[f32],
    logp_ref: &[f32],
    estimator: &Kl,
) -> Result<KlOutput, Error> {
    let arguments = [Checked::logp("logp", logp), Checked::logp("logp_ref", logp_ref)];
    locate::lengths(batch, &arguments)?;
    let (tokens, rows) = (batch.tokens(), batch.sequences());
    let mut out =
        KlOutput { kl: vec![0.0; tokens], gradient: vec![0.0; tokens], row_sum: vec![0.0; rows], sum: 0.0 };
    let mut alarm = vec![0; rows];
    device.run(&KlDivergence {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        logp: In::new(logp),
        logp_ref: In::new(logp_ref),
        kl: *estimator,
        value: Some(Out::new(&mut out.kl)),
        gradient: Some(Out::new(&mut out.gradient)),
        row_sum: Out::new(&mut out.row_sum),
        row_alarm: Out::new(&mut alarm),
    })?;
    let results = [Checked::finite("kl", &out.kl[..]), Checked::finite("kl gradient", &out.gradient[..])];
    locate::check(batch, &alarm, &arguments, &results, "set clamp_in or clamp_out")?;
    out.sum = fold_rows(device, &out.row_sum, rows)?[0];
    Ok(out)
}
