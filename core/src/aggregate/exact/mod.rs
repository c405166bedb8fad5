//! Exact mode: sums that do not depend on order, with the same bits for any sharding of a batch.
//!
//! A tree of additions ([`team::fold`](crate::team::fold)) gives the same bits on every backend, but sharding
//! a batch differently changes the tree. Here nothing is rounded until the end: a sum is an integer in units
//! of 2⁻¹⁰⁸⁸, wide enough for every finite binary64 number, so additions and merges commute and associate.
//! Partial sums of ranks or micro-batches are merged in any order, cross the network as
//! [bytes](ExactSum::to_bytes), and are rounded once, to nearest.
//!
//! | | |
//! |---|---|
//! | [`ExactSum`] | the accumulator, on the host |
//! | [`ExactMoments`] | count, Σx, Σx², extremes: mean and variance of all ranks, for whitening |
//! | [`exact_sum`](super::exact_sum) | the ops: digits of device arrays' sums for [`ExactSum::from_digits`] |
//!
//! Rationale and alternatives: docs/decisions/0007-exact-sums.md.

mod accumulator;
mod bytes;
mod integer;
mod moments;

pub use accumulator::ExactSum;
pub use bytes::{MOMENTS_BYTES, SUM_BYTES};
pub use moments::ExactMoments;
