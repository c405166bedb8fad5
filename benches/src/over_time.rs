//! Advantages over time.

use crate::Inputs;
use crate::ops::{Bench, bits};
use lockstep::Batch;
use lockstep::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda, gae};
use lockstep::ops::optimal_token_baseline::{Score, TokenBaselineParams, optimal_token_baseline};
use lockstep::ops::step_return::{Steps, step_return};
use lockstep::ops::vtrace::{VTraceInput, VTraceParams, vtrace};

pub(crate) fn benches<'a>(inputs: &'a Inputs, batch: Batch<'a>) -> Vec<Bench<'a>> {
    // Log-probabilities stand in for rewards and values, being numbers of that size.
    let input = GaeInput { rewards: &inputs.logp, values: &inputs.logp_old, ends: Ends::Terminated };
    let params = GaeParams { gamma: 1.0, lambda: Lambda::Fixed(0.95), lambda_critic: None };
    let mut out = GaeOutput::default();
    let norm: Vec<f32> = inputs.logp_old.iter().map(|x| -x).collect();
    vec![
        // Rewards, values and mask are read; advantages and returns are written.
        Bench::new("gae", 17.0, move |device| {
            gae(device, &batch, &input, &params, &mut out)?;
            Ok(bits(&out.advantage) ^ bits(&out.returns))
        }),
        // Two log-probabilities, rewards, values and mask are read; value targets and advantages are written.
        Bench::new("vtrace", 25.0, move |device| {
            let (logp, logp_rollout) = (&inputs.logp[..], &inputs.logp_old[..]);
            let (rewards, values) = (&inputs.logp_ref[..], &inputs.logp_old[..]);
            let input = VTraceInput { logp, logp_rollout, rewards, values, ends: Ends::Terminated };
            let out = vtrace(device, &batch, &input, &VTraceParams::default())?;
            Ok(bits(&out.vs) ^ bits(&out.advantage))
        }),
        // As many steps as tokens: rewards and matches are read, returns are written.
        Bench::new("step_return", 9.0, move |device| {
            let (cu_steps, matches) = (&inputs.cu_seqlens[..], &inputs.loss_mask[..]);
            let steps = Steps { cu_steps, rewards: &inputs.logp, matches };
            Ok(bits(&step_return(device, &steps, 0.5, false)?))
        }),
        // Returns, running sums (twice) and mask are read; advantages are written. The sums come from
        // `row_scan`.
        Bench::new("optimal_token_baseline", 21.0, move |device| {
            let params = TokenBaselineParams::default();
            let score = Score::Norm(&norm);
            Ok(bits(&optimal_token_baseline(device, &batch, &inputs.logp, score, None, &params)?))
        }),
    ]
}
