//! **Lockstep**: reinforcement-learning maths for LLM post-training, with the same bits on every machine.
//!
//! A batch of rollouts is a table of named columns ([`Rollouts`]), and a [`Recipe`] names one choice for each
//! stage: reward → advantage → ratio → gate → aggregation. Two calls run it: [`Recipe::advantages`] once for
//! each batch, and [`Recipe::loss`] for each update, which returns the closed-form gradient dL/dlogp for the
//! trainer's own autograd.
//!
//! ```
//! use lockstep::{Device, Recipe, Rollouts};
//!
//! // Two prompts with two responses each; 3 + 2 + 2 + 3 response tokens.
//! let logp_old = [-0.5, -1.0, -0.2, -2.0, -0.3, -0.9, -1.1, -0.4, -0.6, -0.1];
//! let logp = logp_old.map(|x: f32| x * 0.9);
//! let rollouts = Rollouts {
//!     rewards: Some(&[1.0, 0.0, 0.0, 1.0]),
//!     logp_old: Some(&logp_old),
//!     logp: Some(&logp),
//!     ..Rollouts::new(&[0, 3, 5, 7, 10], &[0, 2, 4])
//! };
//! let (device, recipe) = (Device::cpu(), Recipe::named("grpo")?);
//! let credit = recipe.advantages(&device, &rollouts)?;
//! let loss = recipe.loss(&device, &rollouts, &credit)?;
//!
//! assert_eq!(loss.coef.len(), 10);         // dL/dlogp: backward of Σ coef·logp
//! assert!(loss.coef[0] < 0.0);             // rewarded: raise its log-probability
//! assert!(loss.metrics.unwrap().ratio_mean > 1.0);
//! # Ok::<(), lockstep::Error>(())
//! ```
//!
//! | to | see |
//! |---|---|
//! | run a recipe over device memory, on your stream, without a copy | [`plan`] |
//! | compute one formula over slices | [`ops`] |
//! | decide over prompts, steps and ranks | [`schedule`] |
//! | replay a mixture-of-experts router | [`routing`] |
//!
//! # Features
//!
//! * `cuda` and `rocm`, both on by default, compile the GPU backends and embed their kernels. With a feature
//!   off, [`Device::open`] of that kind is an error that names the feature.
//! * `safetensors` reads and writes files of rollouts and of routing traces.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

/// Runs the example of this crate's README example as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod columns;
mod credit;
mod loss;
pub mod plan;
pub mod recipe;
mod rollouts;
mod stage;
pub mod synthetic;

pub use columns::{Column, ColumnElement, Columns, Element, Shape};
pub use credit::{CorrectionReport, Credit, State};
pub use lockstep_ops::{
    Advantage, Advantages, Backend, Batch, Compiled, Counts, Device, Error, ListedDevice, Metrics, Outputs,
    PolicyInput, PolicyOutput, PolicyTotals, RatioStats, SimdLevel, core, devices, ops, routing, schedule,
    schedules,
};
pub use loss::{EntropyTerm, Loss};
pub use plan::Plan;
pub use recipe::{Call, Duty, Need, Recipe};
pub use rollouts::{Rollouts, RolloutsBuf, Views};
