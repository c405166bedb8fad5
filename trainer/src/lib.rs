//! A thin trainer that shows Lockstep whole: the model, the tasks and the loop. There is no RL formula in it: whatever
//! stands between log-probabilities and `dL/dlogp` is a call of crate `lockstep`, and all these calls are in [`rl`].
//!
//! Without the default feature `model` only the tasks are built, with their parser.
#![forbid(unsafe_code)]

pub mod atomic;
pub mod task;
pub mod vocab;

#[cfg(feature = "model")]
pub mod adamw;
#[cfg(feature = "model")]
pub mod cli;
#[cfg(feature = "model")]
pub mod config;
#[cfg(feature = "model")]
pub mod devices;
#[cfg(feature = "model")]
pub mod explain;
#[cfg(feature = "model")]
pub mod files;
#[cfg(feature = "model")]
pub mod list;
#[cfg(feature = "model")]
pub mod lock;
#[cfg(feature = "model")]
pub mod model;
#[cfg(feature = "model")]
pub mod policy;
#[cfg(feature = "model")]
pub mod random;
#[cfg(feature = "model")]
pub mod report;
#[cfg(feature = "model")]
pub mod rl;
#[cfg(feature = "model")]
pub mod routing;
#[cfg(feature = "model")]
pub mod score;
#[cfg(feature = "model")]
pub mod synthesize;
#[cfg(feature = "model")]
pub mod tensors;
#[cfg(feature = "model")]
pub mod threads;
#[cfg(feature = "model")]
pub mod train;
#[cfg(feature = "model")]
pub mod tree;
#[cfg(feature = "model")]
pub mod verify;
