//! Advantages over time.

use crate::ops::{Bench, bits};
use crate::Inputs;
use lockstep::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda, gae};
use lockstep::ops::vtrace::{VTraceInput, VTraceParams, vtrace};
use lockstep::{Batch, Device};

pub(crate) fn benches<'a>(inputs: &'a Inputs, batch: Batch<'a>) -> Vec<Bench<'a>> {
    // Log-probabilities stand in for rewards and values: numbers of that size.
    let input = GaeInput { rewards: &inputs.logp, values: &inputs.logp_old, ends: Ends::Terminated };
    let params = GaeParams { gamma: 1.0, lambda: Lambda::Fixed(0.95), lambda_critic: None };
    let mut out = GaeOutput::default();
    vec![
        Bench {
        name: "gae",
        // Rewards, values and mask in; advantages and returns out.
        bytes: 17.0,
        run: Box::new(move |device: &Device| {
            gae(device, &batch, &input, &params, &mut out)?;
            Ok(bits(&out.advantage) ^ bits(&out.returns))
        }),
    },
    Bench {
        name: "vtrace",
        // Two log-probabilities, rewards, values and mask in; value targets and advantages out.
        bytes: 25.0,
        run: Box::new(move |device: &Device| {
            let (logp, logp_rollout) = (&inputs.logp[..], &inputs.logp_old[..]);
            let (rewards, values) = (&inputs.logp_ref[..], &inputs.logp_old[..]);
            let input = VTraceInput { logp, logp_rollout, rewards, values, ends: Ends::Terminated };
            let out = vtrace(device, &batch, &input, &VTraceParams::default())?;
            Ok(bits(&out.vs) ^ bits(&out.advantage))
        }),
    }]
}
