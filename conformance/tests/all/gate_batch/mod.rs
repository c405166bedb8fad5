//! What the tests of gates share: one ragged batch, and recipes on it.

mod one;

pub(crate) use one::{close, one, summed};

use lockstep::{Advantage, Batch, Device, Error, PolicyInput, PolicyOutput, Recipe};
use lockstep_conformance::cases::corpus::tokens;
use lockstep_conformance::cases::hash::Source;
use lockstep_conformance::cases::masks::Mask;
use lockstep_conformance::cases::shapes::Shape;
use lockstep_conformance::cases::values::Range;
use lockstep_conformance::cases::{Data, slot};

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

pub(crate) fn run(recipe: &Recipe, data: &Data, input: &PolicyInput<'_>) -> Result<PolicyOutput, Error> {
    recipe.policy_loss(&Device::cpu(), &batch(data, &[0, data.rows() as u32]), input)
}

pub(crate) fn text(result: Result<impl std::fmt::Debug, Error>) -> String {
    result.unwrap_err().to_string()
}
