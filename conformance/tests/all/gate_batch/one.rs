//! Single sequences against numbers by hand.

use lockstep::recipe::AggregationMode;
use lockstep::{Advantage, Batch, Device, PolicyInput, PolicyOutput, Recipe};
use lockstep_conformance::precision::WORKED;

/// Each token of each sequence by itself: dL/dlogp is dl/dlogp.
pub(crate) fn summed(name: &str) -> Recipe {
    let recipe = Recipe::named(name).unwrap();
    recipe.rebuild("summed").aggregation(AggregationMode::TokenSum).build().unwrap()
}

/// One sequence, its log-probabilities and one advantage.
pub(crate) fn one(recipe: &Recipe, logps: [&[f32]; 3], a: f32) -> PolicyOutput {
    let [logp, old, second] = logps;
    let (offsets, a) = ([0, logp.len() as u32], [a]);
    let batch = Batch::new(&offsets, &[0, 1], None).unwrap();
    let logp_second = (!second.is_empty()).then_some(second);
    let input = PolicyInput { logp_second, ..PolicyInput::new(logp, old, Advantage::PerSequence(&a)) };
    recipe.policy_loss(&Device::cpu(), &batch, &input).unwrap()
}

pub(crate) fn close(got: f64, want: f64) -> bool {
    (got - want).abs() <= WORKED * want.abs().max(1.0)
}
