//! Reward stages before the advantages, and advantage stages after the group.

use crate::Inputs;
use crate::ops::{Bench, bits, bits64};
use lockstep::ops::reward::{Bands, ShapeParams, VarianceParams};
use lockstep::ops::sharpen::{EntropyOf, SharpenParams};
use lockstep::ops::{self};
use lockstep::{Advantage, Batch, Device};
use lockstep_core::advantage::{Order, Sharpening};
use lockstep_core::reward::{Criterion, Shaping};

pub(crate) fn benches<'a>(inputs: &'a Inputs, batch: Batch<'a>) -> Vec<Bench<'a>> {
    let sequences = inputs.rewards.len();
    let per_token = sequences as f64 / inputs.tokens() as f64;
    let keep: Vec<u8> = (0..sequences).map(|s| u8::from(s % 3 != 0)).collect();
    let lengths: Vec<u32> = (0..sequences as u32).map(|s| s * 37 % 300).collect();
    let classes: Vec<u32> = (0..sequences as u32).map(|s| u32::from(s % 3 != 0)).collect();
    let roles: Vec<u32> = (0..sequences as u32).map(|s| s % 2).collect();
    // Groups of eight.
    let similarity: Vec<f32> = (0..sequences * 8).map(|k| (k * 31 % 64) as f32 / 64.0).collect();
    let entropies: Vec<f32> = inputs.logp.iter().map(|logp| -logp).collect();
    let entropy_bonus = move |device: &Device, entropy: EntropyOf<'_>| {
        let advantage = Advantage::PerSequence(&inputs.advantage);
        Ok(bits(&ops::entropy_bonus(device, &batch, advantage, entropy, 0.4, 2.0)?))
    };
    vec![
        Bench::new("shape_rewards", 12.0 * per_token, move |device| {
            let overlong = Shaping::Overlong { max_length: 250, buffer: 100, factor: 1.0, saturate: false };
            let params = ShapeParams { lengths: Some(&lengths), ..ShapeParams::new(overlong) };
            Ok(bits(&ops::shape_rewards(device, &batch, &inputs.rewards, None, &params)?))
        }),
        Bench::new("filter_groups", 5.0 * per_token, move |device| {
            let out = ops::filter_groups(device, &batch, &inputs.rewards, None, Criterion::Varied)?;
            Ok(bits(&out.statistic) ^ out.dropped_groups() as u64)
        }),
        Bench::new("mask_sequences", 2.0, move |device| {
            let mask = ops::mask_sequences(device, &batch, &keep)?;
            Ok(mask.iter().map(|m| u64::from(*m)).sum())
        }),
        Bench::new("novelty_bands", 44.0 * per_token, move |device| {
            let bands = &Bands::EVOL_RL;
            Ok(bits(&ops::novelty_bands(device, &batch, &classes, &similarity, None, bands)?.rewards))
        }),
        Bench::new("variance_increase", 8.0 * per_token, move |device| {
            let own = &VarianceParams::OWN;
            Ok(bits(&ops::variance_increase(device, &batch, &inputs.advantage, None, own)?))
        }),
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
        Bench::new("role_baseline", 12.0 * per_token, move |device| {
            let order = Order::SubtractThenUpdate;
            let (advantage, state) =
                ops::role_baseline(device, &inputs.rewards, &roles, &[0.0; 2], 0.95, order)?;
            Ok(bits(&advantage) ^ bits64(&state))
        }),
        Bench::new("entropy_bonus", 9.0, move |device| {
            entropy_bonus(device, EntropyOf::Sampled(&inputs.logp))
        }),
        Bench::new("entropy_bonus/full", 9.0, move |device| {
            entropy_bonus(device, EntropyOf::Distribution(&entropies))
        }),
    ]
}
