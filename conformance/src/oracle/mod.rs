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
pub mod entropy_bonus;
pub mod filter;
pub mod fold;
pub mod grpo;
pub mod kl;
pub mod mask_sequences;
pub mod moments;
pub mod novelty;
pub mod pass_at_k;
pub mod policy_loss;
pub mod ppo_clip;
pub mod reinforce;
pub mod role_baseline;
pub mod sapo;
pub mod scan;
pub mod shape;
pub mod sharpen;
pub mod token;
pub mod variance_increase;
pub mod whiten;
