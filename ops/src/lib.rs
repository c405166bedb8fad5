//! The ops of **Lockstep** on plain slices: a [device](Device), a [batch](Batch) of sequences, and one
//! function for each formula, which checks its arguments and allocates its results. Recipes over named
//! columns are in the crate `lockstep-rl`, which re-exports everything here; this crate is enough to compute
//! single formulas or schedules over prompts and steps.
//!
//! | to | see |
//! |---|---|
//! | compute one formula over slices | [`ops`] |
//! | decide over prompts, steps and ranks | [`schedule`] |
//! | replay a mixture-of-experts router | [`routing`] |
//!
//! # Features
//!
//! `cuda` and `rocm`, both on by default, compile the GPU backends and embed their kernels. With a feature
//! off, [`Device::open`] of that kind is an error that names the feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod backend;
mod batch;
mod device;
mod error;
mod gpu;
mod metrics;
pub mod ops;
mod queue;
pub mod routing;
pub mod schedule;

pub use backend::Backend;
pub use batch::{Batch, Counts};
pub use device::{Device, ListedDevice, devices};
pub use error::Error;
pub use lockstep_core as core;
pub use lockstep_cpu::{Compiled, SimdLevel};
pub use lockstep_gpu::Plain;
pub use lockstep_schedule as schedules;
pub use metrics::{Metrics, RatioStats};
pub use ops::advantage::Advantages;
pub use ops::exact::PolicyTotals;
pub use ops::policy_loss::{Advantage, Outputs, PolicyInput, PolicyOutput};
pub use queue::{Memory, Queue};
