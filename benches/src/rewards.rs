//! Advantage stages after the group.

use crate::Inputs;
use crate::ops::{Bench, bits};
use lockstep::ops::sharpen::{EntropyOf, SharpenParams};
use lockstep::ops::{self};
use lockstep::{Advantage, Batch, Device};
use lockstep_core::advantage::Sharpening;

pub(crate) fn benches<'a>(inputs: &'a Inputs, batch: Batch<'a>) -> Vec<Bench<'a>> {
    let entropies: Vec<f32> = inputs.logp.iter().map(|logp| -logp).collect();
    let entropy_bonus = move |device: &Device, entropy: EntropyOf<'_>| {
        let advantage = Advantage::PerSequence(&inputs.advantage);
        Ok(bits(&ops::entropy_bonus(device, &batch, advantage, entropy, 0.4, 2.0)?))
    };
    vec![
        Bench::new("sharpen", 5.0, move |device| {
            let params = SharpenParams {
                sharpening: Sharpening::Novelty { lambda: 2.5, kappa: 0.5 },
                threshold: 0.5,
                logp: &inputs.logp,
                logp_ref: None,
                per_token: true,
            };
            Ok(bits(&ops::sharpen(device, &batch, &inputs.advantage, &inputs.rewards, None, &params)?))
        }),
        Bench::new("entropy_bonus", 9.0, move |device| {
            entropy_bonus(device, EntropyOf::Sampled(&inputs.logp))
        }),
        Bench::new("entropy_bonus/full", 9.0, move |device| {
            entropy_bonus(device, EntropyOf::Distribution(&entropies))
        }),
    ]
}
