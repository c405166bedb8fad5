//! What the tests of gates share: one ragged batch, and recipes on it.

use lockstep::recipe::AggregationMode;
use lockstep::{Advantage, Batch, Device, Error, PolicyInput, PolicyOutput, Recipe};
use lockstep_conformance::cases::corpus::tokens;
use lockstep_conformance::cases::hash::Source;
use lockstep_conformance::cases::masks::Mask;
use lockstep_conformance::cases::shapes::Shape;
use lockstep_conformance::cases::values::Range;
use lockstep_conformance::cases::{Data, slot};
use lockstep_conformance::precision::WORKED;

pub(crate) fn data(seed: u64) -> Data {
    let lengths = vec![7, 1, 0, 40, 33, 129, 12, 3, 64, 25, 18, 2, 90];
    tokens(&Shape { name: "ragged", catches: "", lengths }, Mask::Random, Range::Realistic, Source::new(seed))
}

pub(crate) fn batch<'a>(data: &'a Data, groups: &'a [u32]) -> Batch<'a> {
    Batch::with_empty_rows(&data.offsets, groups, data.mask.as_deref()).unwrap()
}

/// The inputs that every gate reads.
pub(crate) fn input(data: &Data) -> PolicyInput<'_> {
    let advantage = Advantage::PerSequence(&data.row[0]);
    PolicyInput::new(&data.element[slot::LOGP], &data.element[slot::LOGP_OLD], advantage)
}

/// Each token of each sequence by itself: dL/dlogp is dl/dlogp.
pub(crate) fn summed(name: &str) -> Recipe {
    let recipe = Recipe::named(name).unwrap();
    recipe.rebuild("summed").aggregation(AggregationMode::TokenSum).build().unwrap()
}

pub(crate) fn run(recipe: &Recipe, data: &Data, input: &PolicyInput<'_>) -> Result<PolicyOutput, Error> {
    recipe.policy_loss(&Device::cpu(), &batch(data, &[0, data.rows() as u32]), input)
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

pub(crate) fn text(result: Result<impl std::fmt::Debug, Error>) -> String {
    result.unwrap_err().to_string()
}
