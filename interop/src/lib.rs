//! **Lockstep in Rust trainers**: one function turns a recipe's loss into a tensor that candle or burn
//! differentiates, and a plan runs over cudarc's memory, on its stream.
//!
//! | feature | module | what it takes |
//! |---|---|---|
//! | `candle` | `candle` | candle 0.11, CPU tensors |
//! | `burn` | `burn` | burn 0.22, tensors of any device |
//! | `cudarc` | `cudarc` | cudarc 0.19: `CudaSlice`, `CudaView`, `CUdeviceptr`, `CudaStream` |
//!
//! No feature is on by default. Other bindings of CUDA and HIP need none: their buffers are addresses, which
//! [`In::from_raw`](lockstep::core::ragged::In::from_raw) and [`Views::from_raw`](lockstep::Views::from_raw)
//! accept.
#![cfg_attr(
    feature = "candle",
    doc = r#"
```
use candle_core::{Device as Candle, Tensor, Var};
use lockstep::{Device, Recipe, Rollouts};

// Two prompts with two responses each, packed: 3 + 2 + 2 + 3 response tokens.
let logp_old = [-0.5_f32, -1.0, -0.2, -2.0, -0.3, -0.9, -1.1, -0.4, -0.6, -0.1];
let rollouts = Rollouts {
    rewards: Some(&[1.0, 0.0, 0.0, 1.0]),
    logp_old: Some(&logp_old),
    ..Rollouts::new(&[0, 3, 5, 7, 10], &[0, 2, 4])
};
let (device, recipe) = (Device::cpu(), Recipe::named("dapo")?);
let credit = recipe.advantages(&device, &rollouts)?;

let logp = Var::from_tensor(&Tensor::new(&logp_old, &Candle::Cpu)?)?; // in a trainer, what the model computes
let out = lockstep_interop::candle::loss(&recipe, &device, &rollouts, &credit, logp.as_tensor())?;
let gradients = out.loss.backward()?;
assert_eq!(gradients.get(&logp).unwrap().to_vec1::<f32>()?, out.terms.coef);
assert_eq!(out.terms.metrics.unwrap().ratio_mean, 1.0);
# Ok::<(), Box<dyn std::error::Error>>(())
```
"#
)]

#[cfg(feature = "burn")]
pub mod burn;
#[cfg(feature = "candle")]
pub mod candle;
#[cfg(feature = "cudarc")]
pub mod cudarc;
mod error;
mod policy;

pub use error::Error;
pub use policy::{Loss, Policy, padded};
