//! GMPO, whose ratio is per sequence and whose clip is per token.

use super::{Domain, PolicyInput, PolicyOutput, check_lengths, finish};
use crate::{Batch, Device, Error};
use lockstep_core::Error as Argument;
use lockstep_core::policy_loss::gmpo::Mean;
use lockstep_core::policy_loss::{MetricsOut, PolicyLossGmpo};
use lockstep_core::ragged::{In, Out};
use lockstep_core::ratio::Guard;

/// The scalar parameters of GMPO.
#[derive(Clone, Copy, Debug)]
pub struct GmpoParams {
    /// The mean of the tokens' ratios.
    pub mean: Mean,
    /// Largest decrease of a log-ratio.
    pub clip_log_low: f32,
    /// Largest increase of a log-ratio.
    pub clip_log_high: f32,
    /// Guard of the token log-ratio.
    pub guard: Guard,
    /// The divisor of the sum over sequences; in verl, the number of sequences of the whole batch.
    pub denominator: f64,
    /// Band of the parity statistic, as ratios.
    pub band: [f32; 2],
}

/// Computes the loss of GMPO and dL/dlogp into `out`, whose buffers are reused; formula:
/// [`lockstep_core::policy_loss::gmpo`]. GMPO has no loss per token: `token_loss` stays empty.
///
/// Errors: those of [`policy_loss`](super::policy_loss); a `logp_ref`, because there is no KL term.
#[doc(alias = "geometric mean")]
pub fn gmpo(
    device: &Device,
    batch: &Batch<'_>,
    input: &PolicyInput<'_>,
    params: &GmpoParams,
    out: &mut PolicyOutput,
) -> Result<(), Error> {
    check_lengths(batch, input)?;
    let refuse = |argument, expected| Err(Argument::Combination { argument, expected }.into());
    if input.logp_ref.is_some() {
        return refuse("logp_ref", "GMPO has no KL term of its own: add the coefficients of ops::kl");
    }
    let mut input = *input;
    input.outputs.token_loss = false;
    let outputs = out.make_room(batch, input.outputs);
    let scratch = &mut out.scratch;
    let (advantage, advantage_per_token) = input.advantage.values();
    device.run(&PolicyLossGmpo {
        cu_seqlens: batch.cu_seqlens(),
        loss_mask: batch.loss_mask(),
        logp: In::new(input.logp),
        logp_old: In::new(input.logp_old),
        advantage: In::new(advantage),
        advantage_per_token,
        weights: input.weights.map(In::new),
        guard: params.guard,
        mean: params.mean,
        clip_log_low: params.clip_log_low,
        clip_log_high: params.clip_log_high,
        denominator: params.denominator,
        denominator_from: None,
        coef: Out::new(&mut out.coef),
        row_loss: outputs.loss.then(|| Out::new(&mut out.row_loss)),
        row_tokens: Out::new(&mut scratch.tokens),
        row_alarm: Out::new(&mut scratch.alarm),
        metrics: outputs.metrics.then(|| MetricsOut {
            row_sums: Out::new(&mut scratch.sums),
            row_maxima: Out::new(&mut scratch.maxima),
            band: params.band,
        }),
    })?;
    finish(device, batch, (&input, Domain::LogProbability), out)
}
