//! **Lockstep**: reinforcement-learning maths for LLM post-training, with the same bits on every machine.
//!
//! A trainer hands over flat, packed arrays (log-probabilities, rewards, offsets) and gets flat arrays back:
//! advantages, losses and the closed-form gradient dL/dlogp that it feeds to its own autograd. A [`Recipe`] names one
//! choice for each stage: reward → advantage → ratio → gate → aggregation.
//!
//! ```
//! use lockstep::{Advantage, Batch, Device, PolicyInput, Recipe};
//!
//! // Two prompts with two responses each; 3 + 2 + 2 + 3 response tokens.
//! let cu_seqlens = [0, 3, 5, 7, 10];
//! let cu_groups = [0, 2, 4];
//! let batch = Batch::new(&cu_seqlens, &cu_groups, None)?;
//!
//! let device = Device::cpu();
//! let recipe = Recipe::named("grpo")?;
//! let adv = recipe.advantages(&device, &batch, &[1.0, 0.0, 0.0, 1.0])?;
//!
//! let logp_old = [-0.5, -1.0, -0.2, -2.0, -0.3, -0.9, -1.1, -0.4, -0.6, -0.1];
//! let logp = logp_old.map(|x: f32| x * 0.9);
//! let input = PolicyInput::new(&logp, &logp_old, Advantage::PerSequence(&adv.advantage));
//! let out = recipe.policy_loss(&device, &batch, &input)?;
//!
//! assert_eq!(out.coef.len(), 10);          // dL/dlogp: backward of Σ coef·logp
//! assert!(out.coef[0] < 0.0);              // rewarded: raise its log-probability
//! assert!(out.metrics.unwrap().ratio_mean > 1.0);
//! # Ok::<(), lockstep::Error>(())
//! ```
#![forbid(unsafe_code)]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

mod backend;
mod batch;
pub mod catalogue;
mod device;
mod error;
mod metrics;
pub mod ops;
pub mod recipe;
pub mod routing;
pub mod schedule;

pub use backend::Backend;
pub use batch::{Batch, Counts};
pub use device::{Device, Entry, devices};
pub use error::Error;
pub use lockstep_core as core;
pub use lockstep_cpu::{Compiled, Level};
pub use metrics::{Metrics, RatioStats};
pub use ops::advantage::Advantages;
pub use ops::exact::PolicyTotals;
pub use ops::policy_loss::{Advantage, Outputs, PolicyInput, PolicyOutput};
pub use recipe::Recipe;
