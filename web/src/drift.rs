//! What a recipe makes of policies that move apart.

use crate::Error;
use lockstep::schedules::random::{Purpose, Stream};
use lockstep::{Device, Recipe, synthetic};
use serde::Serialize;

const SEQUENCES: usize = 16;
const TOKENS: usize = 512;
/// Standard deviations of the log-ratios, in twentieths of a nat.
const STEPS: std::ops::RangeInclusive<u8> = 0..=30;
/// Callers' purposes start at 256.
const NOISE: Purpose = Purpose(8192);

/// One value for each distance. The correction's are empty if the recipe has none.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Drift {
    /// Standard deviation of logp − logp_old, and of logp_old − logp_rollout, in nats.
    distance: Vec<f64>,
    ess: Vec<f64>,
    clip_fraction: Vec<f64>,
    gate_mean: Vec<f64>,
    correction_ess: Vec<f64>,
    correction_mean: Vec<f64>,
    correction_outside: Vec<f64>,
    correction_rejected: Vec<f64>,
    /// Why the recipe refuses the next distance, where the lines end before the last one: a rejection may
    /// leave too few responses.
    refused: Option<String>,
}

/// Runs both calls on rollouts whose policies differ by normal noise of growing size.
pub(crate) fn drift(device: &Device, recipe: &Recipe) -> Result<Drift, Error> {
    let mut rollouts = synthetic::rollouts(recipe, SEQUENCES, TOKENS, 1)?;
    let mut stream = Stream::new(1, NOISE, 0, 0);
    let mut noise = || -> Vec<f32> { (0..TOKENS).map(|_| stream.normal() as f32).collect() };
    let (of_policy, of_sampler) = (noise(), noise());
    // Whichever column the ratio is relative to.
    let old = rollouts.logp_old.clone().or(rollouts.logp.clone()).unwrap_or_default();
    let moved = |noise: &[f32], distance: f32| -> Option<Vec<f32>> {
        Some(old.iter().zip(noise).map(|(old, noise)| (old + distance * noise).min(0.0)).collect())
    };
    let mut drift = Drift::default();
    for step in STEPS {
        let distance = f32::from(step) / 20.0;
        rollouts.logp = moved(&of_policy, distance);
        if rollouts.log_ratio.is_some() {
            rollouts.log_ratio = Some(of_policy.iter().map(|noise| distance * noise).collect());
        }
        if rollouts.logp_rollout.is_some() {
            rollouts.logp_rollout = moved(&of_sampler, distance);
        }
        let (credit, loss) = match recipe.step(device, &rollouts.view()) {
            Ok(both) => both,
            Err(error) if drift.distance.is_empty() => return Err(error.into()),
            Err(error) => {
                drift.refused = Some(error.to_string());
                break;
            }
        };
        let metrics = loss.metrics.unwrap_or_default();
        drift.distance.push(distance.into());
        drift.ess.push(metrics.ess);
        drift.clip_fraction.push(metrics.clip_fraction);
        drift.gate_mean.push(metrics.gate_mean);
        if let Some(correction) = credit.correction {
            drift.correction_ess.push(correction.stats.ess);
            drift.correction_mean.push(correction.stats.mean);
            drift.correction_outside.push(correction.stats.outside_fraction);
            drift.correction_rejected.push(correction.stats.rejected_fraction);
        }
    }
    Ok(drift)
}
