//! Trains a small policy with a recipe, in candle: `cargo run --release -p lockstep-interop --features candle
//! --example candle [RECIPE]`.

mod bandit;

use candle_core::{D, Device as Candle, Tensor, Var};
use lockstep::{Device, Recipe};

fn main() -> anyhow::Result<()> {
    let recipe = std::env::args().nth(1).unwrap_or_else(|| "dapo".into());
    let [before, after] = learn(&recipe)?;
    println!("{recipe} with candle: mean reward {before:.3} before, {after:.3} after");
    anyhow::ensure!(after > 0.9, "the policy did not learn");
    Ok(())
}

/// Returns the mean rewards of the first and the last batch.
fn learn(recipe: &str) -> anyhow::Result<[f32; 2]> {
    let (device, recipe) = (Device::cpu(), Recipe::named(recipe)?);
    let logits = Var::zeros((bandit::PROMPTS, bandit::WORDS), candle_core::DType::F32, &Candle::Cpu)?;
    let mut rewards = Vec::new();
    for step in 0..60 {
        let table = logits.broadcast_sub(&logits.log_sum_exp(D::Minus1)?.unsqueeze(1)?)?.flatten_all()?;
        let batch = bandit::sample(&table.to_vec1()?, step)?;
        rewards.push(batch.reward);
        let rollouts = batch.rollouts.view();
        let credit = recipe.advantages(&device, &rollouts)?;
        let logp = table.index_select(&Tensor::new(batch.places, &Candle::Cpu)?, 0)?;
        let out = lockstep_interop::candle::loss(&recipe, &device, &rollouts, &credit, &logp)?;
        let gradients = out.loss.backward()?;
        if let Some(gradient) = gradients.get(&logits) {
            logits.set(&(logits.as_tensor() - (gradient * 10.0)?)?)?;
        }
    }
    Ok([rewards[0], rewards[rewards.len() - 1]])
}

#[test]
fn a_policy_learns() {
    let [before, after] = learn("dapo").unwrap();
    assert!(before < 0.3 && after > 0.9, "{before} {after}");
}
