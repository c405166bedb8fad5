//! Weights that depend on how far the policy has moved on a sequence.

use super::locate::{self, Checked, Domain};
use crate::{Batch, Device, Error};
use lockstep_core::policy_loss::{SequenceRule, SequenceWeight};
use lockstep_core::ragged::{In, Out};

/// Computes weights per token, `[N]`, by a rule over whole sequences (VESPO, TOPR, off-policy mask); formula:
/// [`lockstep_core::policy_loss::sequence_weight`]. `logp` and `logp_behave` are `[N]`, `advantage` is `[S]`,
/// and `weights` `[N]` are the caller's own weights, if any.
///
/// Errors: lengths that disagree; a live log-probability that is NaN, infinite or above 0, an advantage that
/// is not finite, or a weight below 0 (argument, index); a rule whose parameters are out of their domain.
#[doc(alias("VESPO", "TOPR"))]
pub fn sequence_weight(
    device: &Device,
    batch: &Batch<'_>,
    [logp, logp_behave]: [&[f32]; 2],
    advantage: &[f32],
    weights: Option<&[f32]>,
    rule: &SequenceRule,
) -> Result<Vec<f32>, Error> {
    let mut out = Vec::new();
    sequence_weight_into(device, batch, [logp, logp_behave], advantage, weights, rule, &mut out)?;
    Ok(out)
}

/// Like [`sequence_weight`], but into `out`, whose memory is reused. `out` is unspecified after an error.
pub fn sequence_weight_into(
    device: &Device,
    batch: &Batch<'_>,
    [logp, logp_behave]: [&[f32]; 2],
    advantage: &[f32],
    weights: Option<&[f32]>,
    rule: &SequenceRule,
    out: &mut Vec<f32>,
) -> Result<(), Error> {
    let arguments = [
        Checked::logp("logp", logp),
        Checked::logp("logp_behave", logp_behave),
        Checked::new("weights", Domain::Weight, weights),
    ];
    locate::lengths(batch, &arguments)?;
    batch.check_sequences("advantage", advantage.len())?;
    locate::each_finite("advantage", advantage)?;
    out.resize(batch.tokens(), 0.0);
    let mut alarm = vec![0; batch.sequences()];
    device.run(&SequenceWeight {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        logp: In::new(logp),
        logp_behave: In::new(logp_behave),
        advantage: In::new(advantage),
        weights: weights.map(In::new),
        rule: *rule,
        out: Out::new(out),
        row_alarm: Out::new(&mut alarm),
    })?;
    locate::check(batch, &alarm, &arguments, &[], "")
}
