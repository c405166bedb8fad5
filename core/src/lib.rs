//! Lockstep's definition: every formula once, in `no_std` Rust without tensors, allocation or `unsafe`.
//!
//! Each op is a plain struct (its launch arguments) with one method, [`Kernel::row`](op::Kernel::row),
//! written against a [`Team`](team::Team) of lanes. A backend supplies the team; the formula does not depend
//! on it. The bits of a result depend only on the inputs of its row: not on the backend, the SIMD level, the
//! number of threads, the offset of the row or its neighbours.
//!
//! | in the literature | here |
//! |---|---|
//! | GRPO, Dr.GRPO, RLOO, OPO, GPG advantage | [`advantage::grpo`], [`advantage::baseline`] |
//! | MC-GRPO, MaxRL, pass@k, … advantage | [`advantage::grpo`], [`advantage::baseline`] |
//! | masked whitening | [`advantage::whiten`], [`aggregate::moments`] |
//! | batch normalisation (REINFORCE++, GDPO) | [`advantage::whiten`], [`aggregate::moments`] |
//! | analytic pass@k | [`advantage::pass_at_k`] |
//! | several rewards, GDPO | [`advantage::combine`] |
//! | discounted returns | [`advantage::discounted_return`] |
//! | GAE, TD(λ), V-trace | [`advantage::gae`], [`advantage::vtrace`] |
//! | step returns (UI-S1) | [`advantage::step_return`] |
//! | optimal token baseline | [`advantage::optimal_token_baseline`] |
//! | PSR, NSR, DAPO's shaping and filter, FAPO, RAPO, BRPO, EVOL-RL, GRPOVI | [`reward`] |
//! | XRPO-style, ACE | [`advantage::sharpen`] |
//! | SPIRAL's RAE | [`advantage::role_baseline`] |
//! | MSSR | [`advantage::entropy_bonus`] |
//! | prefix-tree values, TEMPO, tree rollouts | [`tree`] |
//! | importance ratio, guards | [`ratio`] |
//! | rollout correction: TIS, IcePop, MIS, rejection, mismatch | [`correction`] |
//! | PPO clip, clip-higher, dual clip | [`gate::ppo_clip`] |
//! | SAPO soft gate | [`gate::sapo`] |
//! | GMPO | [`policy_loss::gmpo`] |
//! | MiniRL, ReMix | [`gate::mini_rl`], [`gate::remix`] |
//! | VESPO, TOPR, off-policy sequence mask | [`policy_loss::sequence_weight`] |
//! | KL-Cov, Clip-Cov, top entropy quantile: the n largest of a batch | [`select`] |
//! | k1, k2, k3, abs | [`kl`] |
//! | token-mean, seq-mean-token-sum, … | [`aggregate`] |
//! | exact sums, independent of order and sharding | [`aggregate::exact`] |
//! | the fused policy loss and its gradient | [`policy_loss`] |
//! | importance-weighted KL | [`kl_importance`] |
//! | log-probability, entropy and gradient of rows of logits | [`logits`] |
//! | one-token rollout (OTR), in expectation | [`logits::otr`] |
//! | one-token rollout from drawn tokens | [`logits::otr_sampled`], [`logits::draw`] |
//! | KL divergence over the whole vocabulary | [`logits::kl`] |
//! | MoE routing replay R2, R3: gates, their gradient, traces, mismatch | [`routing`] |
//! | value loss of a critic | [`value_loss`] |
//! | packed batches (`cu_seqlens`) | [`ragged`] |
//! | the order of every sum | [`team::fold`], [`team::scan`], [`team::recur`] |
//! | `exp`, `ln`, `sigmoid`, … | [`num`] |
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(any(target_arch = "nvptx64", target_arch = "amdgpu"), feature(core_float_math))]

#[cfg(feature = "std")]
extern crate std;

pub mod advantage;
pub mod aggregate;
pub mod check;
pub mod correction;
pub mod error;
pub mod gate;
pub mod kl;
pub mod kl_importance;
pub mod logits;
pub mod num;
pub mod op;
pub mod policy_loss;
pub mod ragged;
pub mod ratio;
pub mod require;
pub mod reward;
pub mod routing;
pub mod select;
pub mod team;
pub mod tree;
pub mod value_loss;

pub use error::Error;
