//! The oracle: the formulas of the literature in `f64`, written from maths.md and not from core.
//!
//! It imports nothing of Lockstep: plain numbers in, plain numbers out, naive on purpose. A file has the stem of core's.

pub mod aggregate;
pub mod baseline;
pub mod check;
pub mod cispo;
pub mod combine;
pub mod discounted_return;
pub mod dppo;
pub mod fold;
pub mod grpo;
pub mod kl;
pub mod moments;
pub mod pass_at_k;
pub mod policy_loss;
pub mod ppo_clip;
pub mod reinforce;
pub mod sapo;
pub mod scan;
pub mod token;
pub mod tree_advantage;
pub mod tree_nodes;
pub mod tree_sort;
pub mod whiten;
