//! Shared by the tests of gates: one ragged batch, and recipes on it.

mod one;

pub(crate) use one::{close, one, one_of, summed};

use crate::prelude::*;
use lockstep_conformance::cases::corpus::tokens;
use lockstep_conformance::cases::masks::Mask;
use lockstep_conformance::cases::shapes::Shape;
use lockstep_conformance::cases::values::Range;

/// All sequences form one group.
const GROUPS: [u32; 2] = [0, 13];

pub(crate) fn data(seed: u64) -> Data {
    let lengths = vec![7, 1, 0, 40, 33, 129, 12, 3, 64, 25, 18, 2, 90];
    tokens(&Shape { name: "ragged", catches: "", lengths }, Mask::Random, Range::Realistic, Source::new(seed))
}

pub(crate) fn batch(data: &Data) -> Batch<'_> {
    input(data).batch().unwrap()
}

/// The columns that every gate reads; the sampler and the latest policy equal the old one.
pub(crate) fn input(data: &Data) -> Rollouts<'_> {
    let old = Some(&data.element[slot::LOGP_OLD][..]);
    Rollouts {
        loss_mask: data.mask.as_deref(),
        logp: Some(&data.element[slot::LOGP]),
        logp_old: old,
        logp_rollout: old,
        logp_latest: old,
        ..Rollouts::new(&data.offsets, &GROUPS)
    }
}

/// The matching advantages.
pub(crate) fn credit(data: &Data) -> Credit {
    Credit::per_sequence(data.row[0].clone())
}

pub(crate) fn run(recipe: &Recipe, data: &Data, input: &Rollouts<'_>) -> Result<PolicyOutput, Error> {
    run_with(recipe, input, &credit(data))
}

pub(crate) fn run_with(
    recipe: &Recipe,
    input: &Rollouts<'_>,
    credit: &Credit,
) -> Result<PolicyOutput, Error> {
    recipe.loss(&Device::cpu(), input, credit).map(|loss| loss.policy)
}
