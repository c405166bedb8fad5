//! A thin trainer that shows Lockstep end to end: the model, the tasks and the loop. It contains no RL
//! formula: everything between log-probabilities and `dL/dlogp` is a call into crate `lockstep`, and all of
//! these calls are in [`rl`].
//!
//! Without the default feature `model`, only the tasks and their parser are built.
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
pub mod print;
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
pub mod study;
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
