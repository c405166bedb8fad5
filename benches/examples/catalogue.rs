//! `cargo run --release -p lockstep-benches --example catalogue [TOKENS] > lockstep/src/catalogue/measured.csv`
//!
//! What each recipe and function of the catalogue costs on this machine, in nanoseconds: the policy loss with its gradient
//! for a recipe, the op alone for a function. Best of several runs, all threads, buffers larger than the caches.

use lockstep::catalogue::{Entry, catalogue};
use lockstep::recipe::NAMES;
use lockstep::{Advantage, Device, Error, Outputs, PolicyInput, PolicyOutput, Recipe};
use lockstep_benches::{Inputs, all};
use std::time::Instant;

fn best(mut f: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let mut best = f64::INFINITY;
    for _ in 0..6 {
        let start = Instant::now();
        f()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn main() -> Result<(), Error> {
    let tokens = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(16 << 20);
    let inputs = Inputs::new(tokens, 4096);
    let (device, batch) = (Device::cpu(), inputs.batch()?);
    let counts = batch.counts(&device)?;
    let level = lockstep::Level::available().last().map_or("none", |level| level.name());
    println!("# ns; {} tokens in sequences of 4096, {level}, all threads", inputs.tokens());
    let entropy: Vec<f32> = inputs.logp.iter().map(|x| -x).collect();
    for name in NAMES {
        let recipe = Recipe::named(name)?;
        let mut out = PolicyOutput::default();
        let usual = PolicyInput {
            counts: Some(counts),
            outputs: Outputs { loss: true, ..Outputs::COEF },
            ..PolicyInput::new(&inputs.logp, &inputs.logp_old, Advantage::PerSequence(&inputs.advantage))
        };
        let input = match *name {
            "minirl" | "remix" | "vespo" | "topr" => {
                PolicyInput { logp_second: Some(&inputs.logp_ref), ..usual }
            }
            "minpro" => PolicyInput { log_ratio: Some(&inputs.logp_ref), ..usual },
            "clip_cov" => PolicyInput { seed: Some(1), ..usual },
            "top_entropy" => PolicyInput { entropy: Some(&entropy), ..usual },
            _ if recipe.kl_term().is_some() => PolicyInput { logp_ref: Some(&inputs.logp_ref), ..usual },
            _ => usual,
        };
        let seconds = best(|| recipe.policy_loss_into(&device, &batch, &input, &mut out))?;
        println!("{name},{:.3}", seconds * 1e9 / inputs.tokens() as f64);
    }
    for mut bench in all(&inputs)? {
        let timed = |entry: &Entry| entry.bench == Some(bench.name);
        let entries: Vec<Entry> = catalogue().into_iter().filter(timed).collect();
        if entries.is_empty() {
            continue;
        }
        let seconds = best(|| (bench.run)(&device).map(|_| ()))?;
        for entry in entries {
            println!("{},{:.3}", entry.name, seconds * 1e9 / inputs.count(entry.per) as f64);
        }
    }
    Ok(())
}
