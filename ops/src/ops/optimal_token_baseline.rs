//! A baseline per position, weighted by score norms.

use super::locate::{self, Domain};
use super::row_scan;
use crate::{Batch, Device, Error};
use lockstep_core::advantage::OptimalTokenBaseline;
use lockstep_core::advantage::optimal_token_baseline::score_norm;
use lockstep_core::num;
use lockstep_core::ragged::{In, Out};
use lockstep_core::team::Direction;

/// The squared norm of each token's score (the gradient of its log-probability).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Score<'a> {
    /// Squared norms, `[N]`.
    Norm(&'a [f32]),
    /// The proxy 1 − 2 p + Σ_v p_v², in binary64: where the policy is confident, its terms cancel.
    Probabilities {
        /// Log-probability ln p of the sampled token, `[N]`.
        logp: &'a [f32],
        /// Σ_v p_v², `[N]`.
        sum_squares: &'a [f32],
    },
}

/// Parameters of [`optimal_token_baseline`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenBaselineParams {
    /// Added to the sum of the weights.
    pub eps: f64,
    /// Whether a group's longest sequence, by live tokens, has no baseline at the positions beyond the second
    /// longest.
    pub lone_tail_is_raw: bool,
}

impl Default for TokenBaselineParams {
    /// verl's: eps 1e-8, and the tail is treated like the rest.
    fn default() -> Self {
        TokenBaselineParams { eps: 1e-8, lone_tail_is_raw: false }
    }
}

/// Computes advantages `[N]`: `returns` `[N]` minus the weighted mean of the group's returns at the same
/// position; formula: [`lockstep_core::advantage::optimal_token_baseline`]. If `ratio` `[N]` (rollout
/// correction) is given, its square multiplies the weights.
///
/// Errors: lengths that disagree; a live return that is not finite, a live norm or ratio that is negative or
/// not finite (index); an eps below 0; a result that is not finite (index).
///
/// ```
/// use lockstep_ops::ops::optimal_token_baseline::{Score, TokenBaselineParams, optimal_token_baseline};
/// use lockstep_ops::{Batch, Device};
/// let batch = Batch::new(&[0, 2, 3], &[0, 2], None)?;
/// let (returns, score) = ([1.0, 1.0, 0.0], Score::Norm(&[0.75, 0.5, 0.25]));
/// let params = TokenBaselineParams::default();
/// let out = optimal_token_baseline(&Device::cpu(), &batch, &returns, score, None, &params)?;
/// assert!((out[0] - 0.25).abs() < 1e-6 && (out[2] + 0.75).abs() < 1e-6);
/// # Ok::<(), lockstep_ops::Error>(())
/// ```
#[doc(alias = "OTB")]
pub fn optimal_token_baseline(
    device: &Device,
    batch: &Batch<'_>,
    returns: &[f32],
    score: Score<'_>,
    ratio: Option<&[f32]>,
    params: &TokenBaselineParams,
) -> Result<Vec<f32>, Error> {
    locate::live(batch, "returns", returns, Domain::Finite)?;
    let norm = norms(batch, score)?;
    let weighted = match ratio {
        None => norm,
        Some(ratio) => {
            locate::live(batch, "ratio", ratio, Domain::Weight)?;
            let square = |x: &f32| f64::from(*x) * f64::from(*x);
            norm.iter().zip(ratio).map(|(norm, w)| (f64::from(*norm) * square(w)) as f32).collect()
        }
    };
    let weights = row_scan(device, batch, &weighted, Direction::Prefix)?;
    let live = if params.lone_tail_is_raw { batch.lengths(device)? } else { Vec::new() };
    let mut advantage = vec![0.0; batch.tokens()];
    device.run(&OptimalTokenBaseline {
        cu_groups: batch.cu_groups(),
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        returns: In::new(returns),
        weights: In::new(&weights),
        eps: params.eps,
        lone_tail: params.lone_tail_is_raw.then(|| In::new(&live)),
        advantage: Out::new(&mut advantage),
    })?;
    let hint = "all weights of a position are 0 (choose an eps above 0), or a sum is too large for f32";
    locate::finite("advantage", &advantage, hint)?;
    Ok(advantage)
}

/// The squared norms of the tokens' scores, `[N]`.
///
/// Errors: lengths that disagree; a live norm, probability or sum out of its domain (index).
pub(crate) fn norms(batch: &Batch<'_>, score: Score<'_>) -> Result<Vec<f32>, Error> {
    let norm: Vec<f32> = match score {
        Score::Norm(norm) => norm.to_vec(),
        Score::Probabilities { logp, sum_squares } => {
            locate::live(batch, "logp", logp, Domain::LogProbability)?;
            let holds = |s: f32| (0.0..=1.0).contains(&s);
            locate::each_live(batch, "sum_squares", sum_squares, "a sum of squared probabilities", holds)?;
            let norm = |(logp, s): (&f32, &f32)| score_norm(num::exp64((*logp).into()), (*s).into()) as f32;
            logp.iter().zip(sum_squares).map(norm).collect()
        }
    };
    locate::live(batch, "score norms", &norm, Domain::Weight)?;
    Ok(norm)
}
