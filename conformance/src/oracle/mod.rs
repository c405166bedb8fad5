//! The oracle: the formulas of the literature in `f64`, written from maths.md and not from core.
//!
//! It imports nothing of Lockstep: plain numbers in, plain numbers out, naive on purpose. A file has the stem of core's.

pub mod aggregate;
pub mod baseline;
pub mod check;
pub mod cispo;
pub mod combine;
pub mod covariance;
pub mod digits;
pub mod discounted_return;
pub mod dppo;
pub mod ess;
pub mod exact_sum;
pub mod fold;
pub mod gae;
pub mod gmpo;
pub mod gradient;
pub mod grpo;
pub mod key;
pub mod kl;
pub mod kl_importance;
pub mod log_ratio_scan;
pub mod mini_rl;
pub mod mismatch;
pub mod moments;
pub mod normalize;
pub mod optimal_token_baseline;
pub mod otr;
pub mod pass_at_k;
pub mod policy_loss;
pub mod ppo_clip;
pub mod proximal;
pub mod reinforce;
pub mod remix;
pub mod sapo;
pub mod scan;
pub mod sequence_weight;
pub mod staleness;
pub mod statistics;
pub mod step_return;
pub mod token;
pub mod top;
pub mod value_loss;
pub mod vtrace;
pub mod weights;
pub mod whiten;
