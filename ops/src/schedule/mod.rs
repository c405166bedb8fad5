//! Schedules: which prompts to sample, how often, what to keep, what is too old, and which rank gets it.
//!
//! The formulas are in [`lockstep_schedule`]; the functions here allocate the results and scratch
//! memory. Items that need neither are re-exported unchanged. Every decision is a function of its arguments
//! and a seed, with the same bits on every machine, so each rank can compute it on its own.
//!
//! Decisions about a single prompt, batch or step need no allocation:
//!
//! ```
//! use lockstep_ops::schedule::dars::{Dars, Deviation, Treatment};
//! use lockstep_ops::schedule::gdro_bins::{Bins, Window};
//! use lockstep_ops::schedule::{Latr, brorl, masa, ramp, scope, staleness};
//!
//! // DARS: 11 more rollouts for a prompt of which one in eight was right.
//! let dars = Dars { rollouts: 8, most: 32, deviation: Deviation::Without, treatment: Treatment::Equal };
//! assert_eq!(dars.extra(0.125)?, 11);
//!
//! // AReaL: how many rollouts may start. ROLL: whether a sample is too old.
//! let areal = staleness::Areal { max_concurrent: 64, max_staleness: 4, batch: 32 };
//! assert_eq!(areal.capacity(7, 10, 300), 54);
//! assert!(!staleness::roll_admits(7, 10, 1.5)?);
//!
//! // GDRO: the bin of a prompt that passed one of its last two attempts.
//! let window = Window::default().observe(true).observe(false);
//! assert_eq!(Bins::default().of(window.accuracy(8)?, None)?, 5);
//!
//! // LATR: the second candidate branches. SCOPE-style (our reading): keep two steps of four.
//! assert_eq!(Latr::default().branches(&[0.45, 0.3, 0.1])?, 2);
//! assert_eq!(ramp::latr_share(500, 1000), 0.625);
//! assert_eq!(scope::salvage(&[0.9, 0.8, 0.2, 0.7], 0.5, 0.3)?, scope::Salvage::Keep(2));
//!
//! // MASA: four passes of eight were predicted, and half were right.
//! assert_eq!(masa::difficulty_score(4, 0.5)?, 1.0);
//!
//! // BroRL: with everything sampled, right answers gain.
//! let update = brorl::Update { right: 1.0, wrong: 0.0, rate: 0.1, samples: 2 };
//! assert!(update.balance(&[0.4, 0.6], &[true, false], &[true, true])?.total() > 0.0);
//! # Ok::<(), lockstep_ops::Error>(())
//! ```

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
pub use buffers::{april_order, dynamic_sampling, marsrl_inputs, replay_slots, swarm_best, swarm_groups};
pub use dots::{Difficulty, dots_difficulty, dots_select};
pub use gdro::{Rollouts, prompt_gdro_distribution, prompt_gdro_weights, rollout_gdro_choose};
pub use latr::{edit_distance, latr_fit, latr_prunes, rouge_l};
pub use lockstep_schedule::dots::{calibrate, selection_size};
pub use lockstep_schedule::latr::{Latr, falls_behind};
pub use lockstep_schedule::order;
pub use lockstep_schedule::overlap::suffix_match;
pub use lockstep_schedule::random;
pub use lockstep_schedule::xrpo::Known;

pub use lockstep_schedule::{
    arrol, brorl, dars, fifo, gdro_bins, gdro_prompt, gdro_rollout, masa, ramp, rapo, remix, replay,
    rounding, scope, staleness,
};
pub use prune::{Pruned, Sampled, arrol_sampled, arrol_two_ended, rorecomp_split};
pub use vade::{Posterior, Utility, Vade, VadeSelection, vade_select};
