//! Lockstep's definition: every formula once, in `no_std` Rust without tensors, allocation or `unsafe`.
//!
//! Each op is a plain struct (its launch arguments) with one method, [`Kernel::row`](op::Kernel::row), written
//! against a [`Team`](team::Team) of lanes. A backend supplies the team; the formula does not know which one.
//! The bits of a result depend on the inputs of its row alone: not on the backend, the SIMD level, the number
//! of threads, the offset of the row or its neighbours.
//!
//! | in the literature | here |
//! |---|---|
//! | GRPO, Dr.GRPO, RLOO, OPO, GPG, MC-GRPO, MaxRL, pass@k, … advantage | [`advantage::grpo`], [`advantage::baseline`] |
//! | masked whitening, batch normalisation (REINFORCE++, GDPO) | [`advantage::whiten`], [`aggregate::moments`] |
//! | analytic pass@k | [`advantage::pass_at_k`] |
//! | several rewards, GDPO | [`advantage::combine`] |
//! | discounted returns | [`advantage::discounted_return`] |
//! | prefix-tree values, TEMPO, tree rollouts | [`tree`] |
//! | importance ratio, guards | [`ratio`] |
//! | PPO clip, clip-higher, dual clip | [`gate::ppo_clip`] |
//! | SAPO soft gate | [`gate::sapo`] |
//! | k1, k2, k3, abs | [`kl`] |
//! | token-mean, seq-mean-token-sum, … | [`aggregate`] |
//! | the fused policy loss and its gradient | [`policy_loss`] |
//! | packed batches (`cu_seqlens`) | [`ragged`] |
//! | the order of every sum | [`team::fold`], [`team::scan`] |
//! | `exp`, `ln`, `sigmoid`, … | [`num`] |
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(any(target_arch = "nvptx64", target_arch = "amdgpu"), feature(core_float_math))]

#[cfg(feature = "std")]
extern crate std;

pub mod advantage;
pub mod aggregate;
pub mod check;
pub mod error;
pub mod gate;
pub mod kl;
pub mod num;
pub mod op;
pub mod policy_loss;
pub mod ragged;
pub mod ratio;
pub mod team;
pub mod tree;

pub use error::Error;
