//! What many tests use.

pub(crate) use crate::refused::refused;
pub(crate) use lockstep::core::aggregate::{PerRow, Weight};
pub(crate) use lockstep::core::kl::{Kl, KlFormula};
pub(crate) use lockstep::core::op::OPS;
pub(crate) use lockstep::core::ragged::{In, Out};
pub(crate) use lockstep::core::ratio::{Guard, RatioGranularity};
pub(crate) use lockstep::ops::advantage::GroupParams;
pub(crate) use lockstep::ops::whiten::WhitenParams;
pub(crate) use lockstep::recipe::{AggregationMode, GateChoice, GuardChoice, SingletonChoice, names};
pub(crate) use lockstep::{
    Advantage, Batch, Compiled, Counts, Credit, Device, Error, Loss, Outputs, PolicyOutput, Recipe, Rollouts,
    SimdLevel, ops,
};
pub(crate) use lockstep_conformance::cases::hash::Source;
pub(crate) use lockstep_conformance::cases::random::random;
pub(crate) use lockstep_conformance::cases::shapes::offsets_of;
pub(crate) use lockstep_conformance::cases::{Case, Data, slot};
pub(crate) use lockstep_conformance::ops::AnyOp;
pub(crate) use lockstep_conformance::precision::{BY_HAND, FINITE_DIFFERENCE, KINK, WORKED, assert_worked};
pub(crate) use lockstep_conformance::{launch, levels};
