//! VCPO's weights for the minimum-variance baseline.

use super::aggregate::row_sums;
use super::locate::{self, Domain};
use super::optimal_token_baseline::{Score, norms};
use crate::{Batch, Device, Error};
use lockstep_core::num::exp64;
use lockstep_core::require;

/// The squared norm of the gradient of a sequence's log-probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SequenceScore<'a> {
    /// Measured squared norms, `[S]`.
    Norm(&'a [f32]),
    /// A proxy that needs no per-sequence gradients: the sum, over the sequence's live tokens, of the squared
    /// norms with respect to the logits.
    Tokens(Score<'a>),
}

/// Parameters of [`vcpo_weights`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VcpoWeights {
    /// Whether to divide by the square of the sequence's number of live tokens.
    pub per_length: bool,
    /// Largest importance weight of a sequence; `None` = no limit (the paper's choice).
    pub most: Option<f64>,
}

/// Computes the weights W `[S]` of [`Baseline::Weighted`](lockstep_core::advantage::Baseline::Weighted):
/// W_i = w_i²·‖∇ log π(τ_i)‖² (/ L_i²), w_i = exp(Σ (logp_old − logp_rollout)) over live tokens (VCPO
/// 2602.17616; docs/maths/correction.md). The norm is that of the score alone, without weight and advantage.
/// A sequence without live tokens has weight 0 if weights are divided by the length.
///
/// Errors: lengths that disagree; a live log-probability that is not finite, or a norm that is negative or
/// not finite (index); a `most` that is not positive; a weight too large for `f32` (index). To avoid the
/// latter, give `most`, or subtract the same constant from all log-ratios, which does not change the
/// baseline.
///
/// ```
/// use lockstep_ops::ops::vcpo::{SequenceScore, VcpoWeights, vcpo_weights};
/// use lockstep_ops::{Batch, Device};
/// let batch = Batch::new(&[0, 1, 2, 3], &[0, 3], None)?;
/// let (old, rollout) = ([-1.0; 3], [-1.0, -1.0 - 2f32.ln(), -1.0 + 2f32.ln()]);
/// let norms = SequenceScore::Norm(&[4.0, 1.0, 9.0]);
/// let weights = vcpo_weights(&Device::cpu(), &batch, [&old, &rollout], norms, &VcpoWeights::default())?;
/// assert!(weights.iter().zip([4.0, 4.0, 2.25]).all(|(w, want)| (w - want).abs() < 1e-5));
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
pub fn vcpo_weights(
    device: &Device,
    batch: &Batch<'_>,
    [logp_old, logp_rollout]: [&[f32]; 2],
    score: SequenceScore<'_>,
    params: &VcpoWeights,
) -> Result<Vec<f32>, Error> {
    batch.check_tokens("logp_old", logp_old.len())?;
    batch.check_tokens("logp_rollout", logp_rollout.len())?;
    if let Some(got) = params.most.filter(|most| most.is_nan() || *most <= 0.0) {
        return Err(require::value("most", None, "a positive number", got).into());
    }
    let difference: Vec<f32> =
        logp_old.iter().zip(logp_rollout).map(|(old, rollout)| old - rollout).collect();
    let (moved, tokens) = row_sums(device, batch, "logp_old - logp_rollout", &difference)?;
    let norm: Vec<f64> = match score {
        SequenceScore::Norm(norm) => {
            batch.check_sequences("score norms", norm.len())?;
            locate::each("score norms", norm, Domain::Weight.expected(), |_, x| Domain::Weight.holds(x))?;
            norm.iter().map(|x| f64::from(*x)).collect()
        }
        SequenceScore::Tokens(score) => row_sums(device, batch, "score norms", &norms(batch, score)?)?.0,
    };
    let most = params.most.unwrap_or(f64::INFINITY);
    let weight = |(i, moved): (usize, &f64)| {
        let ratio = exp64(*moved).min(most);
        let length = if params.per_length { f64::from(tokens[i]) } else { 1.0 };
        // Avoid 0·∞ for a norm of 0: a sequence without a score does not affect the baseline.
        let weight = ratio * ratio * norm[i] / (length * length);
        if norm[i] == 0.0 || length == 0.0 { 0.0 } else { weight as f32 }
    };
    let weights: Vec<f32> = moved.iter().enumerate().map(weight).collect();
    locate::finite("weight", &weights, "the importance weight is too large for f32: set `most`")?;
    Ok(weights)
}
