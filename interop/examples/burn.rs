//! Trains a small policy with a recipe, in burn: `cargo run --release -p lockstep-interop --features
//! burn-flex --example burn [RECIPE]`.

mod bandit;

use burn_tensor::activation::log_softmax;
use burn_tensor::{Device as Burn, Int, Tensor, TensorData};
use lockstep::{Device, Recipe};

fn main() -> anyhow::Result<()> {
    let recipe = std::env::args().nth(1).unwrap_or_else(|| "dapo".into());
    let [before, after] = learn(&recipe)?;
    println!("{recipe} with burn: mean reward {before:.3} before, {after:.3} after");
    anyhow::ensure!(after > 0.9, "the policy did not learn");
    Ok(())
}

/// Returns the mean rewards of the first and the last batch.
fn learn(recipe: &str) -> anyhow::Result<[f32; 2]> {
    let (device, recipe) = (Device::cpu(), Recipe::named(recipe)?);
    let on = Burn::flex().autodiff();
    let mut logits = Tensor::<2>::zeros([bandit::PROMPTS, bandit::WORDS], &on).require_grad();
    let mut rewards = Vec::new();
    for step in 0..60 {
        let table = log_softmax(logits.clone(), 1).reshape([bandit::PROMPTS * bandit::WORDS]);
        let values: Vec<f32> = table.to_data().try_into_vec().map_err(|error| anyhow::anyhow!("{error}"))?;
        let batch = bandit::sample(&values, step)?;
        rewards.push(batch.reward);
        let rollouts = batch.rollouts.view();
        let credit = recipe.advantages(&device, &rollouts)?;
        let places: Vec<i32> = batch.places.iter().map(|place| *place as i32).collect();
        let count = places.len();
        let logp: Tensor<1> =
            table.select(0, Tensor::<1, Int>::from_data(TensorData::new(places, [count]), &on));
        let out = lockstep_interop::burn::loss(&recipe, &device, &rollouts, &credit, &logp)?;
        let gradients = out.loss.backward();
        if let Some(gradient) = logits.grad(&gradients) {
            logits =
                Tensor::from_data((logits.clone().inner() - gradient * 10.0).into_data(), &on).require_grad();
        }
    }
    Ok([rewards[0], rewards[rewards.len() - 1]])
}

#[test]
fn a_policy_learns() {
    let [before, after] = learn("dapo").unwrap();
    assert!(before < 0.3 && after > 0.9, "{before} {after}");
}
