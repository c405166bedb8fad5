//! Exact sums: on the device, and in the accumulator itself.

use crate::Inputs;
use crate::ops::{Bench, bits64};
use lockstep::ops::exact::{exact_sum, exact_token_sum};
use lockstep::{Batch, Device};
use lockstep_core::aggregate::{ExactMoments, ExactSum};

pub(crate) fn benches<'a>(inputs: &'a Inputs, batch: Batch<'a>) -> Vec<Bench<'a>> {
    let per_token = inputs.rewards.len() as f64 / inputs.tokens() as f64;
    let partials: Vec<f64> = inputs.rewards.iter().map(|r| f64::from(*r)).collect();
    let same = partials.clone();
    vec![
        Bench::new("exact_sum", 8.0 * per_token, move |device: &Device| {
            Ok(bits64(&[exact_sum(device, &partials)?.0.finish()]))
        }),
        Bench::new("exact_sum_f32", 5.0, move |device: &Device| {
            Ok(bits64(&[exact_token_sum(device, &batch, &inputs.logp, true)?.0.finish()]))
        }),
        Bench::new("exact_sum/accumulator", 8.0 * per_token, move |_: &Device| {
            Ok(bits64(&[same.iter().copied().collect::<ExactSum>().finish()]))
        }),
        Bench::new("exact_sum/moments", 4.0, move |_: &Device| {
            Ok(bits64(&inputs.logp.iter().copied().collect::<ExactMoments>().moments()))
        }),
    ]
}
