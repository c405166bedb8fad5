//! The Lockstep side of `benches/peers/compare.py`: `peers SEQUENCES LENGTH THREADS [NAME]` prints one JSON
//! line per benchmark, or only the named one.
//!
//! Losses include their gradients. Each number is the best of one second's runs, as `compare.py` measures the
//! others.

use lockstep::core::aggregate::{PerRow, Weight};
use lockstep::ops::gae::{Ends, GaeInput, GaeOutput, GaeParams, Lambda};
use lockstep::ops::value_loss::{ValueInput, ValueOutput};
use lockstep::ops::whiten::WhitenParams;
use lockstep::recipe::Builder;
use lockstep::{Advantage, Credit, Device, Error, Loss, Outputs, Recipe, Rollouts, ops};
use lockstep_benches::{Inputs, number};
use std::time::Instant;

/// Time of the fastest run, in seconds.
fn best(mut f: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    f()?;
    f()?;
    let (mut best, begun, mut runs) = (f64::INFINITY, Instant::now(), 0);
    while runs < 5 || begun.elapsed().as_secs_f64() < 1.0 {
        let start = Instant::now();
        f()?;
        best = best.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    Ok(best)
}

fn say(name: &str, per: f64, seconds: f64) {
    println!("{{\"name\": \"{name}\", \"ns\": {}}}", seconds / per);
}

fn main() -> Result<(), Error> {
    let (sequences, length) = (number(1, 512), number(2, 2048));
    let inputs = Inputs::new(sequences * length, length);
    let device = Device::cpu_with(None, Some(number(3, 2)))?;
    let batch = inputs.batch()?;
    let counts = batch.counts(&device)?;
    let rollouts = Rollouts {
        counts: Some(&[counts.tokens, counts.nonempty, counts.sequences]),
        seed: Some(&[20_261_122]),
        ..inputs.rollouts()
    };
    let credit = Credit::per_sequence(inputs.advantage.clone());
    let tokens = inputs.tokens() as f64 * 1e-9;
    let only = std::env::args().nth(4);
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);

    for (name, recipe) in ADVANTAGES {
        let (name, recipe) = (format!("advantage_{name}"), Recipe::named(recipe)?);
        if !wanted(&name) {
            continue;
        }
        let mut out = Credit::default();
        let seconds = best(|| recipe.advantages_into(&device, &rollouts, &mut out))?;
        say(&name, batch.sequences() as f64 * 1e-6, seconds);
    }
    for (name, change) in LOSSES.iter().filter(|(name, _)| wanted(name)) {
        let recipe = change(Recipe::named(name)?.rebuild("peers")).build()?;
        let (outputs, mut out) = (Outputs { loss: true, ..Outputs::COEF }, Loss::default());
        let seconds = best(|| recipe.loss_into(&device, &rollouts, &credit, outputs, &mut out))?;
        say(name, tokens, seconds);
    }
    let values: Vec<f32> = inputs.logp.iter().map(|x| x * 0.5).collect();
    let old: Vec<f32> = values.iter().map(|x| x + 0.1).collect();
    let input = GaeInput { rewards: &inputs.logp_ref, values: &values, ends: Ends::Terminated };
    let params = GaeParams { gamma: 1.0, lambda: Lambda::Fixed(0.95), lambda_critic: None };
    let (mut gae, mut whitened) = (GaeOutput::default(), Vec::new());
    if wanted("gae") {
        let seconds = best(|| {
            // Like verl's function: advantages and returns, followed by whitening.
            ops::gae(&device, &batch, &input, &params, &mut gae)?;
            let advantage = Advantage::PerToken(&gae.advantage);
            ops::whiten_into(&device, &batch, advantage, &WhitenParams::VERL, &mut whitened)
        })?;
        say("gae", tokens, seconds);
    }
    let weight = Weight { per_row: PerRow::One, denominator: counts.tokens as f64, scale: 1.0 };
    let input =
        ValueInput { values: &values, values_old: Some(&old), returns: &inputs.logp_ref, huber_delta: None };
    let mut out = ValueOutput::default();
    if wanted("value_loss") {
        let seconds = best(|| ops::value_loss_into(&device, &batch, &input, 0.2, &weight, false, &mut out))?;
        say("value_loss", tokens, seconds);
    }
    Ok(())
}

/// verl's outcome-advantage estimators, and the matching recipes.
const ADVANTAGES: &[(&str, &str)] = &[
    ("grpo", "verl"),
    ("rloo", "rloo"),
    ("opo", "opo"),
    ("grpo_passk", "pass_k"),
    ("gpg", "gpg"),
    ("reinforce_plus_plus_baseline", "reinforce_plus_plus_baseline"),
];

/// A change to a recipe that makes it comparable.
type Change = fn(Builder) -> Builder;

/// Recipes by name.
const LOSSES: &[(&str, Change)] = &[
    ("ppo", |b| b),
    ("sapo", |b| b),
    ("gspo", |b| b),
    ("cispo", |b| b),
    ("gpg", |b| b),
    ("dppo_tv", |b| b),
    ("dppo_kl", |b| b),
    ("gmpo", |b| b),
    ("kl_cov", |b| b),
    ("clip_cov", |b| b),
    ("dro", |b| b),
];
