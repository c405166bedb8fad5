//! Schedules: who is sampled, how often, what is kept, what is too old, which rank gets it.
//!
//! The formulas are [`lockstep_core::schedule`]'s; here are the calls that allocate their results and scratch. What needs neither is re-exported as it
//! is. Every decision is a function of its arguments and of a seed, with the same bits on every machine, so each rank can compute it by itself.

mod allocate;
mod balance;
mod buffers;
mod dots;
mod gdro;
mod latr;
mod prune;
mod vade;

pub use allocate::{largest_remainder, square_root_law, xrpo};
pub use balance::{Balance, Partition, balance};
pub use buffers::{april_order, dynamic_sampling, replay_slots, swarm_groups};
pub use dots::{Difficulty, dots_difficulty, dots_select};
pub use gdro::{Rollouts, prompt_gdro_distribution, prompt_gdro_weights, rollout_gdro_choose};
pub use latr::{edit_distance, latr_fit, latr_prunes, rouge_l};
pub use lockstep_core::random;
pub use lockstep_core::schedule::dots::{calibrate, selection_size};
pub use lockstep_core::schedule::latr::{Latr, falls_behind};
pub use lockstep_core::schedule::order;
pub use lockstep_core::schedule::overlap::suffix_match;
pub use lockstep_core::schedule::xrpo::Known;

pub use lockstep_core::schedule::{
    arrol, brorl, dars, fifo, gdro_bins, gdro_prompt, gdro_rollout, masa, ramp, replay, rounding, scope,
    staleness,
};
pub use prune::{Pruned, Sampled, arrol_sampled, arrol_two_ended, rorecomp_split};
pub use vade::{Posterior, Utility, Vade, VadeSelection, vade_select};
